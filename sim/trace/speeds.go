// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"maps"
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
		j.IterTimeS /= best
		j.EstimateS /= best
		j.Speeds = nil
		if len(rates) > 1 {
			j.Speeds = pal.SpeedsOf(rates)
		}
	}
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
