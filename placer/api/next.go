// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"cmp"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Next lists the steps that somebody can take, with commands ready to type. For a job explained
// from a jobspec, the commands name the jobspec.
func (e *Explanation) Next(jobspec string) []string {
	var steps []string
	for _, r := range e.Remedies {
		steps = append(steps, r.Sentence())
	}
	if e.Ask != "" {
		steps = append(steps, e.Ask)
	}
	if !e.Hold.IsZero() {
		steps = append(steps, "To lift the hold: nomad-pal hold -lift "+e.argument(jobspec, e.Job))
	}
	job := e.argument(jobspec, e.Job)
	d := e.Deployment
	switch {
	case d != nil && d.Status == api.DeploymentStatusFailed:
		steps = append(steps, fmt.Sprintf("The deployment of version %d failed: change the job and run it, or go back to a version that ran: nomad job history %s, then nomad job revert", d.Version, job))
	case e.Retry:
		steps = append(steps, "If Nomad does not place a missing member again: nomad job eval -force-reschedule "+job+". If Nomad still does not place it, change the job and run it.")
	}
	d = e.Deployment
	if d != nil && d.Promotable {
		id := e.argument(jobspec, d.ID[:min(8, len(d.ID))])
		healthy := map[bool]string{false: ", once its canaries are healthy"}[d.Promote]
		steps = append(steps, fmt.Sprintf("To promote version %d%s: nomad deployment promote %s. To give up this version: nomad deployment fail %s", d.Version, healthy, id, id))
	}
	switch e.State {
	case Running:
		steps = append(append(steps, e.pendingMember(jobspec)...), e.fasterNow()...)
	case Waiting, Unschedulable:
		if e.Try != "" {
			steps = append(steps, "To try a change without making it: nomad-pal explain -what-if "+ShellQuoted(e.Try)+" "+e.argument(jobspec, cmp.Or(jobspec, e.Job)))
		}
	case Template:
		steps = append(steps, "To start a run: "+e.StartRun)
	case Ended:
		if e.Runs.GoOn() {
			steps = append(steps, "The job's runs continue. To stop these runs: nomad-pal cancel "+e.argument(jobspec, e.Job))
		}
	case Failed:
		n := len(e.Failures)
		if n > 0 {
			id := e.Failures[n-1].Alloc
			alloc := e.argument(jobspec, id[:min(8, len(id))])
			steps = append(steps, "Output of the last failed member: nomad alloc logs -stderr "+alloc, "Events of this member: nomad alloc status "+alloc)
		}
	case Native:
		if len(e.Allocations) > 0 && e.Reason.Kind == reason.Ungated {
			steps = append(steps, "To let nomad-pal choose the job's GPUs, first stop the job: nomad job stop "+e.argument(jobspec, e.Job), "Then run the job again: nomad-pal run <jobspec>")
		}
	}
	return steps
}

// pendingMember says how to find out why a placed member does not run yet: the member may pull an
// image, or may wait forever, for example for a variable that its template reads.
func (e *Explanation) pendingMember(jobspec string) (steps []string) {
	for _, a := range e.Allocations {
		if a.Status == api.AllocClientStatusPending {
			return []string{"To see what a pending member waits for: nomad alloc status " + e.argument(jobspec, a.ID[:min(8, len(a.ID))])}
		}
	}
	return nil
}

// fasterNow suggests a move if a running job would be faster on GPUs that are free now.
func (e *Explanation) fasterNow() (steps []string) {
	if e.Decision == nil || e.Decision.Chosen == nil {
		return nil
	}
	here := e.Decision.Chosen.Cost
	for _, a := range e.Alternatives {
		if a.Cost < 0.95*here {
			steps = append(steps, fmt.Sprintf("On the best GPUs that are free now, the job would take %.2f times as long as on its present GPUs. With pal_migrate = true nomad-pal may move the job, if the agent's configuration has queue { migrate = true }.", a.Cost/here))
		}
	}
	return steps
}

// argument returns a command's argument, after the flag for the job's namespace. A jobspec contains
// its namespace, so it needs no flag.
func (e *Explanation) argument(jobspec, arg string) string {
	if jobspec != "" {
		return ShellQuoted(arg)
	}
	return InNamespace(e.Namespace, ShellQuoted(arg))
}
