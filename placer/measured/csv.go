// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measured

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Row is one measured time, with its place in the file.
type Row struct {
	profile.Sample
	// At is "file:line", or as much of this as is known.
	At string
}

const (
	columnGPU   = "gpu"
	columnApp   = "app"
	columnTime  = "time"
	columnModel = "model"
	columnKey   = "key"
	columnNoise = "noise"
	columnRate  = "rate"
)

func columns() []string {
	return []string{columnGPU, columnApp, columnTime, columnModel, columnKey, columnNoise, columnRate}
}

// ReadCSV reads a table with a header line. name is the file's name for error messages. model is the
// model of rows without one. If it is "", the caller must add the model.
func ReadCSV(name string, r io.Reader, model string) ([]Row, error) {
	in := csv.NewReader(r)
	in.TrimLeadingSpace = true
	in.Comment = '#'
	head, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:1: the file is empty", name)
	}
	if err != nil {
		return nil, csvError(name, err)
	}
	at, err := readHead(head)
	if err != nil {
		return nil, fmt.Errorf("%s:1: %w", name, err)
	}
	var rows []Row
	for {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, csvError(name, err)
		}
		line, _ := in.FieldPos(0)
		where := fmt.Sprintf("%s:%d", name, line)
		cell := func(column string) string {
			if i, ok := at[column]; ok {
				return strings.TrimSpace(cells[i])
			}
			return ""
		}
		s := profile.Sample{GPU: cell(columnGPU), App: pal.AppClass(cell(columnApp)), Model: cell(columnModel), Key: cell(columnKey)}
		s.Time, err = number(columnTime, cell(columnTime))
		text := cell(columnNoise)
		if err == nil && text != "" {
			s.Noise, err = number(columnNoise, text)
		}
		text = cell(columnRate)
		if err == nil && text != "" {
			s.Rate, err = number(columnRate, text)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		row, err := rowOf(where, s, model)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: the file contains no measurements", name)
	}
	return rows, nil
}

// csvError adds the file and the line to the parser's error.
func csvError(name string, err error) error {
	if p, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("%s:%d: %w", name, p.Line, p.Err)
	}
	return fmt.Errorf("reading %q: %w", name, err)
}

// readHead returns the position of each column, from the header line.
func readHead(head []string) (map[string]int, error) {
	at := map[string]int{}
	for i, h := range head {
		h = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(h, "\ufeff")))
		if !slices.Contains(columns(), h) {
			return nil, fmt.Errorf("column %q is unknown; the columns are %s", h, strings.Join(columns(), ", "))
		}
		_, twice := at[h]
		if twice {
			return nil, fmt.Errorf("column %q occurs twice", h)
		}
		at[h] = i
	}
	for _, need := range []string{columnGPU, columnApp, columnTime} {
		if _, ok := at[need]; !ok {
			return nil, fmt.Errorf("the header has no column %q (gpu, app and time are needed)", need)
		}
	}
	return at, nil
}

func number(column, text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a number", column, text)
	}
	return x, nil
}

func (r Row) check() error {
	switch {
	case r.GPU == "":
		return fmt.Errorf("no GPU id")
	case strings.ContainsAny(r.GPU, " ;=,"):
		return fmt.Errorf("GPU id %q contains a space, ',', ';' or '='", r.GPU)
	case strings.HasPrefix(r.GPU, "#"):
		return fmt.Errorf("GPU id %q begins with '#', as a comment does", r.GPU)
	case r.App == "":
		return fmt.Errorf("no application")
	case strings.ContainsAny(string(r.App), " ;=,"):
		return fmt.Errorf("application %q contains a space, ',', ';' or '='", r.App)
	case strings.ContainsAny(r.Key, " ;="):
		return fmt.Errorf("key %q contains a space, ';' or '='", r.Key)
	case !(r.Time > 0) || math.IsInf(r.Time, 0):
		return fmt.Errorf("time %v is not a positive number", r.Time)
	case !(r.Noise >= 0) || math.IsInf(r.Noise, 0):
		return fmt.Errorf("noise %v is neither 0 nor a positive number", r.Noise)
	case !(r.Rate >= 0) || math.IsInf(r.Rate, 0):
		return fmt.Errorf("rate %v is neither 0 nor a positive number", r.Rate)
	}
	for _, text := range []string{r.GPU, string(r.App), r.Model, r.Key} {
		if strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text) {
			return fmt.Errorf("%q contains characters that cannot be printed", text)
		}
	}
	return nil
}

// WriteCSV writes samples in the form that [ReadCSV] reads. WriteCSV writes a column of rates if at
// least one sample has a rate.
func WriteCSV(w io.Writer, samples []profile.Sample) error {
	out, head := csv.NewWriter(w), columns()
	if !slices.ContainsFunc(samples, func(s profile.Sample) bool { return s.Rate != 0 }) {
		head = slices.DeleteFunc(head, func(c string) bool { return c == columnRate })
	}
	if err := out.Write(head); err != nil {
		return err
	}
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for _, s := range samples {
		rate := ""
		if s.Rate != 0 {
			rate = number(s.Rate)
		}
		cells := []string{s.GPU, string(s.App), number(s.Time), s.Model, s.Key, number(s.Noise), rate}
		if err := out.Write(cells[:len(head)]); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
