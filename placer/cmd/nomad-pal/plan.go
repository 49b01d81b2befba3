// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"

	"github.com/nomad-pal/nomad-pal/placer/gang"
)

type planCommand struct{ base }

func (c *planCommand) Synopsis() string { return "Say what would happen to a job, without running it" }

func (c *planCommand) Help() string {
	return help("plan [options] <jobspec>", `
Says whether the job would start now if it were run, on which GPUs and why, or
what it would wait for, on the queue and the cluster as they are. Of a job that
runs it says whether it would keep its GPUs.

Exit codes: 0 the job would wait, or runs and would run on; 1 it would start now; 2 it would never start, as
it is written or on this cluster; 3 no placer is at work, so that nothing starts;
255 an error. (As with nomad job plan, 1 means
that allocations would be made.)
`, examples(
		"Would it start now, and where?", "nomad-pal plan train.nomad.hcl",
		"In a script:", "nomad-pal plan -t '{{.Phase}}: {{.Reason}}' train.nomad.hcl",
	), jobOptions, outputOptions, generalOptions)
}

func (c *planCommand) Run(args []string) int {
	const trouble = 255
	fs := c.flags("plan")
	var f jobFlags
	fs.Var(&f.vars, "var", "")
	fs.Var(&f.varFiles, "var-file", "")
	fs.BoolVar(&f.isJSON, "json-job", false, "")
	rest, ok := c.parse(fs, args, 1)
	if !ok {
		return trouble
	}
	job, _, err := c.readJob(rest[0], f)
	if err != nil {
		c.fail(err)
		return trouble
	}
	s, err := c.ask()
	if err != nil {
		c.fail(err)
		return trouble
	}
	e, err := s.Plan(job)
	if err != nil {
		c.fail(err)
		return trouble
	}
	if done, code := c.structured(e); done {
		if code != 0 {
			return trouble
		}
	} else {
		printExplanation(&c.base, e)
	}
	idle := s.close(0)
	switch e.Phase {
	case gang.Rejected, gang.Unschedulable:
		return 2
	case gang.Starting:
		return cmp.Or(idle, 1)
	}
	return idle
}
