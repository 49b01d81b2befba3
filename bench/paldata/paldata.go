// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package paldata reads the measurements and traces of the PAL artifact from a directory that the
// user names (PAL_DATA), for benches and studies. The product includes tables that were computed from
// the measurements: see sim/population.
package paldata

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nomad-pal/nomad-pal/sim/population"
)

// Env is the environment variable that names the directory.
const Env = "PAL_DATA"

// Dir is the directory that the environment variable names; "" if the variable is not set.
func Dir() string { return os.Getenv(Env) }

// Series identifies one measured series.
type Series struct{ Cluster, App, File string }

// AllSeries are the measured series, each with its file in the directory.
func AllSeries() []Series {
	return []Series{
		{"longhorn", "resnet50", "var_longhorn_resnet.csv"},
		{"longhorn", "bert", "var_longhorn_bert.csv"},
		{"longhorn", "pagerank", "var_longhorn_pagerank.csv"},
		{"frontera", "resnet50", "var_frontera_resnet.csv"},
		{"frontera", "bert", "var_frontera_bert.csv"},
		{"frontera", "pagerank", "var_frontera_pagerank.csv"},
		{"lonestar6", "resnet50", "var_ls6_resnet.csv"},
	}
}

// Row is one run on a GPU. Time is in the unit of the source; larger is slower. Norm, if the file
// has it, is the time divided by the median of all rows, as the artifact computes it.
type Row struct {
	GPU        string
	Time, Norm float64
}

// ReadVariability reads a file of runs: CSV with the columns uuid and perf, and optionally
// perf_norm, in any order. Each error names the file and line.
func ReadVariability(path string) ([]Row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading measurements: %w", err)
	}
	defer f.Close()
	rows, err := parseVariability(f)
	if err != nil {
		return nil, fmt.Errorf("reading measurements %q: %w", path, err)
	}
	return rows, nil
}

func parseVariability(r io.Reader) ([]Row, error) {
	c := csv.NewReader(r)
	header, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	column := map[string]int{}
	for i, name := range header {
		column[name] = i
	}
	uuid, ok := column["uuid"]
	perf, ok2 := column["perf"]
	if !ok || !ok2 {
		return nil, fmt.Errorf("line 1: the header %q lacks uuid or perf", header)
	}
	norm, hasNorm := column["perf_norm"]
	var rows []Row
	for {
		rec, err := c.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := c.FieldPos(0)
		row := Row{GPU: rec[uuid]}
		if row.Time, err = number(rec[perf]); err != nil {
			return nil, fmt.Errorf("line %d: perf: %w", line, err)
		}
		if hasNorm {
			if row.Norm, err = number(rec[norm]); err != nil {
				return nil, fmt.Errorf("line %d: perf_norm: %w", line, err)
			}
		}
		rows = append(rows, row)
	}
}

func number(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x > 0) {
		return 0, fmt.Errorf("%q is not a positive number", s)
	}
	return x, nil
}

// Tables reads all measured series of the directory as full tables. [population.Draw] can use these
// tables instead of the product's own tables.
func Tables(dir string) ([]population.Table, error) {
	var tables []population.Table
	for _, s := range AllSeries() {
		rows, err := ReadVariability(filepath.Join(dir, s.File))
		if err != nil {
			return nil, err
		}
		runs := make([]run, len(rows))
		for i, r := range rows {
			runs[i] = run{r.GPU, r.Time}
		}
		t, err := newTable(s.Cluster, s.App, runs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.File, err)
		}
		tables = append(tables, t)
	}
	return tables, nil
}
