// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Quarantine keeps a GPU out of new placements for a while.
type Quarantine struct {
	Until   time.Time `json:"until"`
	Strikes int       `json:"strikes"`
	Last    time.Time `json:"last"`
	Reason  string    `json:"reason"`
}

const (
	// The first strike keeps a GPU out for quarantineBase, each further one
	// doubles that, up to quarantineMost; a quarantineMost without a strike
	// takes one off.
	quarantineBase = 10 * time.Minute
	quarantineMost = 24 * time.Hour
	// suspectJobs different jobs in a row that fail by their own fault on one GPU
	// within suspectWindow make the GPU the suspect. In a row: the best GPUs are
	// chosen most and so see most failures, but successes between them.
	suspectJobs   = 3
	suspectWindow = 24 * time.Hour
)

// suspect gives strikes for a failure: to the unhealthy GPUs of one that
// the infrastructure caused, to all its GPUs where none is, and to a GPU on which many jobs fail "by themselves".
// A node that went down, or a download that failed, is no fault of its GPUs.
//
// succeeded is when an allocation last did its work, by GPU.
func (h *history) suspect(f Failure, succeeded map[string]time.Time, now time.Time) {
	switch {
	case f.Cause == Infrastructure && !f.elsewhere:
		blamed := f.Sick
		if blamed == nil {
			blamed = f.GPUs
		}
		for _, id := range blamed {
			h.strike(id, f.Reason, now)
		}
	case f.Cause == User:
		for _, id := range f.GPUs {
			if n := h.jobsFailedOn(id, succeeded[id], now); n >= suspectJobs {
				h.strike(id, fmt.Sprintf("%d different jobs in a row failed on it", n), now)
			}
		}
	}
}

func (h *history) strike(gpu, reason string, now time.Time) {
	if h.quarantine == nil {
		h.quarantine = map[string]Quarantine{}
	}
	q := h.quarantine[gpu]
	if now.Before(q.Until) {
		return // of the same trouble: since, nothing was placed on it
	}
	if !q.Last.IsZero() {
		q.Strikes = max(0, q.Strikes-int(now.Sub(q.Last)/quarantineMost))
	}
	q.Strikes++
	q.Last, q.Reason = now.UTC(), reason
	q.Until = now.Add(min(quarantineBase<<min(q.Strikes-1, 10), quarantineMost)).UTC()
	h.quarantine[gpu] = q
}

// jobsFailedOn counts the jobs that failed by their own fault on the GPU since
// the last that did not.
func (h *history) jobsFailedOn(gpu string, succeeded, now time.Time) int {
	jobs := map[nomad.JobKey]bool{}
	for _, f := range h.failures {
		if f.Cause != User || now.Sub(f.At) > suspectWindow || f.At.Before(succeeded) {
			continue
		}
		for _, id := range f.GPUs {
			if id == gpu {
				jobs[nomad.JobKey{Namespace: f.Namespace, ID: f.Job}] = true
			}
		}
	}
	return len(jobs)
}

// quarantined are the GPUs that are kept out now.
func quarantined(qs map[string]Quarantine, now time.Time) map[string]bool {
	out := map[string]bool{}
	for id, q := range qs {
		if now.Before(q.Until) {
			out[id] = true
		}
	}
	return out
}
