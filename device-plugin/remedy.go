// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

const (
	remedyReset  = "when no task runs on the GPU: nomad-device-pal release; nvidia-smi --gpu-reset -i $GPU; nomad-device-pal resume"
	remedyReboot = "nomad node drain -enable -self, then reboot"
	remedySeated = "reboot; if the fault returns, have power and PCIe seating checked"
	remedyHung   = "look for hung processes on the GPU (nvidia-smi, dmesg); if these processes cannot be ended, reboot"
	remedyPower  = "shut down, and plug in all of the GPU's power cables"
	remedyReturn = "have the card replaced"
	remedyFabric = "systemctl status nvidia-fabricmanager; nvidia-smi -q shows the GPU's fabric state and health; in a confidential VM: nvidia-smi conf-compute -srs 1"
	remedyNVLink = "nvidia-smi nvlink -i $GPU -s shows the links, and nvidia-smi nvlink -i $GPU -e shows their errors; have the GPU's bridge or seating checked; " + remedyReset
)

// Remedy returns the advice for the reason in a health description. id is the id of the physical
// GPU, and dir is the plugin's state directory.
func Remedy(reason, id, dir string) string {
	text := strings.ReplaceAll(remedy(strings.TrimPrefix(reason, reasonDegraded+":")), "$GPU", id)
	return orders.ReplaceAllStringFunc(text, func(order string) string { return order + ofStateDir(dir) })
}

// orders matches commands that find the running plugin by its state directory.
var orders = regexp.MustCompile(`nomad-device-pal (release|resume|clear)\b`)

// Order returns the command with which an operator gives an order to the running plugin.
func Order(dir, name string, ids ...string) string {
	return strings.Join(append([]string{"nomad-device-pal " + name + ofStateDir(dir)}, ids...), " ")
}

func ofStateDir(dir string) string {
	if dir == "" || dir == DefaultStateDir {
		return ""
	}
	return " -state-dir=" + dir
}

// remedies holds the advice for each kind of reason. For other kinds, the advice is remedyReset.
var remedies = map[string]string{
	gpu.MIGEmpty: "nvidia-smi mig -i $GPU -lgip lists profiles, nvidia-smi mig -i $GPU -cgi PROFILE -C makes an instance;" +
		" nvidia-smi mig -i $GPU -lgi lists GPU instances; if one has no compute instance, nvidia-smi mig -i $GPU -gi ID -cci creates it;" +
		" or switch MIG off: nomad-device-pal release; nvidia-smi -i $GPU -mig 0; nomad-device-pal resume",
	gpu.MIGUnread: "nvidia-smi mig -i $GPU -lgi lists the instances if the driver can read them; if the plugin lacks permission: " + gpu.RemedyDenied + "; if that does not help: " + remedyReset,
	gpu.SameUUID:  "nvidia-smi -L lists both GPUs; give each virtual GPU a UUID of its own, or take one of the cards out",
	gpu.LibraryReplaced: "the driver's package was upgraded while the driver is loaded, so no new program can use CUDA (Driver/library version mismatch): " +
		remedyReboot + "; or stop all tasks on GPUs and reload the driver; hold the package back from unattended upgrades",
	reasonReleased:   "nomad-device-pal resume",
	reasonMPS:        "systemctl status nvidia-mps, or nomad job status nvidia-mps, shows why NVIDIA's control daemon does not run; the plugin's log has its answer",
	reasonLost:       remedySeated,
	reasonRemap:      remedyReturn,
	reasonRetired:    remedyReturn,
	reasonSRAM:       remedyReturn,
	reasonFabric:     remedyFabric,
	degradedFabric:   remedyFabric,
	reasonUnanswered: remedyHung,
	degradedThermal:  "have its cooling checked",
	degradedBrake:    "have the machine's power supplies checked",
	degradedPCIe:     "nvidia-smi -q -i $GPU shows the PCIe link; have the GPU's seating, riser or cable checked",
	reasonNVLink:     remedyNVLink,
	degradedNVLink:   remedyNVLink,
	degradedSlow:     "measure the GPU again: nomad job run jobspecs/measure.nomad.hcl; if the GPU is slow again, have cooling and power checked",
	degradedWrong:    "take the GPU out and have it tested",
}

func remedy(reason string) string {
	kind, detail, _ := strings.Cut(reason, ":")
	switch {
	case kind == reasonXid && detail == "79":
		return remedySeated
	case kind == reasonRecovery:
		return remedyRecovery(detail)
	case kind == reasonNVML:
		return remedyNVML(detail)
	}
	return cmp.Or(remedies[kind], remedyReset)
}

// remedyRecovery returns the advice for an action that the driver requests.
func remedyRecovery(action string) string {
	switch action {
	case recoveryAction(2):
		return remedyReboot
	case recoveryAction(3):
		return "end the jobs that use this GPU together with other GPUs; if the driver still requests an action, " + remedyReset
	case recoveryAction(5):
		return "systemctl restart nvidia-imex"
	}
	return remedyReset
}

// remedyNVML returns the advice for a question that NVML does not answer. failure has the form of
// [gpu.Failure].
func remedyNVML(failure string) string {
	_, answer, _ := strings.Cut(failure, "=")
	switch answer {
	case answerText(gpu.InsufficientPower):
		return remedyPower
	case answerText(noPermission):
		return gpu.RemedyDenied
	}
	return "nvidia-smi -q -i $GPU shows which values fail (ERR!), dmesg | grep -e NVRM -e Xid shows why; " + remedyReset + "; if that does not help, reboot"
}

const noPermission = 4

// answerText returns the part of a failure's text that shows the code.
func answerText(code int) string {
	_, text, _ := strings.Cut(gpu.Failure{Code: code}.String(), "=")
	return text
}

// RemedyHidden returns the advice for a GPU that cannot be identified.
func RemedyHidden(h gpu.Hidden) string {
	switch {
	case gpu.KindOf(h.Code) == gpu.Denied:
		return gpu.RemedyDenied
	case h.Lost:
		return remedySeated
	case h.Code == gpu.InsufficientPower:
		return remedyPower
	case h.Why == gpu.Silent:
		return remedyHung
	}
	return "nvidia-smi -L shows which GPU is missing, dmesg | grep -e NVRM -e Xid shows why; reboot; if the GPU goes missing again, have the card checked"
}
