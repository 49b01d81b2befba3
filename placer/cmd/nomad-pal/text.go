// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Layout of text. On a terminal, sentences have at most 80 columns, the last column of a table is
// wrapped, and some words are coloured. Other output has no colours and no wrapped lines, so that
// grep and scripts match whole lines.

// columns is the width of a terminal that reports none. It is also the maximum width of sentences,
// because people cannot read longer lines easily, and the minimum width for which tables are laid
// out.
const columns = 80

// terminalWidth returns the number of columns of the terminal; 0 if the output is no terminal.
func (s streams) terminalWidth() int {
	if !s.terminal {
		return 0
	}
	f := terminalOf(s.raw())
	if f != nil {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return columns
}

// terminalOf returns a reader or writer as a file if it is a terminal, otherwise nil.
func terminalOf(of any) *os.File {
	if f, ok := of.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// width returns the maximum length of a line in a table; 0 means no limit.
func (s streams) width() int {
	w := s.terminalWidth()
	if w > 0 {
		return max(w, columns)
	}
	return 0
}

// sentenceWidth returns the maximum length of a line with sentences; 0 means no limit.
func (s streams) sentenceWidth() int { return min(s.terminalWidth(), columns) }

type style rune

// The styles. A private-use rune marks where a style begins; [escaped] later replaces these runes
// with escape sequences of the terminal. No name contains a private-use rune, because [quoted]
// escapes these runes.
const (
	plain  style = '\uf000'
	bold   style = '\uf001'
	red    style = '\uf002'
	green  style = '\uf003'
	yellow style = '\uf004'
)

var escapes = map[style]string{plain: "\x1b[0m", bold: "\x1b[1m", red: "\x1b[31m", green: "\x1b[32m", yellow: "\x1b[33m"}

// styles contains all styles.
const styles = "\uf000\uf001\uf002\uf003\uf004"

// painted is a text with a style, such as a table cell.
type painted struct {
	style style
	text  string
}

func (p painted) String() string { return p.text }

// paint quotes a text, and marks it with the runes of styles.
func paint(s style, text string) string {
	return string(rune(s)) + quoted(text, "") + string(rune(plain))
}

// escaped replaces the styles in quoted text with escape sequences, or removes them if colored is
// false.
func escaped(text string, colored bool) string {
	for s, code := range escapes {
		if !colored {
			code = ""
		}
		text = strings.ReplaceAll(text, string(rune(s)), code)
	}
	return text
}

// textWidth returns how many columns text occupies, if each character occupies one.
func textWidth(text string) int {
	n := utf8.RuneCountInString(text)
	for _, r := range text {
		if strings.ContainsRune(styles, r) {
			n--
		}
	}
	return n
}

// wrapped breaks text between words into lines of at most width columns, if no word is longer. A
// width of 0 means no limit.
func wrapped(text string, width int) []string {
	if width <= 0 || textWidth(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && textWidth(line)+1+textWidth(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// each applies a function to each element of a list, and returns the results.
func each[T, U any](all []T, of func(T) U) []U {
	out := make([]U, len(all))
	for i, x := range all {
		out[i] = of(x)
	}
	return out
}

// say prints a paragraph.
func (s streams) say(look style, text string) { s.sayAfter("", look, text) }

// sayAfter prints a paragraph after a mark, such as "- ", and indents the other lines by the mark's
// width.
func (s streams) sayAfter(mark string, look style, text string) {
	room := 0
	w := s.sentenceWidth()
	if w > 0 {
		room = w - textWidth(mark)
	}
	for _, line := range wrapped(quoted(text, ""), room) {
		if look != plain {
			line = paint(look, line)
		}
		s.write(mark + line + "\n")
		mark = strings.Repeat(" ", textWidth(mark))
	}
}

func (s streams) head(text string) {
	s.write("\n")
	s.say(bold, text)
}

// write prints quoted text, and replaces its styles with escape sequences.
func (s streams) write(text string) {
	if q, ok := s.out.(*quoting); ok {
		q.styled, q.colored = true, s.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		defer func() { q.styled = false }()
	} else {
		text = escaped(text, false)
	}
	fmt.Fprint(s.out, text)
}

// table prints a table from rows that [row] made. The first row is the header.
func (s streams) table(rows []string) { s.layOut(rows, "  ") }

// section prints a heading and a table, or nothing if the table has only a header.
func (s streams) section(head string, rows []string) {
	if len(rows) > 1 {
		s.head(head)
		s.table(rows)
	}
}

// pairs prints rows of a key and a value, with "=" between them.
func (s streams) pairs(rows []string) { s.layOut(rows, " = ") }

// leastProse is the least room for the last column of a table beside the others.
const leastProse = 40

// layOut prints rows, with glue between the columns. On a terminal, it wraps the last column, which
// often contains sentences. If there is little room beside the other columns, the cells of the last
// column get lines of their own below their rows, without a header.
func (s streams) layOut(rows []string, glue string) {
	cells, widths := cellsOf(rows)
	last := len(widths) - 1
	left := len(glue) * last
	for _, w := range widths[:last] {
		left += w
	}
	indent, room := strings.Repeat(" ", left), max(0, s.width()-left)
	below := s.width() > 0 && room < min(widths[last], leastProse)
	for i, cs := range cells {
		line := ""
		for k, c := range cs[:last] {
			line += c + strings.Repeat(" ", widths[k]-textWidth(c)) + glue
		}
		lines := wrapped(cs[last], room)
		if below {
			indent, lines = "    ", append([]string{""}, wrapped(cs[last], s.sentenceWidth()-4)...)
		}
		if below && (i == 0 || cs[last] == "-") {
			lines = lines[:1]
		}
		s.write(strings.TrimRight(line+lines[0], " ") + "\n")
		for _, l := range lines[1:] {
			s.write(indent + l + "\n")
		}
	}
}

// roomFor reports whether all columns of a table but the last fit the terminal.
func (s streams) roomFor(rows []string) bool {
	_, widths := cellsOf(rows)
	sum := 0
	for _, w := range widths[:len(widths)-1] {
		sum += w + len("  ")
	}
	return s.width() == 0 || sum <= s.width()
}

// cellsOf returns the cells of rows, and the width of each column's widest cell.
func cellsOf(rows []string) (cells [][]string, widths []int) {
	for _, r := range rows {
		cs := strings.Split(r, separator)
		for i, c := range cs {
			cs[i] = cmp.Or(c, "-")
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], textWidth(cs[i]))
		}
		cells = append(cells, cs)
	}
	return cells, widths
}
