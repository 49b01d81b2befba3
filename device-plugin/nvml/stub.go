// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build !cgo || !linux

package nvml

import (
	"context"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// Backend finds no GPU in a build without NVML. Its error says why.
type Backend struct{}

// Open returns the backend.
func Open(Options) *Backend { return &Backend{} }

// Scan fails because there is no NVML.
func (*Backend) Scan() (gpu.Inventory, error) {
	return gpu.Inventory{}, &gpu.Unavailable{What: "this nomad-device-pal was built without cgo and has no NVML: use a build with CGO_ENABLED=1 on Linux"}
}

// Sample returns nothing.
func (*Backend) Sample([]string) map[string]gpu.Sample { return nil }

// Processes returns nothing.
func (*Backend) Processes([]string) map[string][]int { return nil }

// Events waits until ctx ends.
func (*Backend) Events(ctx context.Context, _ chan<- gpu.Event) { <-ctx.Done() }

// Disconnect does nothing.
func (*Backend) Disconnect() {}

// Close does nothing.
func (*Backend) Close() {}
