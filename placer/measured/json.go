// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measured

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// reportFormat identifies the device plugin's report files.
const reportFormat = profile.MeasurementFormat

// Read reads a file in any of the forms: a table, an array, a report, or a profile. A profile
// contains the times from which it was built.
func Read(name string, data []byte, model string) ([]Row, error) {
	text := bytes.TrimSpace(data)
	switch {
	case bytes.HasPrefix(text, []byte("[")):
		return readArray(name, data, model)
	case bytes.HasPrefix(text, []byte("{")):
		return readObject(name, data, model)
	}
	return ReadCSV(name, bytes.NewReader(data), model)
}

// rowOf returns a row with its place, and an error if the sample is invalid.
func rowOf(at string, s profile.Sample, model string) (Row, error) {
	s.GPU, s.App = strings.TrimSpace(s.GPU), pal.AppClass(strings.TrimSpace(string(s.App)))
	s.Model, s.Key = strings.TrimSpace(cmp.Or(s.Model, model)), strings.TrimSpace(s.Key)
	row := Row{s, at}
	if err := row.check(); err != nil {
		return row, fmt.Errorf("%s: %w", at, err)
	}
	return row, nil
}

func readArray(name string, data []byte, model string) ([]Row, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var samples []profile.Sample // JSON's names of fields differ only in case
	if err := dec.Decode(&samples); err != nil {
		return nil, jsonError(name, data, dec.InputOffset(), err)
	}
	return rowsOf(name, samples, model)
}

// rowsOf returns the rows of a file that lists samples.
func rowsOf(name string, samples []profile.Sample, model string) (rows []Row, err error) {
	for i, s := range samples {
		row, err := rowOf(fmt.Sprintf("%s: measurement %d (GPU %q)", name, i+1, s.GPU), s, model)
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

func readObject(name string, data []byte, model string) ([]Row, error) {
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
		return rowsOf(name, p.Samples(), "")
	case reportFormat:
		return rowsOf(name, r.samples(), model)
	}
	return nil, fmt.Errorf("%s: format %q is unknown: want %q, %q, a JSON array, or a table", name, r.Format, reportFormat, profile.Format)
}

func (r report) samples() (samples []profile.Sample) {
	for _, res := range r.Results {
		for _, a := range res.Apps {
			// ci is 1.96 standard errors of the median.
			s := profile.Sample{GPU: res.GPU, Model: res.Model, Key: res.Key, App: a.App, Time: a.Ms, Noise: a.CI / 1.96}
			if a.Unit == attr.RateUnit(a.App) {
				s.Rate = a.Rate
			}
			samples = append(samples, s)
		}
	}
	return samples
}

// jsonError adds the line in the file to a JSON error.
func jsonError(name string, data []byte, offset int64, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = max(offset, syntax.Offset)
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = max(offset, kind.Offset)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		offset = int64(len(data))
	}
	line := 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
	return fmt.Errorf("%s:%d: %s", name, line, strings.TrimPrefix(err.Error(), "json: "))
}
