// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"strings"
	"unicode"
)

// Printable replaces invalid text and terminal control characters in strings from outside.
func Printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c == unicode.ReplacementChar || !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, s)
}
