// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// headBytes is the number of bytes of a file that are read ahead to find its format.
const headBytes = 1 << 16

// text returns the content of the file, decompressed if necessary, as UTF-8 without a byte order
// mark.
func text(r io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(r, headBytes)
	head, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	is := func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) }
	switch {
	case is("\ufeff"): // byte order mark, which spreadsheets write
		_, err = b.Discard(len("\ufeff"))
		return b, err
	case is("\x1f\x8b"):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		return text(z)
	case is("\xff\xfe"), is("\xfe\xff"):
		return nil, errors.New("the file is UTF-16; save it as UTF-8")
	case is("PK\x03\x04"):
		return nil, errors.New("the file is a spreadsheet or a zip archive; save the table as CSV")
	case is("\x28\xb5\x2f\xfd"), is("\xfd7zX"), is("BZh"):
		return nil, errors.New("the file is compressed, but not with gzip; decompress it, or compress it with gzip")
	}
	return b, nil
}

// rows reads the rows of a table, and counts the lines.
type rows struct {
	name   string
	header []string // as in the file
	line   int      // line of the last row that was read
	comma  byte     // separator of values
	next   func() ([]string, error)
}

// openRows reads the lines before the rows.
func openRows(name string, b *bufio.Reader) (*rows, error) {
	rs := &rows{name: name}
	comma, first := byte(0), ""
	for {
		head, err := b.Peek(headBytes)
		if len(head) == 0 {
			if err == io.EOF {
				err = errors.New("the file is empty")
			}
			return nil, fmt.Errorf("%s:%d: %w", name, rs.line+1, err)
		}
		line, _, ended := strings.Cut(string(head), "\n")
		first = strings.TrimSpace(line)
		if sep, ok := strings.CutPrefix(first, "sep="); ok && len(sep) == 1 { // Excel writes this line
			comma = sep[0]
		} else if !idle(first) {
			break
		}
		_, _ = b.Discard(len(line) + map[bool]int{true: 1}[ended])
		rs.line++
	}
	if comma == 0 {
		comma = separator(first)
	}
	rs.comma, rs.next = comma, rs.quoted(b, comma)
	if (comma == '|' || comma == '\t') && !strings.HasPrefix(first, `"`) {
		rs.next = rs.plain(b, comma)
	}
	row, err := rs.next()
	if err != nil {
		return nil, fmt.Errorf("%s:%d: read header: %w", name, rs.line, err)
	}
	rs.header = slices.Clone(row)
	for i := range rs.header {
		rs.header[i] = strings.TrimSpace(rs.header[i])
	}
	return rs, nil
}

// idle reports whether a line is empty or a comment.
func idle(line string) bool { return line == "" || strings.HasPrefix(line, "#") }

// separator is the most frequent separator in the first line, outside quotes.
func separator(first string) byte {
	counts, quoted := map[byte]int{}, false
	for i := range len(first) {
		if first[i] == '"' {
			quoted = !quoted
		}
		if !quoted {
			counts[first[i]]++
		}
	}
	best := byte(',')
	for _, c := range []byte(";\t|") {
		if counts[c] > counts[best] {
			best = c
		}
	}
	return best
}

func split(line string, comma byte) []string {
	parts := strings.Split(line, string(comma))
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// quoted reads rows whose values can be in quotes.
func (rs *rows) quoted(b *bufio.Reader, comma byte) func() ([]string, error) {
	c := csv.NewReader(b)
	c.Comma, c.Comment, c.FieldsPerRecord = rune(comma), '#', -1
	c.ReuseRecord, c.TrimLeadingSpace = true, true
	before := rs.line
	return func() ([]string, error) {
		row, err := c.Read()
		var broken *csv.ParseError
		if errors.As(err, &broken) {
			rs.line = before + broken.Line
			return nil, broken.Err
		}
		if err == nil {
			at, _ := c.FieldPos(0)
			rs.line = before + at
		}
		return row, err
	}
}

// plain reads rows as sacct writes them: a quote in a job's name is part of the name. Excel can put
// whole values in quotes, so plain removes the quotes around a value.
func (rs *rows) plain(b *bufio.Reader, comma byte) func() ([]string, error) {
	return func() ([]string, error) {
		for {
			line, err := b.ReadString('\n')
			if line == "" {
				return nil, err
			}
			rs.line++
			if idle(strings.TrimSpace(line)) {
				continue
			}
			row := split(strings.TrimRight(line, "\r\n"), comma)
			for i, v := range row {
				if len(v) > 1 && v[0] == '"' && v[len(v)-1] == '"' {
					row[i] = strings.ReplaceAll(v[1:len(v)-1], `""`, `"`)
				}
			}
			return row, nil
		}
	}
}

// nameless returns the index of the first value in a column without a name, or -1.
func (rs *rows) nameless(row []string) int {
	for i, name := range rs.header {
		if name == "" && row[i] != "" {
			return i
		}
	}
	return -1
}

// each reads all rows until one is invalid, but skips rows without values and repeated headers.
func (rs *rows) each(do func(row []string) error) error {
	for {
		row, err := rs.next()
		if err == io.EOF {
			return nil
		}
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		switch {
		case err != nil:
		case slices.Equal(row, rs.header), !slices.ContainsFunc(row, func(v string) bool { return v != "" }):
			continue
		case len(row) != len(rs.header):
			err = fmt.Errorf("the row has %d fields, but the header has %d; is the line cut off, or does a value contain the separator %q? "+
				"Leave that column out, or choose another separator", len(row), len(rs.header), rs.comma)
		default:
			if i := rs.nameless(row); i >= 0 {
				err = fmt.Errorf("value %d (%q) has no column in the header", i+1, row[i])
				break
			}
			err = do(row)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", rs.name, rs.line, err)
		}
	}
}
