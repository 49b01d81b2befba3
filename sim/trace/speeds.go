// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
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

// OnModels returns the trace for a cluster of these GPU models (vendor/type/name). Each job's work
// becomes the time on its fastest model in `models`. Jobs whose speeds include none of these models
// are left out. A job with a speed on only one model loses its speeds, as in the placer.
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

// WithSpeeds returns the trace with speeds by application, and the number of jobs that got speeds.
// The application of a job is the job's name. Jobs that already have speeds keep them.
func (t Trace) WithSpeeds(apps map[string]pal.Speeds) (Trace, int) {
	have := 0
	t.Jobs = slices.Clone(t.Jobs)
	for i := range t.Jobs {
		j := &t.Jobs[i]
		if j.Speeds == nil {
			j.Speeds = apps[j.Name]
		}
		if j.Speeds != nil {
			have++
		}
	}
	return t, have
}

// ReadSpeeds reads how fast applications run. The table has the columns model, gpu_model and rate
// (work per second, in any unit).
func ReadSpeeds(path string) (map[string]pal.Speeds, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening speeds: %w", err)
	}
	defer f.Close()
	in, err := text(f)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", path, err)
	}
	rs, err := openRows(path, in)
	if err != nil {
		return nil, err
	}
	at := [3]int{}
	for i, name := range []string{"model", "gpu_model", "rate"} {
		if at[i] = slices.Index(rs.header, name); at[i] < 0 {
			return nil, fmt.Errorf("%s:%d: the columns are %s; want model,gpu_model,rate", path, max(1, rs.line), strings.Join(rs.header, ","))
		}
	}
	rates := map[string]map[string]float64{}
	err = rs.each(func(cells []string) error {
		app, model := cells[at[0]], cells[at[1]]
		rate, err := number(cells[at[2]], 0)
		switch {
		case err != nil:
			return err
		case app == "" || model == "":
			return errors.New("the row has no application (model), or no GPU model")
		case rate == 0:
			return errors.New("the rate must be positive")
		}
		if rates[app] == nil {
			rates[app] = map[string]float64{}
		}
		rates[app][model] = rate
		return nil
	})
	if err == nil && len(rates) == 0 {
		err = fmt.Errorf("%s: no application has speeds", path)
	}
	apps := map[string]pal.Speeds{}
	for app, by := range rates {
		apps[app] = pal.SpeedsOf(by)
	}
	return apps, err
}
