// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// servesChild returns an error if the job is a run of a parameterized or periodic job that the
// placer cannot serve.
func (v *View) servesChild(job *api.Job) error {
	switch {
	case !cluster.Child(job):
		return nil
	case cluster.HasPayload(job):
		return cluster.ErrPayload
	case !v.opts.Children:
		return cluster.ErrNoRPC
	}
	return nil
}

// ChoosesInstances reports whether the author constrains ${device.ids}, and so chooses single GPUs.
// If the job has the gate, the placer refuses the job; otherwise, the placer leaves the job to
// Nomad.
func ChoosesInstances(job *api.Job) bool {
	_, t := instanceChooser(job)
	return t != nil
}

// instanceChooser returns the first task with a constraint on ${device.ids}, and the task's group;
// nil if there is none.
func instanceChooser(job *api.Job) (*api.TaskGroup, *api.Task) {
	_, pinned := rewrite.Pinned(job)
	if pinned {
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

// TemplateReason describes what happens to the runs of a parameterized or periodic job. children
// reports whether the placer can register runs.
func TemplateReason(job *api.Job, children bool) reason.Reason {
	r := reason.Reason{Kind: reason.Template, Cause: KindOfTemplate(job)}
	if !rewrite.Gated(job) {
		return r.And(reason.Reason{Kind: reason.UngatedChildren})
	}
	if err := Childless(job, children); err != nil {
		return r.And(reason.Reason{Kind: reason.NoChild, Cause: err.Error()})
	}
	p := job.ParameterizedJob
	if p != nil && p.Payload == "optional" {
		return r.And(reason.Reason{Kind: reason.PayloadChildren})
	}
	return r
}

// KindOfTemplate returns "periodic" or "parameterized", for a job that does not run itself.
func KindOfTemplate(job *api.Job) string {
	if job.IsPeriodic() {
		return "periodic"
	}
	return "parameterized"
}

// Childless returns why no run of a parameterized or periodic job can be placed, or nil if runs can
// be placed. children reports whether the placer can register runs.
func Childless(job *api.Job, children bool) error {
	p := job.ParameterizedJob
	switch {
	case !cluster.Template(job):
		return nil
	case p != nil && p.Payload == "required":
		return cluster.ErrPayloadRequired
	case !children:
		return cluster.ErrNoRPC
	}
	return nil
}
