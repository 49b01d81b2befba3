// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/internal/testlog"
)

// The suggested commands fit the fault: a reset is suggested only if it helps.
func TestRemedy(t *testing.T) {
	const reset = "nvidia-smi --gpu-reset -i GPU-1"
	for reason, tc := range map[string]struct {
		want  string
		reset bool
	}{
		"reset-required":                      {reset, true},
		"xid:119":                             {reset, true},
		"xid:79":                              {"PCIe seating", false},
		"gpu-lost":                            {"PCIe seating", false},
		"recovery-action:gpu-reset":           {reset, true},
		"recovery-action:node-reboot":         {"nomad node drain -enable -self, then reboot", false},
		"recovery-action:drain-p2p":           {"end the jobs that use this GPU together with other GPUs", true},
		"recovery-action:drain-and-reset":     {reset, true},
		"recovery-action:recover-imex":        {"systemctl restart nvidia-imex", false},
		"row-remap-failure":                   {"replaced", false},
		"page-retirement":                     {"replaced", false},
		"sram-ecc-threshold":                  {"replaced", false},
		"fabric-not-ready":                    {"nvidia-smi conf-compute -srs 1", false},
		"fabric:not-ready":                    {"systemctl status nvidia-fabricmanager", false},
		"driver-not-answering":                {"hung processes", false},
		"mig-without-instances":               {"nvidia-smi mig -i GPU-1 -gi ID -cci", false},
		"mig-instances-unread":                {"/dev/nvidia-caps/*", true},
		"duplicate-uuid":                      {"nvidia-smi -L", false},
		"released":                            {"nomad-device-pal resume", false},
		"degraded:thermal-slowdown":           {"cooling", false},
		"thermal-slowdown":                    {"cooling", false},
		"power-brake":                         {"power supplies", false},
		"pcie":                                {"seating", false},
		"slow":                                {"nomad job run jobspecs/measure.nomad.hcl", false},
		"wrong-results":                       {"tested", false},
		"nvlink-down":                         {"nvidia-smi nvlink -i GPU-1 -s", true},
		"retirement-pending":                  {reset, true},
		"degraded:nvml:nvmlDeviceGetName=999": {"ERR!", true},
		"nvml:" + gpu.Failure{Function: "nvmlDeviceGetHandleByIndex", Code: 8}.String(): {"power cables", false},
		"nvml:" + gpu.Failure{Function: "nvmlDeviceGetHandleByIndex", Code: 4}.String(): {"as root", false},
	} {
		if got := Remedy(reason, "GPU-1", ""); !strings.Contains(got, tc.want) || strings.Contains(got, "--gpu-reset") != tc.reset {
			t.Errorf("%s: %q, want %q, a reset: %v", reason, got, tc.want, tc.reset)
		}
	}
	for want, h := range map[string]gpu.Hidden{
		"as root":        {Code: 4},
		"PCIe seating":   {Code: 15, Lost: true},
		"power cables":   {Code: 8},
		"hung processes": {Why: gpu.Silent},
		"card checked":   {Code: 999},
	} {
		if got := RemedyHidden(h); !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", h, got, want)
		}
	}
}

// The log suggests commands for faults that doctor cannot show: faults that take a while to
// appear, and faults that appear while tasks run. Once the GPU is healthy, the log stops
// suggesting them.
func TestLogNamesTheRemedy(t *testing.T) {
	var log testlog.Buffer
	p := New(Options{Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
	p.cfg.StateDir = "/srv/state"
	says := func(want string) {
		t.Helper()
		if text := log.String(); !strings.Contains(text, want) {
			t.Errorf("want %q: %s", want, text)
		}
		log = testlog.Buffer{}
	}
	d, well := gpu.Device{ID: "GPU-1"}, verdict{healthy: true}
	for reason, want := range map[string]string{
		degradedThermal: "have its cooling checked", degradedBrake: "have the machine's power supplies checked", degradedWrong: "take the GPU out and have it tested",
		degradedSlow: "nomad job run jobspecs/measure.nomad.hcl",
	} {
		is := verdict{healthy: true, degraded: []string{reason}}
		p.logVerdict(d, nil, is)
		says(want)
		p.logVerdict(d, map[string]verdict{d.ID: is}, well)
		if text := log.String(); text != "" {
			t.Errorf("%s is over: %s", reason, text)
		}
	}
	is := verdict{reason: reasonMPS}
	p.logVerdict(d, nil, is)
	says("systemctl status nvidia-mps")
	p.logVerdict(d, map[string]verdict{d.ID: is}, well)
	says("GPU is healthy again")
}
