// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import "testing"

// A misspelled GPU gets the right spelling; another kind of device, or another vendor's GPU, is none.
func TestMeantGPU(t *testing.T) {
	for device, want := range map[string]string{
		"gpus": "nvidia/gpu", "nvida": "nvidia/gpu", "nvida/gpu": "nvidia/gpu", "amd/gpu": "", "intel/gpu": "", "nvidia/gup/T4": "nvidia/gpu/T4",
		"tesla": "nvidia/gpu", "google/tpu": "", "xilinx/fpga/u50": "",
	} {
		if got := meantGPU(device); got != want {
			t.Errorf("%q: did you mean %q, want %q", device, got, want)
		}
	}
}
