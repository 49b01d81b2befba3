// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Children registers and plans runs of parameterized and periodic jobs.
type Children struct {
	// Register registers a job that was read at the given index. It returns the job's new index.
	Register func(ctx context.Context, job *api.Job, index uint64) (uint64, error)
	// Plan makes a dry run of a job.
	Plan func(ctx context.Context, job *api.Job) (*api.JobPlanResponse, error)
}

// ServeChildren makes the client use way to register and plan runs of parameterized and periodic
// jobs. It must be called before the client is used.
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
