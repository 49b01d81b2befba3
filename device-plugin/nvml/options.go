// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nvml reads GPUs through NVIDIA's management library (NVML), which it loads at run time.
// In a build without cgo, scans return an error.
//
// Every change must keep these rules. A call can hang with the driver, so scans read each GPU in
// its own goroutine, and no call is made while mu is held. Calling a function that the loaded
// library lacks ends the process, so check first, as value and answer do.
package nvml

import (
	"cmp"
	"strings"
	"unicode"
)

// Options of the backend.
type Options struct {
	Library string // path or name of libnvidia-ml.so.1
	// Root is the directory with proc and sys; "" means "/".
	Root string
}

func (o Options) root() string { return cmp.Or(o.Root, "/") }

// A driver can return any text, for example if a card's InfoROM is broken. If a text is not UTF-8,
// Nomad concludes that the plugin has crashed.

// Limits on the number of GPUs per machine and of MIG instances per GPU.
const (
	mostGPUs      = 1024
	mostInstances = 64
)

// isID reports whether a driver's answer can be a device id. An id contains no comma, because
// commas separate the ids in lists.
func isID(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == ',' || c >= unicode.MaxASCII })
}
