// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// Remedy is what an operator types about a health reason. id is the physical GPU's.
func Remedy(reason, id string) string {
	has := func(prefixes ...string) bool {
		for _, p := range prefixes {
			if strings.HasPrefix(reason, p) {
				return true
			}
		}
		return false
	}
	const reset = "once no task runs on it: nomad-device-pal release; nvidia-smi --gpu-reset -i $GPU; nomad-device-pal resume"
	text := reset
	switch {
	case reason == gpu.MIGEmpty:
		text = "nvidia-smi mig -i $GPU -lgip lists profiles, nvidia-smi mig -i $GPU -cgi PROFILE -C makes an instance;" +
			" or switch MIG off: nomad-device-pal release; nvidia-smi -i $GPU -mig 0; nomad-device-pal resume"
	case reason == gpu.MIGUnread:
		text = "nvidia-smi mig -i $GPU -lgi lists the instances, if the driver can; " + reset
	case reason == gpu.SameUUID:
		text = "nvidia-smi -L lists both; give each virtual GPU a UUID of its own, or take one of the cards out"
	case reason == reasonReleased:
		text = "nomad-device-pal resume"
	case has(reasonLost, reasonXid+":79"):
		text = "reboot; if it comes again, have power and PCIe seating checked"
	case has(reasonRemap, reasonRetired):
		text = "the card is for return"
	case has("fabric"):
		text = "systemctl status nvidia-fabricmanager; nvidia-smi -q shows the GPU's fabric state and health"
	case has(reasonUnanswered):
		text = "look for hung processes on the GPU (nvidia-smi, dmesg); reboot if they cannot be ended"
	case has(reasonNVML):
		text = "nvidia-smi -q -i $GPU shows what it answers (ERR!), dmesg | grep -e NVRM -e Xid why; " + reset + "; else reboot"
	}
	return strings.ReplaceAll(text, "$GPU", id)
}

// RemedyHidden is what an operator types about a GPU that cannot be identified.
func RemedyHidden(h gpu.Hidden) string {
	switch kind := gpu.KindOf(h.Code); {
	case kind == gpu.Denied:
		return "run Nomad's client as root, and let its cgroup have the device files /dev/nvidia*"
	case h.Lost:
		return "reboot; if it comes again, have power and PCIe seating checked"
	}
	return "nvidia-smi -L shows which GPU is missing, dmesg | grep -e NVRM -e Xid why; reboot; if it comes again, have the card checked"
}
