// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"context"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// ReadDependency reads the state of a job that must end before another job starts. had is the last
// known state. If an event has reported a change that Nomad does not show yet, ReadDependency
// returns had.
func ReadDependency(ctx context.Context, c *nomad.Client, k cluster.JobKey, had model.Dependency) (model.Dependency, error) {
	job, err := c.Job(ctx, k)
	switch {
	case err != nil, had.Outdated(job):
		return had, err
	case job == nil && !had.Ended.IsZero():
		// Nomad has forgotten the job by now.
		return model.Dependency{Ended: had.Ended}, nil
	case !cluster.NeverFinishes(job).IsZero():
		return model.Dependency{Why: cluster.NeverFinishes(job)}, nil
	case !cluster.Dead(job):
		return model.Dependency{Why: reason.Reason{Kind: reason.AheadGoesOn}}, nil
	}
	as, err := c.JobAllocs(ctx, k)
	if err != nil {
		return had, err
	}
	if at, ok := gang.FinishedWell(job, as); ok {
		return model.Dependency{Ended: at}, nil
	}
	present := func(a *cluster.Alloc) bool { return *a.Version == *job.Version }
	switch {
	case slices.ContainsFunc(as, (*cluster.Alloc).Live):
		// Nomad calls the job dead, but its tasks are still ending.
		return model.Dependency{Why: reason.Reason{Kind: reason.AheadRuns}}, nil
	case !rewrite.Stopped(job) && !slices.ContainsFunc(as, present):
		// The job looks dead because it is registered again, and not yet evaluated.
		return model.Dependency{Why: reason.Reason{Kind: reason.AheadGoesOn}}, nil
	case !rewrite.Stopped(job):
		return model.Dependency{Why: reason.Reason{Kind: reason.AheadFailed}}, nil
	}
	versions, err := c.Versions(ctx, k)
	if err != nil {
		return had, err
	}
	if at, ok := gang.FinishedEarlier(job, as, versions); ok {
		return model.Dependency{Ended: at}, nil
	}
	return model.Dependency{Why: reason.Reason{Kind: reason.AheadStopped}}, nil
}
