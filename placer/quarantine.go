// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Quarantine keeps a GPU out of new placements for a while.
type Quarantine struct {
	Until   time.Time `json:"until"`
	Strikes int       `json:"strikes"`
	Last    time.Time `json:"last"`
	Reason  string    `json:"reason"`
	// Lifted is when an operator last gave the GPU free: what failed on it before
	// is not held against it any more.
	Lifted time.Time `json:"lifted,omitzero"`
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

// suspect gives strikes for a failure: to the GPUs that were unhealthy or that a
// driver named, and to one on which many jobs fail "by themselves", or cannot be
// started. A node that went down, a download or a hook that failed is no fault of
// its GPUs.
//
// succeeded is when an allocation last did its work, by GPU.
func (h *history) suspect(f Failure, succeeded map[string]time.Time, now time.Time) {
	for _, id := range f.Sick {
		h.strike(id, f.Reason, now)
	}
	if !f.unclear() {
		return
	}
	for _, id := range f.GPUs {
		if n := h.jobsFailedOn(id, later(succeeded[id], h.quarantine[id].Lifted), now); n >= suspectJobs {
			h.strike(id, fmt.Sprintf("%d different jobs in a row failed on it", n), now)
		}
	}
}

// unclear says whether the job's own fault, as it seems, may be that of its GPUs.
func (f *Failure) unclear() bool { return f.Cause == User || f.Driver }

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

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// jobsFailedOn counts the jobs that failed on the GPU since a time, that of the
// last that did not, say, and not clearly by another's fault.
func (h *history) jobsFailedOn(gpu string, since, now time.Time) int {
	jobs := map[nomad.JobKey]bool{}
	for _, f := range h.failures {
		if !f.unclear() || now.Sub(f.At) > suspectWindow || f.At.Before(since) {
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

// LiftQuarantine ends the quarantine of GPUs, of all where none are named, and
// returns them by id. A GPU that is not in quarantine is an error, and nothing
// is lifted then. Agents at work take notice within quarantineReread.
func LiftQuarantine(ctx context.Context, c *nomad.Client, gpus ...string) ([]string, error) {
	for range writeTries {
		h, now := history{}, time.Now()
		if err := h.read(ctx, c, now); err != nil {
			return nil, err
		}
		lifted, err := h.lift(gpus, now)
		if err != nil || len(lifted) == 0 {
			return nil, err
		}
		if err = h.writeQuarantine(ctx, c); !errors.Is(err, nomad.ErrChanged) {
			return lifted, err
		}
	}
	return nil, fmt.Errorf("lifting quarantine: %w", nomad.ErrChanged)
}

func (h *history) lift(gpus []string, now time.Time) ([]string, error) {
	in := quarantined(h.quarantine, now)
	if len(gpus) == 0 {
		gpus = slices.Collect(maps.Keys(in))
	}
	gpus = slices.Compact(slices.Sorted(slices.Values(gpus)))
	for _, id := range gpus {
		if !in[id] {
			return nil, fmt.Errorf("GPU %q is not in quarantine", id)
		}
	}
	for _, id := range gpus {
		h.quarantine[id] = Quarantine{Lifted: now.UTC()}
	}
	return gpus, nil
}
