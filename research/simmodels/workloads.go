// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	mixed "github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/published"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// workload is a set of jobs with published speeds.
type workload struct {
	Name   string
	Chosen bool // rules were chosen with this workload
	models []string
	jobs   []job
}

type job struct {
	trace.Job
	speeds pal.Speeds // by model; a model is missing if the job does not run on it
}

// deviceName is the device group of a model.
func deviceName(model string) string { return "nvidia/gpu/" + model }

// read makes a workload of a trace's jobs on a cluster of these models.
func read(name string, t trace.Trace, models []string, chosen bool) workload {
	w := workload{Name: name, Chosen: chosen, models: models}
	var names []string
	for _, m := range models {
		names = append(names, deviceName(m))
	}
	for _, j := range t.OnModels(names).Jobs {
		w.jobs = append(w.jobs, job{j, j.Speeds})
	}
	return w
}

// gavel is a virtual cluster of Philly with Gavel's jobs.
func gavel(dir, vc string, chosen bool) (workload, error) {
	t, err := published.ReadFile(filepath.Join(dir, "gavel", vc+"-seed0.csv"))
	return read("Gavel "+vc, t, []string{"V100", "P100", "K80"}, chosen), err
}

const seed = 42

// workloads returns all workloads. Rules were chosen with the first two workloads.
func workloads(dir string) (all []workload, err error) {
	for i, vc := range []string{"0e4a51", "103959", "7f04ca", "ed69ec"} {
		w, err := gavel(dir, vc, i < 2)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	models, apps, err := siaSpeeds(filepath.Join(dir, "sia_gpu_types.csv"))
	if err != nil {
		return nil, err
	}
	generated := func(name string, maxGPUs int) workload {
		return read(name, mixed.Mixed(seed, trace.Shape{Jobs: 1000, MaxGPUs: maxGPUs}, models, apps), models, false)
	}
	return append(all, generated("Sia, six models", 8), generated("Sia, gangs as wide as a model", 16)), nil
}

// siaSpeeds reads Sia's table of GPU types (gpu_type, model, local_batch, step_s). For each
// application, it uses the largest batch that ran on all types. siaSpeeds returns the types in
// order of appearance, and the applications by name.
func siaSpeeds(path string) (models []string, apps []mixed.App, err error) {
	rows, err := published.Table(path)
	if err != nil {
		return nil, nil, err
	}
	rates := map[string]map[int]map[string]float64{} // by application and batch
	for i, r := range rows {
		batch, err := strconv.Atoi(r["local_batch"])
		step, err2 := strconv.ParseFloat(r["step_s"], 64)
		if err != nil || err2 != nil || !(step > 0) {
			return nil, nil, fmt.Errorf("%s:%d: batch %q or step %q is not a number", path, i+2, r["local_batch"], r["step_s"])
		}
		app, model := r["model"], r["gpu_type"]
		if !slices.Contains(models, model) {
			models = append(models, model)
		}
		if rates[app] == nil {
			rates[app] = map[int]map[string]float64{}
		}
		if rates[app][batch] == nil {
			rates[app][batch] = map[string]float64{}
		}
		rates[app][batch][model] = 1 / step
	}
	for _, app := range slices.Sorted(maps.Keys(rates)) {
		largest := 0
		for batch, by := range rates[app] {
			if len(by) == len(models) {
				largest = max(largest, batch)
			}
		}
		if by := rates[app][largest]; len(by) > 0 {
			apps = append(apps, mixed.App{Name: app, Class: pal.AppClasses()[len(apps)%pal.NumClasses], Speeds: pal.SpeedsOf(by)})
		}
	}
	return models, apps, nil
}
