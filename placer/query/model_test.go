// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import "testing"

func TestMeantModel(t *testing.T) {
	models := []string{"NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 80GB HBM3", "Tesla T4", "NVIDIA RTX A6000"}
	for request, want := range map[string]string{
		"nvidia/gpu/A100-SXM4-80GB":          "nvidia/gpu/NVIDIA A100-SXM4-80GB",
		"nvidia/gpu/H100":                    "nvidia/gpu/NVIDIA H100 80GB HBM3",
		"nvidia/gpu/h100":                    "nvidia/gpu/NVIDIA H100 80GB HBM3",
		"nvidia/gpu/tesla t4":                "nvidia/gpu/Tesla T4",
		"nvidia/gpu/Telsa T4":                "nvidia/gpu/Tesla T4",
		"nvidia/gpu/NVIDIA A100 SXM4 80GB":   "nvidia/gpu/NVIDIA A100-SXM4-80GB",
		"nvidia/gpu/nvidia-a100-sxm4-80gb":   "nvidia/gpu/NVIDIA A100-SXM4-80GB",
		"nvidia/gpu/NVIDIA RTX 6000":         "",
		"nvidia/gpu/NVIDIA H200 80GB HBM3":   "",
		"nvidia/gpu/NVIDIA A100-SXM4-40GB":   "",
		"nvidia/gpu/Tesla T4":                "", // it is already the name of a device
		"nvidia/gpu/NVIDIA GeForce RTX 4090": "",
	} {
		if got := meantModel(request, models); got != want {
			t.Errorf("%s is taken for %q, want %q", request, got, want)
		}
	}
}
