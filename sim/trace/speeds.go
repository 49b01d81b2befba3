// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// parseSpeeds reads speeds in the form of the hint pal_speed.
func parseSpeeds(cell string) (pal.Speeds, error) {
	said, err := pal.ParseSpeeds(cell)
	if err != nil {
		return nil, err
	}
	return pal.SpeedsOf(said), nil
}

// OnModels returns the trace for a cluster of these GPU models (vendor/type/name). The keys of its
// speeds are these names, and the work is the time on the fastest of these models. Jobs with speeds
// on none of these models are left out. A job with a speed on only one of them loses its speeds, as
// in the placer.
func (t Trace) OnModels(models []string) Trace {
	t.Jobs = slices.Clone(t.Jobs)
	t.Jobs = slices.DeleteFunc(t.Jobs, func(j Job) bool {
		if j.Speeds == nil || len(j.onModels(models)) > 0 {
			return false
		}
		t.Skip("runs on none of the cluster's GPU models", j)
		return true
	})
	for i := range t.Jobs {
		j := &t.Jobs[i]
		if j.Speeds == nil {
			continue
		}
		rates := j.onModels(models)
		best := slices.Max(slices.Collect(maps.Values(rates)))
		j.IterTimeS, j.EstimateS, j.Speeds = j.IterTimeS/best, j.EstimateS/best, nil
		if len(rates) > 1 {
			j.Speeds = pal.SpeedsOf(rates)
		}
	}
	t.drop()
	return t
}

// onModels returns the job's known speeds on the given models.
func (j Job) onModels(models []string) map[string]float64 {
	rates := map[string]float64{}
	for _, model := range models {
		if s, ok := j.Speeds[ModelName(model)]; ok {
			rates[model] = s
		}
	}
	return rates
}

// ModelName is the name of a device without vendor and type.
func ModelName(model string) string {
	parts := strings.SplitN(model, "/", 3)
	return parts[len(parts)-1]
}

// WithSpeeds returns the trace with speeds from apps, and the number of jobs that got speeds. A
// job's application has the job's name, or the part of this name before "×". Jobs that already have
// speeds keep them.
func (t Trace) WithSpeeds(apps []App) (Trace, int) {
	byName, have := map[string]pal.Speeds{}, 0
	for _, a := range apps {
		byName[a.Name] = a.Speeds
	}
	t.Jobs = slices.Clone(t.Jobs)
	for i := range t.Jobs {
		j := &t.Jobs[i]
		if j.Speeds == nil {
			app, _, _ := strings.Cut(j.Name, "×")
			j.Speeds = byName[app]
		}
		if j.Speeds != nil {
			have++
		}
	}
	return t, have
}

// App is an application, with its speeds by GPU model, without vendor and type.
type App struct {
	Name   string
	Class  pal.AppClass
	Speeds pal.Speeds
}

// ReadSpeeds reads how fast applications run. The table has the columns model, gpu_model and rate
// (work per second, in any unit). Or the table is Sia's, with the columns gpu_type, model,
// local_batch and step_s. In Sia's table, the largest batch that ran on all kinds of GPU counts.
// ReadSpeeds returns the GPU models in order of appearance, and the applications by name.
func ReadSpeeds(path string) (models []string, apps []App, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("open speeds: %w", err)
	}
	defer f.Close()
	models, rates, err := readRates(path, f)
	if err != nil {
		return nil, nil, err
	}
	for _, app := range slices.Sorted(maps.Keys(rates)) {
		largest := 0
		for batch, by := range rates[app] {
			if batch == 0 || len(by) == len(models) {
				largest = max(largest, batch)
			}
		}
		if by := rates[app][largest]; len(by) > 0 {
			apps = append(apps, App{Name: app, Class: pal.AppClasses()[len(apps)%pal.NumClasses], Speeds: pal.SpeedsOf(by)})
		}
	}
	if len(apps) == 0 {
		return nil, nil, fmt.Errorf("%s: no application has speeds", path)
	}
	return models, apps, nil
}

// readRates reads the work per second by application, batch (0 if the table has none) and GPU
// model.
func readRates(path string, f io.Reader) (models []string, rates map[string]map[int]map[string]float64, err error) {
	of := map[string]map[int]map[string]float64{}
	read := func(get func(string) string) error {
		app, model, batch := get("model"), cmp.Or(get("gpu_model"), get("gpu_type")), 0
		rate, err := strconv.ParseFloat(cmp.Or(get("rate"), get("step_s")), 64)
		if err == nil && get("step_s") != "" {
			if batch, err = strconv.Atoi(get("local_batch")); err == nil && rate > 0 {
				rate = 1 / rate
			}
		}
		switch {
		case err != nil:
			return err
		case app == "" || model == "":
			return errors.New("the row names no application (model), or no GPU model")
		case !(rate > 0):
			return errors.New("the rate or step time must be positive")
		}
		if !slices.Contains(models, model) {
			models = append(models, model)
		}
		if of[app] == nil {
			of[app] = map[int]map[string]float64{}
		}
		if of[app][batch] == nil {
			of[app][batch] = map[string]float64{}
		}
		of[app][batch][model] = rate
		return nil
	}
	if err := eachOf(path, f, [][]string{{"model", "gpu_model", "rate"}, {"gpu_type", "model", "local_batch", "step_s"}}, read); err != nil {
		return nil, nil, err
	}
	return models, of, nil
}

