// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"slices"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

type queueCommand struct{ base }

func (c *queueCommand) Synopsis() string { return "Show who waits, in order, and for what" }

func (c *queueCommand) Help() string {
	return help("queue [options]", `
Shows the waiting gangs in the order in which they will be served, each with what
it waits for. Jobs that will not start as things are come last, with the reason:
rejected (as they are written), unschedulable (on this cluster), failed (given up).
`, exitCodes, outputOptions, generalOptions)
}

func (c *queueCommand) Run(args []string) int {
	if _, ok := c.parse(c.flags("queue"), args, 0); !ok {
		return 1
	}
	s, err := c.ask()
	if err != nil {
		return c.fail(err)
	}
	jobs, err := s.Jobs()
	if err != nil {
		return c.fail(err)
	}
	jobs = slices.DeleteFunc(jobs, func(j placer.JobStatus) bool {
		return !slices.Contains([]gang.State{gang.Waiting, gang.Committing, gang.Completing, gang.Rejected, gang.Unschedulable, gang.Failed}, j.Phase)
	})
	const last = 1 << 30
	slices.SortStableFunc(jobs, func(a, b placer.JobStatus) int {
		return cmp.Compare(cmp.Or(a.Position, last), cmp.Or(b.Position, last))
	})
	if done, code := c.structured(jobs); done {
		return s.close(code)
	}
	c.warn(s)
	if len(jobs) == 0 {
		c.printf("Nobody waits.\n")
		return s.close(0)
	}
	c.printJobs(jobs)
	c.printTenants(s.Tenants())
	return s.close(0)
}
