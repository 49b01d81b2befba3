// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// table reads CSV rows by column name and knows the line it is on.
type table struct {
	name string
	csv  *csv.Reader
	col  map[string]int
	row  []string
	line int
	err  error // the first thing that is wrong with the row; what is read after it means nothing
}

// openTable takes the column names from the first line, or from header if the
// file has none of its own.
func openTable(name string, r io.Reader, header []string, required ...string) (*table, error) {
	b := bufio.NewReaderSize(r, headBytes)
	t := &table{name: name, csv: csv.NewReader(b), col: map[string]int{}}
	t.csv.ReuseRecord, t.csv.TrimLeadingSpace = true, true
	if first := firstLine(b); strings.Contains(first, ";") && !strings.Contains(first, ",") {
		t.csv.Comma = ';' // as spreadsheets write it where a comma is part of numbers
	}
	if header == nil {
		row, err := t.csv.Read()
		if err != nil {
			return nil, fmt.Errorf("%s:1: read header: %w", name, err)
		}
		header = append([]string(nil), row...)
	}
	for i, h := range header {
		t.col[strings.ToLower(strings.TrimSpace(h))] = i
	}
	for _, c := range required {
		if _, ok := t.col[c]; !ok {
			return nil, fmt.Errorf("%s:1: column %q is missing", name, c)
		}
	}
	return t, nil
}

// each reads all rows, until one is wrong.
func (t *table) each(row func(*table)) error {
	for {
		rec, err := t.csv.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		t.row = rec
		t.line, _ = t.csv.FieldPos(0)
		if row(t); t.err != nil {
			return t.err
		}
	}
}

// has says whether the table has the column.
func (t *table) has(col string) bool {
	_, ok := t.col[col]
	return ok
}

// text is the value of a column, "" where the table has none.
func (t *table) text(col string) string {
	i, ok := t.col[col]
	if !ok || i >= len(t.row) {
		return ""
	}
	return strings.TrimSpace(t.row[i])
}

func (t *table) float(col string) float64 {
	v, err := strconv.ParseFloat(t.text(col), 64)
	if err != nil {
		t.fail("column %q: %q is not a number", col, t.text(col))
	} else if err := number(v, 0); err != nil {
		t.fail("column %q: %w", col, err)
	}
	return v
}

// int reads a whole number; "8.0" is one too, as tools that know no missing
// integers write it.
func (t *table) int(col string, low int) int {
	v, err := strconv.Atoi(strings.TrimSuffix(t.text(col), ".0"))
	if err != nil {
		t.fail("column %q: %q is not a whole number", col, t.text(col))
	} else if v < low {
		t.fail("column %q: %d is less than %d", col, v, low)
	}
	return v
}

// timeS reads a time as seconds.
func (t *table) timeS(col string) float64 {
	s, ok := timeS(t.text(col))
	if !ok {
		t.fail("column %q: %q is not a time such as 2020-04-01 00:04:03", col, t.text(col))
	}
	return s
}

// timeS reads "2006-01-02 15:04:05", with or without an offset from UTC
// ("+08:00", as the Acme traces write it), or with a T for the space, as seconds.
func timeS(text string) (s float64, ok bool) {
	for _, layout := range []string{time.DateTime, time.DateTime + "Z07:00", time.RFC3339} {
		if v, err := time.Parse(layout, text); err == nil {
			return float64(v.Unix()), true
		}
	}
	return 0, false
}

// headBytes are looked at to tell the formats apart.
const headBytes = 1 << 16

// firstLine is the first line of what b reads, as far as it is looked at; nothing is consumed.
func firstLine(b *bufio.Reader) string {
	head, _ := b.Peek(4096) // an error shows up again when it is read
	line, _, _ := strings.Cut(string(head), "\n")
	return strings.TrimSpace(line)
}

// fail keeps what is wrong with the row, if it is the first thing.
func (t *table) fail(format string, args ...any) {
	if t.err == nil {
		t.err = fmt.Errorf("%s:%d: %w", t.name, t.line, fmt.Errorf(format, args...))
	}
}
