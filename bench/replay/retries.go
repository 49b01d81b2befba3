// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/rank"
)

// retries makes plain Nomad place again what gave up. Nomad waits at least 5 s
// before it does, which in compressed time would be many minutes; so it is asked
// to do it at once, as soon as it knows that a rank has ended, and once for all
// ranks of a job that it knows of by then: each time costs it an evaluation.
type retries struct {
	ended int             // ranks, when last looked at
	until time.Time       // look for their allocations until then
	asked map[string]bool // allocations
}

// retryFor is how long a client takes at most to report that a rank has ended.
const retryFor = 3 * time.Second

// push evaluates the jobs whose ranks ended a short time ago.
func (rs *retries) push(ctx context.Context, nomad *api.Client, now time.Time, states []rank.State) error {
	ended, unfinished := 0, map[string]bool{}
	for _, s := range states {
		ended += s.Ended
		unfinished[s.Job] = !s.Finished
	}
	if ended > rs.ended {
		rs.ended, rs.until = ended, now.Add(retryFor)
	}
	if !now.Before(rs.until) {
		return nil
	}
	jobs, err := rs.jobs(ctx, nomad)
	if err != nil && ctx.Err() == nil {
		return err
	}
	for _, job := range jobs {
		if !unfinished[job] {
			continue
		}
		_, _, err := nomad.Jobs().EvaluateWithOpts(job, api.EvalOptions{ForceReschedule: true}, (&api.WriteOptions{}).WithContext(ctx))
		if err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "404") {
			return fmt.Errorf("have %q placed again: %w", job, err)
		}
	}
	return ctx.Err()
}

// jobs are those of allocations that have failed, were not replaced, and were not
// seen before; in order.
func (rs *retries) jobs(ctx context.Context, nomad *api.Client) ([]string, error) {
	failed, _, err := nomad.Allocations().List((&api.QueryOptions{Filter: `ClientStatus == "failed" and NextAllocation == ""`}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("look for ranks that gave up: %w", err)
	}
	if rs.asked == nil {
		rs.asked = map[string]bool{}
	}
	var jobs []string
	for _, a := range failed {
		if !rs.asked[a.ID] {
			rs.asked[a.ID] = true
			jobs = append(jobs, a.JobID)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs), nil
}
