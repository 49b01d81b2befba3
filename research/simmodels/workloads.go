// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// workload is jobs with the speeds that others measured of them.
type workload struct {
	Name   string
	Chosen bool // rules were chosen by it
	models []string
	jobs   []job
}

// job is a job of a workload.
type job struct {
	trace.Job
	speeds pal.Speeds // by model; a model is missing where the job does not run
}

// read reads a table by its columns.
func read(path string, columns ...string) (rows [][]string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(all) == 0 || !slices.Equal(all[0], columns) {
		return nil, fmt.Errorf("%s: its columns are not %s", path, strings.Join(columns, ","))
	}
	return all[1:], nil
}

// number reads a field of a line.
func number(path string, line int, field string) (float64, error) {
	v, err := strconv.ParseFloat(field, 64)
	if err != nil {
		return 0, fmt.Errorf("%s:%d: %w", path, line+2, err)
	}
	return v, nil
}

// deviceName is the device group of a model.
func deviceName(model string) string { return "nvidia/gpu/" + model }

const gavelGPUs = 8 // the most that Gavel measured a job on

// key is a job on so many GPUs.
func key(job string, gpus int) string { return fmt.Sprintf("%s×%d", job, gpus) }

// gavelRates are steps a second of a job, by GPUs, on GPUs of each model on one node.
func gavelRates(dir string) (map[string]map[string]float64, error) {
	path := filepath.Join(dir, "gavel", "throughputs.csv")
	rows, err := read(path, "gpu", "consolidated", "job", "gpus", "steps_per_s")
	if err != nil {
		return nil, err
	}
	rates := map[string]map[string]float64{}
	for i, r := range rows {
		if r[1] != "yes" {
			continue
		}
		v, err := number(path, i, r[4])
		if err != nil {
			return nil, err
		}
		gpus, err := strconv.Atoi(r[3])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+2, err)
		}
		key := key(r[2], gpus)
		if rates[key] == nil {
			rates[key] = map[string]float64{}
		}
		rates[key][deviceName(strings.ToUpper(r[0]))] = v
	}
	return rates, nil
}

// gavelClass is the class of Gavel's jobs.
func gavelClass(name string) pal.AppClass {
	switch {
	case strings.HasPrefix(name, "resnet"), strings.HasPrefix(name, "cyclegan"):
		return pal.ClassA
	case strings.HasPrefix(name, "transformer"), strings.HasPrefix(name, "lm"):
		return pal.ClassB
	}
	return pal.ClassD
}

// gavel is a virtual cluster of Philly with Gavel's jobs, each as fast as on as many GPUs, or, where nobody
// measured that, on the most below.
func gavel(dir, vc string, chosen bool) (workload, error) {
	w := workload{Name: "Gavel " + vc, Chosen: chosen, models: []string{"V100", "P100", "K80"}}
	rates, err := gavelRates(dir)
	if err != nil {
		return w, err
	}
	path := filepath.Join(dir, "gavel", vc+"-seed0.csv")
	rows, err := read(path, "job_id", "submit_s", "job", "gpus", "steps")
	if err != nil {
		return w, err
	}
	for i, r := range rows {
		var v [3]float64
		for k, field := range []string{r[1], r[3], r[4]} {
			if v[k], err = number(path, i, field); err != nil {
				return w, err
			}
		}
		gpus := int(v[1])
		measured := gpus
		for measured > 0 && rates[key(r[2], measured)] == nil {
			measured--
		}
		of := rates[key(r[2], measured)]
		if len(of) == 0 {
			return w, fmt.Errorf("%s:%d: nobody measured %s on %d GPUs or fewer", path, i+2, r[2], gpus)
		}
		best := 0.0
		for _, rate := range of {
			best = max(best, rate)
		}
		w.jobs = append(w.jobs, job{trace.Job{ID: r[0], Name: key(r[2], gpus), Class: gavelClass(r[2]), GPUs: gpus, MemberGPUs: min(gpus, gavelGPUs),
			SubmitS: v[0], Iterations: v[2], IterTimeS: 1 / best}, pal.SpeedsOf(of)})
	}
	return w, nil
}

// siaSpeeds are the speeds of Sia's models, each at the largest batch that all kinds of GPU ran.
func siaSpeeds(dir string) (models []string, apps map[string]pal.Speeds, err error) {
	path := filepath.Join(dir, "sia_gpu_types.csv")
	rows, err := read(path, "gpu_type", "model", "local_batch", "step_s")
	if err != nil {
		return nil, nil, err
	}
	steps := map[string]map[int]map[string]float64{}
	for i, r := range rows {
		s, err := number(path, i, r[3])
		if err != nil {
			return nil, nil, err
		}
		batch, err := strconv.Atoi(r[2])
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", path, i+2, err)
		}
		if !slices.Contains(models, r[0]) {
			models = append(models, r[0])
		}
		if steps[r[1]] == nil {
			steps[r[1]] = map[int]map[string]float64{}
		}
		if steps[r[1]][batch] == nil {
			steps[r[1]][batch] = map[string]float64{}
		}
		steps[r[1]][batch][deviceName(r[0])] = 1 / s
	}
	apps = map[string]pal.Speeds{}
	for app, of := range steps {
		largest := 0
		for batch, by := range of {
			if len(by) == len(models) {
				largest = max(largest, batch)
			}
		}
		if largest > 0 {
			apps[app] = pal.SpeedsOf(of[largest])
		}
	}
	return models, apps, nil
}

// generated are jobs of ours with given speeds by application: sizes and run times as in the Sia-Philly
// workloads. A run time is that on the mean model.
func generated(name string, seed uint64, shape trace.Shape, models []string, apps map[string]pal.Speeds) workload {
	w := workload{Name: name, models: models}
	names := make([]string, 0, len(apps))
	for app := range apps {
		names = append(names, app)
	}
	slices.Sort(names)
	rng := rand.New(rand.NewPCG(seed, 0x51a))
	for _, j := range trace.SiaPhilly(seed, shape).Jobs {
		app := rng.IntN(len(names))
		speeds, mean := apps[names[app]], 0.0
		for _, model := range models {
			mean += speeds[deviceName(model)] / float64(len(models))
		}
		j.Name, j.Class, j.MemberGPUs = key(names[app], j.GPUs), pal.AppClasses()[app%pal.NumClasses], min(j.GPUs, gavelGPUs)
		j.IterTimeS *= mean
		w.jobs = append(w.jobs, job{j, speeds})
	}
	return w
}

const seed = 42

// workloads are all. Rules were chosen by the first two.
func workloads(dir string) (all []workload, err error) {
	for i, vc := range []string{"0e4a51", "103959", "7f04ca", "ed69ec"} {
		w, err := gavel(dir, vc, i < 2)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	models, apps, err := siaSpeeds(dir)
	if err != nil {
		return nil, err
	}
	return append(all,
		generated("Sia, six models", seed, trace.Shape{Jobs: 1000, MaxGPUs: 8}, models, apps),
		generated("Sia, gangs as wide as a model", seed, trace.Shape{Jobs: 1000, MaxGPUs: 16}, models, apps)), nil
}
