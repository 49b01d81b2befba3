// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"strings"
	"unicode"
)

// Printable replaces what is no text, or what a terminal would obey, in words
// that come from elsewhere.
func Printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c == unicode.ReplacementChar || !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, s)
}
