// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nvml reads GPUs through NVIDIA's management library (NVML), loaded at run
// time. Built without cgo it returns an error that says so.
package nvml

import "cmp"

// Options of the backend.
type Options struct {
	Library string // path or name of libnvidia-ml.so.1
	GPM     bool   // take profiling metrics where the GPU has them
	// Root is the directory that has /proc and /sys; "" is "/".
	Root string
}

func (o Options) root() string { return cmp.Or(o.Root, "/") }
