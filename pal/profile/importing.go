// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// MeasurementFormat names the report that nomad-device-pal measure writes.
const MeasurementFormat = "nomad-pal/measurement/1"

// Import says how measurements from elsewhere are to be read.
type Import struct {
	// Model and App fill in for rows without their own.
	Model string
	App   pal.AppClass
	// Models gives the model of GPUs that are known, by id. Where it is not nil,
	// any other GPU is an error.
	Models map[string]string
}

// Read reads measurements: JSON where the data begins with '{' or '[', else
// CSV. name stands for the data in errors, which give the line or the entry.
//
// CSV has a header with the columns gpu (or uuid), time (or perf), and
// optionally app (or class), model, key and noise, in any order; others are
// ignored. JSON is the report of nomad-device-pal measure, or a list of
// objects with the same names. Class names may be in either case. Several rows
// of a GPU for one application are repetitions.
func (im Import) Read(name string, data []byte) ([]Sample, error) {
	trimmed := bytes.TrimSpace(data)
	var out []Sample
	var err error
	switch {
	case len(trimmed) > 0 && trimmed[0] == '{':
		out, err = im.report(trimmed)
	case len(trimmed) > 0 && trimmed[0] == '[':
		out, err = im.list(trimmed)
	default:
		out, err = im.csv(bytes.NewReader(data))
	}
	if err != nil {
		return nil, fmt.Errorf("measurements %q: %w", name, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("measurements %q: there are none in it", name)
	}
	return out, nil
}

// complete fills in what a sample lacks, and checks it.
func (im Import) complete(s Sample) (Sample, error) {
	if model, ok := im.Models[s.GPU]; ok {
		if s.Model != "" && s.Model != model {
			return s, fmt.Errorf("GPU %q is a %q here, but is known as a %q", s.GPU, s.Model, model)
		}
		s.Model = model
	} else if im.Models != nil {
		return s, fmt.Errorf("GPU %q is unknown", s.GPU)
	}
	if s.Model == "" {
		s.Model = im.Model
	}
	if s.App == "" {
		s.App = im.App
	}
	if c, err := pal.ParseAppClass(string(s.App)); err == nil {
		s.App = c
	}
	if err := s.check(); err != nil {
		return s, fmt.Errorf("GPU %q, application %q: %w", s.GPU, s.App, err)
	}
	return s, nil
}

func (im Import) csv(r io.Reader) ([]Sample, error) {
	c := csv.NewReader(r)
	c.TrimLeadingSpace = true
	header, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	column := columns(header)
	if column["gpu"] < 0 || column["time"] < 0 {
		return nil, fmt.Errorf("line 1: the header %q has no columns gpu and time", strings.Join(header, ","))
	}
	var out []Sample
	for {
		rec, err := c.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		s, err := im.row(rec, column)
		if err != nil {
			line, _ := c.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		out = append(out, s)
	}
}

// columns finds the columns by name, −1 for one that is not there.
func columns(header []string) map[string]int {
	at := map[string]int{}
	for _, names := range [][]string{{"gpu", "uuid"}, {"time", "perf"}, {"app", "class"}, {"model"}, {"key"}, {"noise"}} {
		at[names[0]] = -1
		for i, h := range header {
			h = strings.ToLower(strings.TrimSpace(h))
			for _, n := range names {
				if h == n && at[names[0]] < 0 {
					at[names[0]] = i
				}
			}
		}
	}
	return at
}

func (im Import) row(rec []string, column map[string]int) (Sample, error) {
	field := func(name string) string {
		if i := column[name]; i >= 0 {
			return strings.TrimSpace(rec[i])
		}
		return ""
	}
	s := Sample{GPU: field("gpu"), Model: field("model"), Key: field("key"), App: pal.AppClass(field("app"))}
	var err error
	if s.Time, err = strconv.ParseFloat(field("time"), 64); err != nil {
		return s, fmt.Errorf("time %q is not a number", field("time"))
	}
	if text := field("noise"); text != "" {
		if s.Noise, err = strconv.ParseFloat(text, 64); err != nil {
			return s, fmt.Errorf("noise %q is not a number", text)
		}
	}
	return im.complete(s)
}

// list reads a JSON list of samples.
func (im Import) list(data []byte) ([]Sample, error) {
	var rows []struct {
		GPU   string  `json:"gpu"`
		Model string  `json:"model"`
		Key   string  `json:"key"`
		App   string  `json:"app"`
		Time  float64 `json:"time"`
		Noise float64 `json:"noise"`
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, err
	}
	var out []Sample
	for i, r := range rows {
		s, err := im.complete(Sample{GPU: r.GPU, Model: r.Model, Key: r.Key, App: pal.AppClass(r.App), Time: r.Time, Noise: r.Noise})
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// report reads what nomad-device-pal measure wrote. Classes that a partial
// result holds are good.
func (im Import) report(data []byte) ([]Sample, error) {
	var r struct {
		Format  string `json:"format"`
		Results []struct {
			GPU   string `json:"gpu"`
			Model string `json:"model"`
			Key   string `json:"key"`
			Apps  []struct {
				App string  `json:"app"`
				Ms  float64 `json:"ms"`
				CI  float64 `json:"ci"`
			} `json:"apps"`
		} `json:"results"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Format != MeasurementFormat {
		return nil, fmt.Errorf("format is %q, want %q", r.Format, MeasurementFormat)
	}
	var out []Sample
	for i, res := range r.Results {
		for _, a := range res.Apps {
			s, err := im.complete(Sample{GPU: res.GPU, Model: res.Model, Key: res.Key, App: pal.AppClass(a.App),
				Time: a.Ms, Noise: a.CI / 1.96}) // CI is 1.96 standard errors
			if err != nil {
				return nil, fmt.Errorf("result %d: %w", i+1, err)
			}
			out = append(out, s)
		}
	}
	return out, nil
}
