// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package published

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// gavelGPUs is the largest number of GPUs of one node on which Gavel measured a job.
const gavelGPUs = 8

// Rates has the steps per second on each GPU model, by [OfGPUs].
type Rates map[string]map[string]float64

// OfGPUs is the key in [Rates] of an application on n GPUs.
func OfGPUs(app string, gpus int) string { return fmt.Sprintf("%s×%d", app, gpus) }

// GavelRates reads throughputs.csv, with the rates that Gavel measured on GPUs of one node.
func GavelRates(dir string) (Rates, error) {
	path := filepath.Join(dir, "throughputs.csv")
	rows, err := Table(path)
	if err != nil {
		return nil, err
	}
	all := Rates{}
	for i, r := range rows {
		switch r["consolidated"] {
		case "yes":
		case "no":
			continue
		default:
			return nil, fmt.Errorf("%s:%d: column consolidated: %q is neither yes nor no", path, i+2, r["consolidated"])
		}
		gpus, err1 := strconv.Atoi(r["gpus"])
		rate, err2 := strconv.ParseFloat(r["steps_per_s"], 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+2, err)
		}
		key := OfGPUs(r["job"], gpus)
		if all[key] == nil {
			all[key] = map[string]float64{}
		}
		all[key][strings.ToUpper(r["gpu"])] = rate
	}
	return all, nil
}

// gavel reads a list of jobs (job_id, submit_s, job, gpus, steps). The time of a step on each GPU
// model is in throughputs.csv in the same folder. If the rate on a job's number of GPUs is missing,
// the rate on the next smaller number counts.
func gavel(path string) (trace.Trace, error) {
	t := trace.Trace{Name: path}
	rates, err := GavelRates(filepath.Dir(path))
	if err != nil {
		return t, err
	}
	rows, err := Table(path)
	if err != nil {
		return t, err
	}
	for i, r := range rows {
		submit, err1 := strconv.ParseFloat(r["submit_s"], 64)
		gpus, err2 := strconv.Atoi(r["gpus"])
		steps, err3 := strconv.ParseFloat(r["steps"], 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return t, fmt.Errorf("%s:%d: %w", path, i+2, err)
		}
		j := trace.Job{ID: r["job_id"], Line: i + 2, Name: OfGPUs(r["job"], gpus), Class: GavelClass(r["job"]), GPUs: gpus, MemberGPUs: min(gpus, gavelGPUs),
			SubmitS: submit, IterTimeS: 1, Priority: 50}
		for n := gpus; n > 0 && j.Speeds == nil; n-- {
			best := 0.0
			for _, rate := range rates[OfGPUs(r["job"], n)] {
				best = max(best, rate)
			}
			if best > 0 {
				j.Speeds, j.Iterations = pal.SpeedsOf(rates[OfGPUs(r["job"], n)]), steps*(1/best)
			}
		}
		if j.Speeds == nil {
			return t, fmt.Errorf("%s:%d: throughputs.csv has no rate of %s on %d GPUs or fewer", path, i+2, r["job"], gpus)
		}
		t.Jobs = append(t.Jobs, j)
	}
	t.Rebase()
	return t, nil
}

// GavelClass is the class of one of Gavel's jobs. Of all classifications with ResNet-50 in A and
// the Transformer in B, this one best explains Gavel's measured pairs on a V100
// (docs/results/README.md).
func GavelClass(name string) pal.AppClass {
	app, _, _ := strings.Cut(name, "/")
	others := map[string]pal.AppClass{"resnet-50": pal.ClassA, "recommendation": pal.ClassC, "resnet-18": pal.ClassD}
	return cmp.Or(others[app], pal.ClassB)
}
