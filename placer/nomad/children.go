// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// ErrPayload is why a job that was dispatched with a payload is not placed.
var ErrPayload = errors.New("the job was dispatched with a payload, and Nomad loses payloads of jobs that are rewritten: " +
	"it stays gated and its payload untouched. Stop it, take the gate off the parameterized job, and give that a native class constraint instead")

// ErrNoRPC is why children are not placed by an agent that has no RPC address.
var ErrNoRPC = errors.New("dispatched and periodic jobs can be placed through the servers' RPC port only: " +
	"set nomad { rpc_address } in the configuration of the agent")

// Child says whether the job was made by a parameterized or periodic one.
func Child(job *api.Job) bool { return job.ParentID != nil && *job.ParentID != "" }

// hasPayload says whether the job carries a payload. Events show payloads as
// servers keep them, compressed: nothing is one zero byte there.
func hasPayload(job *api.Job) bool {
	return len(job.Payload) > 1 || len(job.Payload) == 1 && job.Payload[0] != 0
}

// Children is a way to write dispatched and periodic jobs.
type Children struct {
	// Register registers a job that was read with the given index and returns
	// the new one.
	Register func(ctx context.Context, job *api.Job, index uint64) (uint64, error)
	// Plan is a dry run of a job.
	Plan func(ctx context.Context, job *api.Job) (*api.JobPlanResponse, error)
}

// ServeChildren makes the client write children that way. Call it before the
// client is used.
func (c *Client) ServeChildren(way Children) { c.children = &way }

// registerChild registers a job that Nomad's HTTP API does not update.
func (c *Client) registerChild(ctx context.Context, job *api.Job, index uint64) (*api.JobRegisterResponse, error) {
	if c.children == nil {
		return nil, ErrNoRPC
	}
	at, err := c.children.Register(ctx, job, index)
	if err != nil {
		return nil, err
	}
	return &api.JobRegisterResponse{JobModifyIndex: at}, nil
}

// servesChild says why a child cannot be served, if that is so.
func (v *View) servesChild(job *api.Job) error {
	switch {
	case !Child(job):
		return nil
	case hasPayload(job):
		return ErrPayload
	case !v.opts.Children:
		return ErrNoRPC
	}
	return nil
}

// ChoosesInstances says whether the author names device instances, or lists of
// them: the job is for plain Nomad then.
func ChoosesInstances(job *api.Job) bool {
	_, t := instanceChooser(job)
	return t != nil
}

// instanceChooser is the first task whose author does so, in its group; nil if none does.
func instanceChooser(job *api.Job) (*api.TaskGroup, *api.Task) {
	if _, pinned := rewrite.Pinned(job); pinned {
		job = rewrite.Author(job)
	}
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			for _, d := range rewrite.GPURequests(t) {
				for _, c := range d.Constraints {
					if c.LTarget == "${device.ids}" || c.RTarget == "${device.ids}" {
						return g, t
					}
				}
			}
		}
	}
	return nil, nil
}

// TemplateReason is what becomes of the children of a parameterized or periodic job. children: they
// can be registered.
func TemplateReason(job *api.Job, children bool) reason.Reason {
	r := reason.Reason{Kind: reason.Template}
	if !rewrite.Gated(job) {
		return r.And(reason.Reason{Kind: reason.UngatedChildren})
	}
	if err := Childless(job, children); err != nil {
		return r.And(reason.Reason{Kind: reason.NoChild, Cause: err.Error()})
	}
	if p := job.ParameterizedJob; p != nil && p.Payload == "optional" {
		return r.And(reason.Reason{Kind: reason.PayloadChildren})
	}
	return r
}

// Childless is why no child of a parameterized or periodic job can be placed; nil if one can.
// children: they can be registered.
func Childless(job *api.Job, children bool) error {
	switch p := job.ParameterizedJob; {
	case !Template(job):
		return nil
	case p != nil && p.Payload == "required":
		return ErrPayload
	case !children:
		return ErrNoRPC
	}
	return nil
}

// Canonicalize fills in Nomad's defaults: those of its API package, and one that
// only its servers know.
func Canonicalize(job *api.Job) {
	job.Canonicalize()
	if len(job.Datacenters) == 0 {
		job.Datacenters = []string{"*"}
	}
}
