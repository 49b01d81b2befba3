// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Names of jobs, groups and nodes, and messages of tasks and drivers, are text that others wrote.
// Nomad accepts escape sequences, control characters and bidirectional overrides in names and
// messages. A terminal obeys these characters: they could hide a row of a table, forge one, or do
// worse. Therefore, all output of the commands and the agent's log goes through [quoting], and each
// table cell also through [row].

// quoted returns text in which invisible and control characters, except those in keep, are escaped
// as in JSON.
func quoted(text, keep string) string {
	if strings.IndexFunc(text, func(r rune) bool { return hidden(r, keep) }) < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !hidden(r, keep):
			b.WriteString(text[i : i+n])
		case r == '\n':
			b.WriteString(`\n`)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

// hidden reports whether a rune must be escaped, unless keep contains it: control and format
// characters (including bidi controls), line separators, and invalid UTF-8.
func hidden(r rune, keep string) bool {
	return r == utf8.RuneError || !unicode.IsGraphic(r) && !strings.ContainsRune(keep, r)
}

// quoting is a writer that escapes what must not reach a terminal.
type quoting struct {
	w io.Writer
	// rest holds the first bytes of a rune until its other bytes are written.
	rest []byte
	// failed is the first error of the underlying writer; [run] reports it once.
	failed error
	// styled reports whether the text contains styles (see [paint]). colored reports whether to
	// show styles.
	styled, colored bool
}

// Write escapes the text, except line ends and tabs. Only the commands themselves write line ends
// and tabs, because [row] escapes both in cells. JSON output stays valid, because the characters
// that Write escapes occur only in its strings.
func (q *quoting) Write(p []byte) (int, error) {
	text := append(q.rest, p...)
	end := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		b := text[len(text)-i]
		if utf8.RuneStart(b) {
			if !utf8.FullRune(text[len(text)-i:]) {
				end = len(text) - i
			}
			break
		}
	}
	q.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(q.w, q.quoted(string(text[:end]))); err != nil {
		q.failed = cmp.Or(q.failed, err)
	}
	return len(p), nil
}

func (q *quoting) quoted(text string) string {
	const keep = "\n\t"
	if !q.styled {
		return quoted(text, keep)
	}
	return escaped(quoted(text, keep+styles), q.colored)
}

// separator separates the cells of a row; [row] escapes it in cells.
const separator = "\x1f"

// longestCell is the maximum length of a cell, and longestProse of the last cell of a row, which
// often is a sentence. Nomad does not limit the length of names.
const (
	longestCell  = 300
	longestProse = 3000
)

// row joins cells into a table row.
func row(cells ...any) string {
	parts := make([]string, len(cells))
	for i, c := range cells {
		most := longestCell
		if i == len(cells)-1 {
			most = longestProse
		}
		text := fmt.Sprint(c)
		runes := []rune(text)
		if len(runes) > most {
			text = string(runes[:most-1]) + "…"
		}
		parts[i] = quoted(text, "")
		if p, ok := c.(painted); ok && p.style != plain {
			parts[i] = paint(p.style, text)
		}
	}
	return strings.Join(parts, separator)
}

// rowWith returns a variant of [row] that leaves out each column for which shown is false.
func rowWith(shown ...bool) func(cells ...any) string {
	return func(cells ...any) string {
		var kept []any
		for i, c := range cells {
			if shown[i] {
				kept = append(kept, c)
			}
		}
		return row(kept...)
	}
}

// oneLine joins the lines of a sentence.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }
