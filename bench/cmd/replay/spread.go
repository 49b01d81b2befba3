// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

// spread breaks JSON text into lines: what lies at most so deep has a line of
// its own, what lies deeper follows on the same one.
func spread(text []byte, depth int) []byte {
	out := make([]byte, 0, len(text)+len(text)/16)
	level, quoted, escaped := 0, false, false
	newLine := func() {
		out = append(out, '\n')
		for range level {
			out = append(out, ' ')
		}
	}
	for _, c := range text {
		switch {
		case quoted:
			quoted = escaped || c != '"'
			escaped = !escaped && c == '\\'
			out = append(out, c)
		case c == '{' || c == '[':
			level++
			out = append(out, c)
			if level <= depth {
				newLine()
			}
		case c == '}' || c == ']':
			level--
			if level < depth {
				newLine()
			}
			out = append(out, c)
		default:
			quoted = c == '"'
			out = append(out, c)
			if c == ',' && level <= depth {
				newLine()
			}
		}
	}
	return append(out, '\n')
}
