// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// severalModels is the name for several GPU models, or for an unknown one.
const severalModels = "\x00several"

// ran returns the GPU model of all runs of a gang, or severalModels. The parameter `before` is the
// model of its earlier runs, or "" if there are none. The parameter `now` is the model of its
// current run.
func ran(before, now string) string {
	if now == "" || before != "" && before != now {
		return severalModels
	}
	return now
}

// sampleOf returns the whole run of a gang that ends now, as a sample for the history.
func (e *entry) sampleOf(now time.Duration) sample {
	s := sample{work: e.work(now), gpus: e.whole(), nth: e.nth, beside: e.company.mostly(now, e.attained(now))}
	model := ran(e.earlier.model, e.placement.Model)
	if e.state >= running && model != severalModels {
		s.model, s.time = model, s.work
		if e.placement.Speed > 0 {
			s.time = atMostLongest(float64(s.work) / e.placement.Speed)
		}
	}
	return s
}

// at returns the sample after computing its work from these speeds. If the speed on the sample's
// model is unknown, the work stays the same.
func (s sample) at(speeds pal.Speeds) sample {
	speed := speeds.On(s.model)
	if s.model != "" && speed > 0 {
		s.work = time.Duration(float64(s.time) * speed)
	}
	return s
}

// rate computes the work of all runs of a name again, because the newest gang of the name has other
// speeds.
func (fs *foresight) rate(name string, speeds pal.Speeds) {
	h := fs.runTimes[name]
	if h == nil || len(speeds) == 0 || maps.Equal(h.speeds, speeds) {
		return
	}
	h.speeds = speeds
	samples := slices.Clone(h.samples)
	for i, s := range samples {
		samples[i] = s.at(speeds)
	}
	if !slices.Equal(samples, h.samples) {
		h.set(samples)
		fs.learned[name] = struct{}{}
	}
}

// ModelRuns summarizes the runs of a name on one GPU model.
type ModelRuns struct {
	Runs int
	// Time is the median of the run times, as if each run had used the median GPUs of the model on
	// one node.
	Time time.Duration
}

// RunsByModel returns a summary of the finished runs of a name with this number of GPUs, by GPU
// model. The Queue never changes a map that it has returned.
func (fs *foresight) RunsByModel(name string, gpus int) map[string]ModelRuns {
	h := fs.runTimes[name]
	if h == nil {
		return nil
	}
	if by, ok := h.byModel[gpus]; ok {
		return by
	}
	times := map[string][]time.Duration{}
	for _, s := range h.samples {
		if s.model != "" && s.gpus == gpus {
			times[s.model] = append(times[s.model], s.time)
		}
	}
	by := map[string]ModelRuns{}
	for model, all := range times {
		slices.Sort(all)
		by[model] = ModelRuns{len(all), (all[(len(all)-1)/2] + all[len(all)/2]) / 2}
	}
	if h.byModel == nil {
		h.byModel = map[int]map[string]ModelRuns{}
	}
	h.byModel[gpus] = by
	return by
}
