// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rpc

import (
	"context"
	"fmt"

	"github.com/hashicorp/nomad/api"
)

type planJob struct {
	Job map[string]any
	request
}

// refusal is as much of Nomad's metrics of a group as explains why it is not
// placed.
type refusal struct {
	NodesEvaluated, NodesFiltered, NodesExhausted int
	ConstraintFiltered, DimensionExhausted        map[string]int
}

// Plan asks Nomad's scheduler whether all of the job could be placed. Over HTTP
// a dispatched job would be taken for the parameterized one, of which nothing is
// ever placed.
func (s *Servers) Plan(ctx context.Context, job *api.Job) (*api.JobPlanResponse, error) {
	failed, err := s.plan(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("planning job %q: %w", *job.ID, err)
	}
	resp := &api.JobPlanResponse{FailedTGAllocs: map[string]*api.AllocationMetric{}}
	for group, r := range failed {
		resp.FailedTGAllocs[group] = &api.AllocationMetric{
			NodesEvaluated: r.NodesEvaluated, NodesFiltered: r.NodesFiltered, NodesExhausted: r.NodesExhausted,
			ConstraintFiltered: r.ConstraintFiltered, DimensionExhausted: r.DimensionExhausted,
		}
	}
	return resp, nil
}

func (s *Servers) plan(ctx context.Context, job *api.Job) (map[string]refusal, error) {
	c, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	full, err := s.rewritten(ctx, c, job, *job.JobModifyIndex)
	if err != nil {
		return nil, err
	}
	var got struct{ FailedTGAllocs map[string]refusal }
	err = c.call(ctx, "Job.Plan", planJob{Job: full, request: s.common(job)}, &got)
	return got.FailedTGAllocs, err
}
