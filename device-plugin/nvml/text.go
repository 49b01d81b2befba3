// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"strings"
	"unicode"
)

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
