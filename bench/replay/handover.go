// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import "time"

// Handover describes how a gang got its GPUs.
type Handover struct {
	// After reports whether another gang held some of the GPUs when the gang was submitted.
	After bool
	// Decided is the time until Nomad had placed the whole gang, from its submission or, if later,
	// the moment when its GPUs were free. Decided includes waits for other gangs or for better
	// GPUs.
	Decided time.Duration
	// Started is the time from the placement until all ranks ran.
	Started time.Duration
}

// Handovers returns the handovers of the gangs that ran once. For stopped and restarted gangs, the
// times at which they got their GPUs are unknown. Old result files do not record when a gang was
// placed; for these, Started is the whole time.
func (r *Result) Handovers() []Handover {
	ends := map[string][]time.Time{} // ends of the gangs on each GPU
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

// choosy times the median placement time is the wait from which a gang counts as waiting by choice:
// for other gangs or for better GPUs.
const choosy = 5

// starting returns, for the simulator, the start times in seconds of the gangs that found their
// GPUs free and did not wait by choice.
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

// ending returns, for the simulator, the extra seconds to place a gang on GPUs that another gang
// has just held. Nomad's clients report ends of allocations in batches, five a second, and the new
// gang waits for all of its GPUs.
func (r *Result) ending() float64 {
	hs := r.Handovers()
	return max(0, decided(hs, true)-decided(hs, false))
}

// decided returns the median time, in seconds, to place the gangs whose After equals after; 0
// without such gangs.
func decided(hs []Handover, after bool) float64 {
	var ds []float64
	for _, h := range hs {
		if h.After == after {
			ds = append(ds, h.Decided.Seconds())
		}
	}
	return Median(ds)
}
