// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

func TestRequestMatches(t *testing.T) {
	d := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "NVIDIA H200"}
	for request, want := range map[string]bool{
		"gpu": true, "nvidia/gpu": true, "nvidia/gpu/NVIDIA H200": true,
		"fpga": false, "amd/gpu": false, "nvidia/gpu/NVIDIA H100": false,
	} {
		if got := requestMatches(request, d); got != want {
			t.Errorf("%q: %v", request, got)
		}
	}
}
