// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import "time"

// Handover is how a gang came by its GPUs.
type Handover struct {
	// After says that another gang had them when it was submitted.
	After bool
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
		out = append(out, Handover{free.After(j.SubmittedAt), placed.Sub(free), j.StartedAt.Sub(placed)})
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

// choosy is how many times the median a gang must have taken until it was placed
// to have waited for other gangs, or for better GPUs, by choice.
const choosy = 5

// starting is what the simulator knows about starting a gang: how long each took
// that found its GPUs free and did not wait by choice, in seconds.
func (r *Result) starting() []float64 {
	hs := r.Handovers()
	most := choosy * decided(hs, false)
	var out []float64
	for _, h := range hs {
		if !h.After && h.Decided.Seconds() <= most {
			out = append(out, (h.Decided + h.Started).Seconds())
		}
	}
	return out
}

// ending is what the simulator knows about a gang's end, in seconds: how much
// longer it took to place gangs on GPUs that another one had. That one's ranks have
// ended, but Nomad's clients report in batches, five a second, and GPUs of a gang
// come free together.
func (r *Result) ending() float64 {
	hs := r.Handovers()
	return max(0, decided(hs, true)-decided(hs, false))
}

// decided is the median time in which those were placed whose GPUs another gang
// had, or those that found them free; 0 for none.
func decided(hs []Handover, after bool) float64 {
	var ds []float64
	for _, h := range hs {
		if h.After == after {
			ds = append(ds, h.Decided.Seconds())
		}
	}
	return Median(ds)
}
