// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// enoughRuns is how many runs of a job's name on a GPU model are enough to determine the job's
// speed on this model. The speed from fewer runs is combined with other estimates.
const enoughRuns = 3

// speeds returns how fast a job runs on each GPU model that it may use, and the source of each
// speed: runs of the job's name, its author, or the measured rates of its class. speeds returns nil
// if fewer than two speeds are known, because there is nothing to compare. speeds includes the
// models of nodes that are away, so that speeds stay the same when nodes go and come back.
func (v *View) speeds(job *api.Job, r *Request, models []string) (pal.Speeds, map[string]string, error) {
	rates, from, err := v.toldSpeeds(r, models)
	if err != nil {
		return nil, nil, err
	}
	digits := 3
	if len(models) > 1 && v.opts.Runs != nil {
		runs := maps.Clone(v.opts.Runs(job, r.Full().GPUs()).ByModel)
		maps.DeleteFunc(runs, func(m string, _ queue.ModelRuns) bool { return !slices.Contains(models, m) })
		rates = pooled(rates, from, runs)
		if len(rates) > 1 && len(runs) > 1 {
			digits = 2
		}
	}
	if len(rates) < 2 {
		return nil, nil, nil
	}
	maps.DeleteFunc(from, func(m string, _ string) bool { _, known := rates[m]; return !known })
	return rounded(pal.SpeedsOf(rates), digits), from, nil
}

// toldSpeeds returns the author's speeds or, if there are none, the measured rates of the job's
// class, and the source of each.
func (v *View) toldSpeeds(r *Request, models []string) (rates map[string]float64, from map[string]string, err error) {
	rates, from = map[string]float64{}, map[string]string{}
	said := rewrite.Speeds(r.Hints.Speed)
	if len(said) > 0 {
		if rates, err = v.saidSpeeds(said, models); err != nil {
			return nil, nil, err
		}
		for model := range rates {
			from[model] = "pal_speed"
		}
		return rates, from, nil
	}
	for _, s := range v.ModelSpeeds() {
		if s.Class == r.Gang.Class && slices.Contains(models, s.Device) {
			rates[s.Device] = s.Rate
			from[s.Device] = fmt.Sprintf("class %s, measured on %s", s.Class, pal.CountGPUs(s.GPUs))
		}
	}
	return rates, from, nil
}

// saidSpeeds returns the author's speeds for the models that the job may use.
func (v *View) saidSpeeds(said map[string]float64, models []string) (map[string]float64, error) {
	rates, known := map[string]float64{}, v.modelsByName()
	here := false
	for name, speed := range said {
		here = here || known[name] != nil
		for _, model := range known[name] {
			if slices.Contains(models, model) {
				rates[model] = speed
			}
		}
	}
	if !here && len(known) > 0 {
		return nil, fmt.Errorf("meta pal_speed contains no GPU model of this cluster; the cluster has %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	return rates, nil
}

// modelsByName maps the last part of a GPU model's name, which authors write, to the cluster's
// models.
func (v *View) modelsByName() map[string][]string {
	if v.models == nil {
		v.models = map[string][]string{}
		for i, d := range v.Devices {
			_, model := v.Cluster.Group(i)
			if !slices.Contains(v.models[d.Name], model) {
				v.models[d.Name] = append(v.models[d.Name], model)
			}
		}
	}
	return v.models
}

// pooled combines the rates that follow from runs with the told rates. pooled first scales the told
// rates to the rates of the runs, by the geometric mean over the models that have both. If no model
// has both, pooled drops the told rates. A model with fewer than [enoughRuns] runs gets a weighted
// mean of its two rates, or no rate if it has no told rate. pooled updates the sources of the
// speeds, in from. pooled returns told if there are runs on only one model, because there is
// nothing to compare.
func pooled(told map[string]float64, from map[string]string, runs map[string]queue.ModelRuns) map[string]float64 {
	if len(runs) < 2 {
		return told
	}
	sum, weight := 0.0, 0.0
	for _, model := range slices.Sorted(maps.Keys(runs)) { // the order decides how a sum of floats is rounded
		if rate, ok := told[model]; ok {
			n := float64(min(runs[model].Runs, enoughRuns))
			sum, weight = sum-n*math.Log(rate*runs[model].Time.Seconds()), weight+n
		}
	}
	scale := 1.0
	if weight > 0 {
		scale = math.Exp(sum / weight)
	}
	rates := map[string]float64{}
	for model, rate := range told {
		if weight > 0 {
			rates[model] = rate * scale
		}
	}
	for model, r := range runs {
		n, of := min(r.Runs, enoughRuns), reason.Counted(r.Runs, "run", "runs")
		by, told := 1/r.Time.Seconds(), rates[model]
		switch {
		case n == enoughRuns:
			rates[model], from[model] = by, of
		case told > 0:
			share := float64(n) / enoughRuns
			rates[model], from[model] = math.Pow(by, share)*math.Pow(told, 1-share), of+", and "+from[model]
		}
	}
	if len(rates) < 2 {
		return told
	}
	return rates
}

// rounded rounds each speed in s to the given number of significant digits, and returns s. Without
// rounding, decisions could change because medians change slightly with each measurement and run.
func rounded(s pal.Speeds, digits int) pal.Speeds {
	for model, v := range s {
		scale := math.Pow(10, float64(digits-1)-math.Floor(math.Log10(v)))
		s[model] = math.Round(v*scale) / scale
	}
	return s
}

// modelsOf returns the GPU models that could serve all of the requests, in the cluster's order of
// models.
func modelsOf(asks []eligibility) (models []string) {
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

// namesOf returns the distinct models of the device groups for which could is true.
func (v *View) namesOf(could []bool) (models []string) {
	for i, may := range could {
		_, model := v.Cluster.Group(i)
		if may && !slices.Contains(models, model) {
			models = append(models, model)
		}
	}
	return models
}
