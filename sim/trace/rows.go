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
	first := ""
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
		if first != "" && !strings.HasPrefix(first, "#") {
			break
		}
		_, _ = b.Discard(len(line) + map[bool]int{true: 1}[ended])
		rs.line++
	}
	rs.comma = separator(first)
	rs.next = rs.reader(b)
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

// reader reads rows whose values can be in quotes. In what sacct writes, a quote in a job's name is
// part of the name.
func (rs *rows) reader(b *bufio.Reader) func() ([]string, error) {
	c := csv.NewReader(b)
	c.Comma, c.Comment = rune(rs.comma), '#'
	c.FieldsPerRecord = -1
	c.ReuseRecord, c.LazyQuotes = true, rs.comma == '|'
	c.TrimLeadingSpace = rs.comma != '\t' // otherwise, empty values would be missing
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
			i := slices.Index(rs.header, "")
			if i >= 0 && row[i] != "" {
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
