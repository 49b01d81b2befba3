// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measured

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// reportFormat identifies the device plugin's report files.
const reportFormat = profile.MeasurementFormat

// Read reads a file in any of the forms: a table, an array, a report, or a profile. A profile
// contains the times from which it was built.
func Read(name string, data []byte, d Defaults) ([]Row, error) {
	text := bytes.TrimSpace(data)
	switch {
	case bytes.HasPrefix(text, []byte("[")):
		return readArray(name, data, d)
	case bytes.HasPrefix(text, []byte("{")):
		return readObject(name, data, d)
	}
	return ReadCSV(name, bytes.NewReader(data), d)
}

// row fills the empty fields of a sample with defaults, and returns an error if the sample is
// invalid.
func (d Defaults) row(at string, s profile.Sample) (Row, error) {
	or := func(v, fallback string) string {
		return strings.TrimSpace(cmp.Or(v, fallback))
	}
	s.GPU, s.App, s.Model, s.Key = strings.TrimSpace(s.GPU), pal.AppClass(or(string(s.App), d.App)), or(s.Model, d.Model), or(s.Key, d.Key)
	row := Row{s, at}
	if err := row.check(); err != nil {
		return row, fmt.Errorf("%s: %w", at, err)
	}
	return row, nil
}

func readArray(name string, data []byte, d Defaults) ([]Row, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if _, err := dec.Token(); err != nil {
		return nil, jsonError(name, data, dec.InputOffset(), err)
	}
	var rows []Row
	for dec.More() {
		at := fmt.Sprintf("%s:%d", name, line(data, start(data, dec.InputOffset())))
		var s profile.Sample // JSON's names of fields differ only in case
		if err := dec.Decode(&s); err != nil {
			return nil, jsonError(name, data, dec.InputOffset(), err)
		}
		row, err := d.row(at, s)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	if _, err := dec.Token(); err != nil {
		return nil, jsonError(name, data, dec.InputOffset(), err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: the file contains no measurements", name)
	}
	return rows, nil
}

// report contains the parts of the device plugin's report that a calibration needs.
type report struct {
	Format  string `json:"format"`
	Results []struct {
		GPU   string `json:"gpu"`
		Model string `json:"model"`
		Key   string `json:"key"`
		Apps  []struct {
			App  pal.AppClass `json:"app"`
			Ms   float64      `json:"ms"`
			CI   float64      `json:"ci"`
			Rate float64      `json:"rate"`
			Unit string       `json:"unit"`
		} `json:"apps"`
	} `json:"results"`
}

func readObject(name string, data []byte, d Defaults) ([]Row, error) {
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, jsonError(name, data, 0, err)
	}
	switch r.Format {
	case profile.Format:
		p, err := profile.Parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return ofProfile(name, p)
	case reportFormat:
		return r.rows(name, d)
	}
	return nil, fmt.Errorf("%s: format %q is unknown: want %q, %q, a JSON array, or a table", name, r.Format, reportFormat, profile.Format)
}

func (r report) rows(name string, d Defaults) ([]Row, error) {
	var rows []Row
	for i, res := range r.Results {
		for k, a := range res.Apps {
			at := fmt.Sprintf("%s: results[%d].apps[%d]", name, i, k)
			// ci is 1.96 standard errors of the median.
			s := profile.Sample{GPU: res.GPU, Model: res.Model, Key: res.Key, App: a.App, Time: a.Ms, Noise: a.CI / 1.96}
			if a.Unit == attr.RateUnit(a.App) {
				s.Rate = a.Rate
			}
			row, err := d.row(at, s)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: the report contains no measurements", name)
	}
	return rows, nil
}

func ofProfile(name string, p *profile.Profile) ([]Row, error) {
	var rows []Row
	for _, s := range p.Samples() {
		row, err := Defaults{}.row(fmt.Sprintf("%s: gpu %q", name, s.GPU), s)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// jsonError adds the line in the file to a JSON error.
func jsonError(name string, data []byte, offset int64, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = max(offset, syntax.Offset)
	case errors.As(err, &kind):
		err = fmt.Errorf("field %q is a JSON %s, want %s", strings.ToLower(kind.Field), kind.Value, inJSON(kind.Type))
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	return fmt.Errorf("%s:%d: %s", name, line(data, int(offset)), text)
}

// inJSON returns the JSON name for values of a Go type, for error messages.
func inJSON(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number"
}

// start returns the offset at which the next value after offset starts.
func start(data []byte, offset int64) int {
	i := int(offset)
	for i < len(data) && strings.ContainsRune(" \t\r\n,", rune(data[i])) {
		i++
	}
	return i
}

func line(data []byte, offset int) int {
	return 1 + bytes.Count(data[:min(offset, len(data))], []byte("\n"))
}
