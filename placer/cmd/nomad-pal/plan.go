// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

var helpPlan = help("plan [options] <jobspec>", `
Reports whether the job would start now, on which GPUs and why, or what it would
wait for, with the queue and the cluster as they are. For a running job it
reports whether the job would keep its GPUs. plan applies the limits of the user (pal_user)
that nomad-pal run would give the job. nomad job plan shows what would change in the jobspec.

Exit codes: 0 the job would wait, would keep running, or is left to Nomad (see nomad job
plan); 1 it would start now; 2 it would never start, because of the jobspec or the
cluster; 3 no agent is active, so it does not start; 255 an error, such as a job that
Nomad refuses. (As with nomad job plan, 1 means that allocations would be made.)
`, examples(
	"Would it start now, and where?", "nomad-pal plan train.nomad.hcl",
	"In a script:", "nomad-pal plan -json train.nomad.hcl | jq -r .reason.text",
), jobOptions, outputOptions, generalOptions)

// planned is the JSON object that `nomad-pal plan -json` prints.
type planned struct {
	*palapi.Explanation
	// JobModifyIndex is the job's index in Nomad, for run -check-index; 0 for a new job.
	JobModifyIndex uint64 `json:"job_modify_index"`
}

// planFailed is the exit code of plan after an error.
const planFailed = 255

func runPlan(b *base, args []string) int {
	failed := func(err error) int { return max(b.fail(err), map[bool]int{false: planFailed}[lacksAgent(err)]) }
	fs := b.flags("plan")
	f := b.jobFlags(fs)
	rest, ok := b.parse(fs, args, 1)
	if !ok {
		return planFailed
	}
	job, _, err := b.readJob(rest[0], f)
	if err != nil {
		return failed(err)
	}
	b.jobspec = rest[0]
	s, err := b.ask()
	if err != nil {
		return failed(err)
	}
	if err := sayUser(b, s.nomad, job); err != nil {
		return failed(err)
	}
	e, err := s.Plan(job)
	if err != nil {
		return failed(cmp.Or(b.noNamespace(s.nomad, *job.Namespace), err))
	}
	x := planned{Explanation: e}
	is, unread := s.nomad.Job(b.ctx, cluster.KeyOf(job))
	if is != nil {
		x.JobModifyIndex = *is.JobModifyIndex
	} else if err := b.noNamespace(s.nomad, *job.Namespace); err != nil {
		return failed(err)
	}
	w := request.PastNomad(job)
	if w != "" {
		b.io.complain("Warning: " + w)
	}
	code := b.show(x, func() { printPlan(b, x, unread == nil) })
	if code != 0 {
		return planFailed
	}
	if e.State == palapi.Native { // Nomad places the job, and needs no placer
		return 0
	}
	return x.exitCode(s.close(0))
}

// exitCode returns the exit code of the plan of a job that needs the placer. idle is the exit code
// if no placer is active, and otherwise 0.
func (x planned) exitCode(idle int) int {
	switch {
	case x.never():
		return 2
	case x.State == palapi.Starting:
		return cmp.Or(idle, 1)
	}
	return idle
}

// never reports whether the job can never start as it is written.
func (x planned) never() bool { return x.State == palapi.Rejected || x.State == palapi.Unschedulable }

// printPlan prints a plan for people. indexKnown reports whether x.JobModifyIndex is known.
func printPlan(b *base, x planned, indexKnown bool) {
	printExplanation(b, x.Explanation)
	if indexKnown && !x.never() {
		b.io.write("\n")
		b.io.say(plain, fmt.Sprintf("Job modify index: %d. nomad-pal run -check-index %d submits only if the job is unchanged.", x.JobModifyIndex, x.JobModifyIndex))
	}
}
