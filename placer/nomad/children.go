// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Children contains the functions that register and plan dispatched and periodic jobs.
type Children struct {
	// Register registers a job that was read at the given index. Register returns the new index of
	// the job.
	Register func(ctx context.Context, job *api.Job, index uint64) (uint64, error)
	// Plan makes a dry run of a job.
	Plan func(ctx context.Context, job *api.Job) (*api.JobPlanResponse, error)
}

// ServeChildren lets the client register and plan dispatched and periodic jobs, with the functions
// in way. Call ServeChildren before you use the client.
func (c *Client) ServeChildren(way Children) { c.children = &way }

// registerChild registers a job that Nomad's HTTP API cannot update.
func (c *Client) registerChild(ctx context.Context, job *api.Job, index uint64) (*api.JobRegisterResponse, error) {
	if c.children == nil {
		return nil, cluster.ErrNoRPC
	}
	at, err := c.children.Register(ctx, job, index)
	if err != nil {
		return nil, err
	}
	return &api.JobRegisterResponse{JobModifyIndex: at}, nil
}
