// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"strings"
	"unicode"
)

// A driver can return any text, for example for a card with a broken InfoROM. Text that is not
// UTF-8 cannot be sent to Nomad, which would conclude that the plugin has crashed.

// Limits on the number of GPUs of a machine and of MIG instances of a GPU.
const (
	mostGPUs      = 1024
	mostInstances = 64
)

// isID reports whether an answer can be the id of a device. An id contains no comma, because lists
// of ids are joined by commas.
func isID(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == ',' || c >= unicode.MaxASCII })
}
