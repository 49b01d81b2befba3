// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package workload has workloads that the product does not read or generate itself: those of the PAL
// artifact, and generated ones for clusters of several GPU models.
package workload

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// siaColumns are the columns of the PAL artifact's workloads. The column duration is a number of
// iterations.
var siaColumns = []string{"job_id", "num_gpus", "submit_time", "duration", "model"}

// IsSia reports whether a table with these columns is a workload of the PAL artifact.
func IsSia(header []string) bool { return slices.Equal(header, siaColumns) }

// ReadSia reads a workload of the PAL artifact. Each row is one job, in order of submission. Each
// error names the file and line.
func ReadSia(path string) (trace.Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return trace.Trace{}, fmt.Errorf("opening workload: %w", err)
	}
	defer f.Close()
	t := trace.Trace{Name: path}
	rows := csv.NewReader(f)
	header, err := rows.Read()
	if err == nil && !IsSia(header) {
		err = fmt.Errorf("the columns are %v; want %v", header, siaColumns)
	}
	if err != nil {
		return t, fmt.Errorf("%s:1: %w", path, err)
	}
	models := map[string]trace.Model{}
	for _, m := range trace.SiaModels() {
		models[m.Name] = m
	}
	for {
		row, err := rows.Read()
		if err == io.EOF {
			return t, nil
		}
		if err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
		line, _ := rows.FieldPos(0)
		if err := addSia(&t, row, models, line); err != nil {
			return t, fmt.Errorf("%s:%d: %w", path, line, err)
		}
	}
}

func addSia(t *trace.Trace, row []string, models map[string]trace.Model, line int) error {
	gpus, err1 := strconv.Atoi(row[1])
	submit, err2 := strconv.ParseFloat(row[2], 64)
	iterations, err3 := strconv.ParseFloat(row[3], 64)
	m, known := models[row[4]]
	switch err := errors.Join(err1, err2, err3); {
	case err != nil:
		return err
	case gpus < 1 || !(submit >= 0) || !(iterations >= 0) || math.IsInf(submit+iterations, 1):
		return fmt.Errorf("%v has no GPU, or a time that is not a number", row)
	case !known:
		return fmt.Errorf("model %q is unknown", row[4])
	case len(t.Jobs) > 0 && submit < t.Jobs[len(t.Jobs)-1].SubmitS:
		return errors.New("the job was submitted before the job on the line above")
	}
	t.Jobs = append(t.Jobs, trace.Job{ID: row[0], Line: line, Name: m.Name, Class: m.Class, GPUs: gpus, SubmitS: submit,
		Iterations: iterations, IterTimeS: m.IterTimeS, Priority: 50})
	return nil
}
