// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import "time"

// Handover is how a gang came by its GPUs.
type Handover struct {
	// Decided is the time from the moment when it was submitted and its GPUs were
	// free, whichever came last, until Nomad had placed all of it; with what it
	// chose to wait for other gangs or for better GPUs.
	Decided time.Duration
	// Started is the time from then until all its ranks were there.
	Started time.Duration
}

// Handovers are those of the gangs that ran once: of those that were stopped in
// between it is not known when they got which GPUs. Results of older versions do
// not tell when a gang was placed: all of the time counts as Started then.
func (r *Result) Handovers() []Handover {
	ends := map[string][]time.Time{} // of the gangs on a GPU
	for _, j := range r.Jobs {
		for id := range j.ran() {
			ends[id] = append(ends[id], j.FinishedAt)
		}
	}
	var out []Handover
	for _, j := range r.Jobs {
		if j.Attempts != 1 {
			continue
		}
		free := j.SubmittedAt
		for id := range j.ran() {
			for _, end := range ends[id] {
				if end.After(free) && end.Before(j.StartedAt) {
					free = end
				}
			}
		}
		placed := free
		if j.PlacedAt.After(free) && j.PlacedAt.Before(j.StartedAt) {
			placed = j.PlacedAt
		}
		out = append(out, Handover{placed.Sub(free), j.StartedAt.Sub(placed)})
	}
	return out
}

// ran yields the ids of the GPUs of the last attempt.
func (j JobResult) ran() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, ids := range j.GPUIDs {
			for _, id := range ids {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// starting is what the simulator is told of starting a gang: the median until it
// is placed, most of which wait for nothing but that, and how long each took from
// then on, in seconds.
func (r *Result) starting() (decided float64, started []float64) {
	var ds []float64
	known := false
	for _, h := range r.Handovers() {
		ds, started = append(ds, h.Decided.Seconds()), append(started, h.Started.Seconds())
		known = known || h.Decided > 0
	}
	if !known && len(started) > 0 { // an older version's, with waiting in it
		m := Median(started)
		return 0, []float64{0.5 * m, m, 1.5 * m}
	}
	return Median(ds), started
}
