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

// retries makes plain Nomad replace, without delay, ranks that gave up. Nomad itself waits at least
// 5 s, which is many minutes in the trace. retries requests an evaluation as soon as Nomad knows
// that a rank has ended. An evaluation costs Nomad time, so one evaluation of a job serves all its
// ended ranks.
type retries struct {
	ended int             // number of ended ranks at the last look
	until time.Time       // time until which to look for these ranks' allocations
	asked map[string]bool // allocations for which an evaluation was requested
}

// retryFor is the longest time that a client takes to report that a rank has ended.
const retryFor = 3 * time.Second

// push evaluates the jobs whose ranks have just ended.
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
			return fmt.Errorf("evaluating %q again: %w", job, err)
		}
	}
	return ctx.Err()
}

// jobs returns, sorted, the jobs with newly failed allocations that Nomad has not replaced.
func (rs *retries) jobs(ctx context.Context, nomad *api.Client) ([]string, error) {
	failed, _, err := nomad.Allocations().List((&api.QueryOptions{Filter: `ClientStatus == "failed" and NextAllocation == ""`}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("listing the ranks that gave up: %w", err)
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
