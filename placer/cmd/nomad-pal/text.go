// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// Layout of text. On a terminal, tables are at most as wide as the terminal, sentences have at most
// 80 columns, and some words are coloured. Other output has no colours and no wrapped lines, so that
// grep and scripts match whole lines.

// columns is the width of a terminal that reports none. It is also the maximum width of sentences,
// because people cannot read longer lines easily, and the minimum width for which tables are laid
// out, because narrower columns break most words.
const columns = 80

// terminalWidth returns the number of columns of the terminal; 0 if the output is no terminal.
func (b *base) terminalWidth() int {
	if !b.io.terminal {
		return 0
	}
	if f := terminalOf(b.raw()); f != nil {
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
func (b *base) width() int {
	if w := b.terminalWidth(); w > 0 {
		return max(w, columns)
	}
	return 0
}

// sentenceWidth returns the maximum length of a line with sentences; 0 means no limit.
func (b *base) sentenceWidth() int { return min(b.terminalWidth(), columns) }

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

// colored reports whether to use colours. A terminal gets colours unless NO_COLOR
// is set, or TERM is "dumb".
func (b *base) colored() bool {
	return b.io.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

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

// textWidth returns how many columns text occupies. Some characters occupy two columns, such as
// Chinese ones, and some occupy none, such as combining accents.
func textWidth(text string) int {
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r < utf8.RuneSelf:
		return 1
	case strings.ContainsRune(styles, r), unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut divides a word that is wider than width. The first part is at most width columns wide. If not
// even one character is that narrow, the first part has one character.
func cut(word string, width int) (first, rest string) {
	for at, r := range word {
		w := runeWidth(r)
		width -= w
		if width < 0 && w > 0 && at > 0 {
			return word[:at], word[at:]
		}
	}
	return word, ""
}

// wrapped breaks text into lines of at most width columns, between words if possible. A word that is
// longer than a line is broken after a slash, hyphen or underscore if possible, because names of
// jobs consist of such parts. A width of 0 means no limit.
func wrapped(text string, width int) []string {
	if width <= 0 || textWidth(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		for textWidth(word) > width { // too long for any line
			if line != "" {
				lines, line = append(lines, line), ""
			}
			first, rest := cut(word, width)
			if at := 1 + strings.LastIndexAny(first, "/-_"); at > 0 {
				first, rest = word[:at], word[at:]
			}
			lines, word = append(lines, first), rest
		}
		switch {
		case word == "": // its last character was wider than a line
		case line == "":
			line = word
		case textWidth(line)+1+textWidth(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	if line == "" && len(lines) > 0 {
		return lines
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
func (b *base) say(s style, text string) { b.sayAfter("", s, text) }

// sayAfter prints a paragraph after a mark, such as "- ", and indents the other lines by the mark's
// width.
func (b *base) sayAfter(mark string, s style, text string) {
	room := 0
	if w := b.sentenceWidth(); w > 0 {
		room = w - textWidth(mark)
	}
	for _, line := range wrapped(quoted(text, ""), room) {
		if s != plain {
			line = paint(s, line)
		}
		b.write(mark + line + "\n")
		mark = strings.Repeat(" ", textWidth(mark))
	}
}

func (b *base) head(text string) {
	b.write("\n")
	b.say(bold, text)
}

// write prints quoted text, and replaces its styles with escape sequences.
func (b *base) write(text string) {
	if q, ok := b.io.out.(*quoting); ok {
		q.styled, q.colored = true, b.colored()
		defer func() { q.styled = false }()
	} else {
		text = escaped(text, false)
	}
	fmt.Fprint(b.io.out, text)
}

// table prints a table from rows that [row] made. The first row is the header.
func (b *base) table(rows []string) { layOut(b, rows, "  ") }

// section prints a heading and a table, or nothing if the table has only a header.
func (b *base) section(head string, rows []string) {
	if len(rows) > 1 {
		b.head(head)
		b.table(rows)
	}
}

// pairs prints rows of a key and a value, with "=" between them.
func (b *base) pairs(rows []string) { layOut(b, rows, " = ") }

// leastColumn is the minimum width to which squeeze narrows a column. leastProse is the minimum
// width of a column with sentences.
const (
	leastColumn = 8
	leastProse  = 40
)

// tableWithProse prints a table whose last column contains sentences. If this column would be
// squeezed below leastProse, each sentence gets lines of its own below its row.
func (b *base) tableWithProse(rows []string) {
	const glue = "  "
	cells, widths, words := cellsOf(rows)
	last := len(widths) - 1
	whole := widths[last]
	squeeze(b, widths, words, len(glue))
	if last == 0 || widths[last] >= min(whole, leastProse) {
		b.write(laidOut(cells, widths, glue))
		return
	}
	var short []string
	for _, r := range rows {
		short = append(short, r[:strings.LastIndex(r, separator)])
	}
	shortCells, widths, words := cellsOf(short)
	squeeze(b, widths, words, len(glue))
	const indent = "    "
	for i, cs := range shortCells {
		b.write(laidOut([][]string{cs}, widths, glue))
		if prose := cells[i][last]; i > 0 && prose != "-" {
			for _, line := range wrapped(prose, b.sentenceWidth()-len(indent)) {
				b.write(indent + line + "\n")
			}
		}
	}
}

// roomFor reports whether a table with sentences in its last column fits the terminal without
// breaking words of up to longestWord columns.
func (b *base) roomFor(rows []string) bool {
	_, widths, words := cellsOf(rows)
	sum := 0
	for i := range len(widths) - 1 { // the sentences of the last column can get lines of their own
		sum += min(widths[i], max(min(words[i], longestWord), leastColumn)) + len("  ")
	}
	return b.width() == 0 || sum <= b.width()
}

// longestWord is the width of the longest word that a table should not break. Most names of jobs are
// shorter.
const longestWord = 24

func layOut(b *base, rows []string, glue string) {
	cells, widths, words := cellsOf(rows)
	squeeze(b, widths, words, len(glue))
	b.write(laidOut(cells, widths, glue))
}

// cellsOf returns the cells of rows and, for each column, the width of its widest cell and of its
// longest word.
func cellsOf(rows []string) (cells [][]string, widths, words []int) {
	for _, r := range rows {
		cs := strings.Split(r, separator)
		for i, c := range cs {
			cs[i] = cmp.Or(c, "-")
			if i == len(widths) {
				widths, words = append(widths, 0), append(words, 0)
			}
			widths[i] = max(widths[i], textWidth(cs[i]))
			for word := range strings.FieldsSeq(cs[i]) {
				words[i] = max(words[i], textWidth(word))
			}
		}
		cells = append(cells, cs)
	}
	return cells, widths, words
}

// laidOut returns rows of cells as lines, and wraps each cell to the width of its column.
func laidOut(cells [][]string, widths []int, glue string) string {
	var out strings.Builder
	for _, cs := range cells {
		lines := make([][]string, len(cs))
		high := 1
		for i, c := range cs {
			lines[i] = wrapped(c, widths[i])
			high = max(high, len(lines[i]))
		}
		for n := range high {
			var line strings.Builder
			for i := range cs {
				text := ""
				if n < len(lines[i]) {
					text = lines[i][n]
				}
				if i > 0 && n > 0 {
					line.WriteString(strings.Repeat(" ", len(glue)))
				} else if i > 0 {
					line.WriteString(glue)
				}
				line.WriteString(text)
				line.WriteString(strings.Repeat(" ", max(0, widths[i]-textWidth(text))))
			}
			out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
	return out.String()
}

// squeeze narrows columns, always the widest, until a line fits the terminal. While some columns
// can be narrowed without breaking a word, squeeze narrows only these.
func squeeze(b *base, widths, words []int, glue int) {
	room := b.width()
	if room == 0 {
		return
	}
	for {
		sum := glue * (len(widths) - 1)
		widest, narrows := 0, -1
		for i, w := range widths {
			sum += w
			if w > widths[widest] {
				widest = i
			}
			if w > max(words[i], leastColumn) && (narrows < 0 || w > widths[narrows]) {
				narrows = i
			}
		}
		if narrows < 0 {
			narrows = widest
		}
		if sum <= room || widths[narrows] <= leastColumn {
			return
		}
		widths[narrows]--
	}
}
