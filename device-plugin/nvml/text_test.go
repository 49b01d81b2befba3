// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

func TestCountThatCannotBe(t *testing.T) {
	for _, count := range []int{-1, 1 << 31, 1<<32 - 1} {
		b, s := mocked(t)
		s.DeviceGetCountFunc = func() (int, nvml.Return) { return count, nvml.SUCCESS }
		_, err := b.Scan()
		if u := (*gpu.Unavailable)(nil); !errors.As(err, &u) {
			t.Errorf("%d GPUs: error %v, want one that says so", count, err)
		}
	}
}

func TestIDs(t *testing.T) {
	for id, want := range map[string]bool{
		"GPU-00000000-0000-0000-0000-000000000000": true, "MIG-GPU-00000000-0000-0000-0000-000000000000/7/0": true,
		"": false, "GPU-\xff": false, "GPU-\xc3\xa9": false, "GPU-1,GPU-2": false, "GPU 1": false, "GPU-\x00": false,
	} {
		if isID(id) != want {
			t.Errorf("isID(%q) is %v", id, !want)
		}
	}
}
