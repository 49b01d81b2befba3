// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// speeds are how fast a job runs on each GPU model that it may use, and where that is known from:
// its author, else the measured rates of its class. Nothing is known, and nothing needed, unless
// two such models are known. Nodes that are away count: speeds must not change with them.
func (v *View) speeds(h rewrite.Hints, class pal.AppClass, models []string) (s pal.Speeds, from string, err error) {
	if said := rewrite.Speeds(h.Speed); len(said) > 0 {
		if s, err = v.saidSpeeds(said, models); err != nil || len(s) > 1 {
			return s, "the job says so (pal_speed)", err
		}
		return nil, "", nil
	}
	rates := map[string]float64{}
	for _, model := range models {
		if r, ok := v.Rates()[model][class]; ok {
			rates[model] = r.Rate
		}
	}
	if len(rates) < 2 {
		return nil, "", nil
	}
	return rounded(pal.SpeedsOf(rates)), fmt.Sprintf("measured rates of class %s", class), nil
}

// saidSpeeds are an author's, of the models that the job may use.
func (v *View) saidSpeeds(said map[string]float64, models []string) (pal.Speeds, error) {
	rates, known := map[string]float64{}, map[string]bool{}
	for i, d := range v.Devices {
		known[d.Name] = true
		_, model := v.Cluster.Group(i)
		if speed, ok := said[d.Name]; ok && slices.Contains(models, model) {
			rates[model] = speed
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(said)), func(name string) bool { return known[name] }) && len(known) > 0 {
		return nil, fmt.Errorf("meta pal_speed names no GPU model of this cluster; it has %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	return rounded(pal.SpeedsOf(rates)), nil
}

// rounded has three digits of each speed: medians move a little with each measurement, and nothing
// should be decided again for that.
func rounded(s pal.Speeds) pal.Speeds {
	for model, v := range s {
		scale := math.Pow(10, 2-math.Floor(math.Log10(v)))
		s[model] = math.Round(v*scale) / scale
	}
	return s
}

// modelsOf are the GPU models of the device groups that may serve all of the asks, in the order of
// the cluster.
func (v *View) modelsOf(asks []eligibility) (models []string) {
	for n, e := range asks {
		var of []string
		for _, model := range e.models {
			if n == 0 || slices.Contains(models, model) {
				of = append(of, model)
			}
		}
		models = of
	}
	return models
}

// namesOf are the models of device groups, each once.
func (v *View) namesOf(could []bool) (models []string) {
	for i, may := range could {
		if _, model := v.Cluster.Group(i); may && !slices.Contains(models, model) {
			models = append(models, model)
		}
	}
	return models
}