// eachOf reads the rows of a table. The table must have one of the given sets of columns.
func eachOf(path string, f io.Reader, sets [][]string, read func(get func(column string) string) error) error {
	in, err := text(f)
	if err != nil {
		return fmt.Errorf("read %q: %w", path, err)
	}
	rs, err := openRows(path, in, func([]string) []string { return nil })
	if err != nil {
		return err
	}
	lacks := func(set []string) bool {
		return slices.ContainsFunc(set, func(c string) bool { return !slices.Contains(rs.header, c) })
	}
	if !slices.ContainsFunc(sets, func(set []string) bool { return !lacks(set) }) {
		var want []string
		for _, set := range sets {
			want = append(want, strings.Join(set, ","))
		}
		return fmt.Errorf("%s:%d: its columns are %s, and not %s", path, max(1, rs.line), strings.Join(rs.header, ","), strings.Join(want, " or "))
	}
	return rs.each(func(cells []string) error {
		return read(func(column string) string {
			if i := slices.Index(rs.header, column); i >= 0 {
				return cells[i]
			}
			return ""
		})
	})
}

// gavelRates is the file with the rates that Gavel measured.
const gavelRates = "throughputs.csv"

// gavelGPUs is the largest number of GPUs of one node on which Gavel measured a job.
const gavelGPUs = 8

// rates has the steps per second of a job on n GPUs (see [ofGPUs]) of each model.
type rates map[string]map[string]float64

// ofGPUs is the key in rates of a job on n GPUs.
func ofGPUs(job string, gpus int) string { return fmt.Sprintf("%s×%d", job, gpus) }

// ratesBeside reads the rates for a trace of Gavel on GPUs of one node, from the trace's
// directory.
func ratesBeside(list string) (rates, error) {
	f, err := beside(list, gavelRates)
	if err != nil {
		return nil, fmt.Errorf("%s:1: the list gives steps, so the duration of a step is needed from %s in the same folder: %w", list, gavelRates, err)
	}
	defer f.Close()
	all := rates{}
	err = eachOf(gavelRates, f, [][]string{{"gpu", "consolidated", "job", "gpus", "steps_per_s"}}, func(get func(string) string) error {
		if get("consolidated") != "yes" {
			return nil
		}
		gpus, err := strconv.Atoi(get("gpus"))
		if err != nil {
			return fmt.Errorf("column gpus: %w", err)
		}
		rate, err := strconv.ParseFloat(get("steps_per_s"), 64)
		if err != nil {
			return fmt.Errorf("column steps_per_s: %w", err)
		}
		key := ofGPUs(get("job"), gpus)
		if all[key] == nil {
			all[key] = map[string]float64{}
		}
		all[key][strings.ToUpper(get("gpu"))] = rate
		return nil
	})
	return all, err
}

// fill computes the speeds and the work of a job, from the rates for its number of GPUs or, if they
// are missing, for the next lower number.
func (all rates) fill(r *row) error {
	app, gpus := r.Name, int(r.gpus.v)
	for n := gpus; n > 0; n-- {
		of := pal.SpeedsOf(all[ofGPUs(app, n)])
		if len(of) == 0 {
			continue
		}
		best := 0.0
		for _, rate := range all[ofGPUs(app, n)] {
			best = max(best, rate)
		}
		r.Speeds, r.Name, r.Class = of, ofGPUs(app, gpus), GavelClass(app)
		r.lasted.set(r.steps * (1 / best))
		r.each.set(float64(min(gpus, gavelGPUs)))
		return nil
	}
	return fmt.Errorf("%s has no rate of %s on %d GPUs or fewer", gavelRates, app, gpus)
}

// GavelClass is the class of one of Gavel's jobs. The classes have ResNet-50 in A and the
// Transformer in B. Of all such divisions, this one explains Gavel's pairs on a V100 best (make
// sim-neighbours).
func GavelClass(name string) pal.AppClass {
	app, _, _ := strings.Cut(name, "/")
	others := map[string]pal.AppClass{"resnet-50": pal.ClassA, "recommendation": pal.ClassC, "resnet-18": pal.ClassD}
	return cmp.Or(others[app], pal.ClassB)
}
