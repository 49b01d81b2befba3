// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nvml reads GPUs through NVIDIA's management library (NVML), which it loads at run time.
// In a build without cgo, scans return an error.
//
// Every change must keep these rules. A call can hang with the driver, so scans read each GPU in
// its own goroutine, and no call is made while mu is held. Calling a function that the loaded
// library lacks ends the process, so check first, as value and answer do.
package nvml

import "cmp"

// Options of the backend.
type Options struct {
	Library string // path or name of libnvidia-ml.so.1
	// Root is the directory with proc and sys; "" means "/".
	Root string
}

func (o Options) root() string { return cmp.Or(o.Root, "/") }
