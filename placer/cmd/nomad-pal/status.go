// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer"
)

type statusCommand struct{ base }

func (c *statusCommand) Synopsis() string { return "Show GPUs and jobs at a glance" }

func (c *statusCommand) Help() string {
	return help("status [options]", `
Shows how many GPUs there are and are free, what tenants hold and have used, and
every job with GPUs that has not ended: its phase and, where it waits, why.
With -namespace, the jobs of that one only.
`, examples(
		"How full is the cluster, and what do my jobs do?", "nomad-pal status -namespace research",
		"How many GPUs are free?", "nomad-pal status -t '{{.free}}'",
	), exitCodes, outputOptions, generalOptions)
}

// overview is what status prints.
type overview struct {
	GPUs      int                `json:"gpus"`
	Free      int                `json:"free"`
	Unhealthy int                `json:"unhealthy"`
	Profile   int                `json:"profile_version,omitempty"`
	Warnings  []string           `json:"warnings,omitempty"`
	Placer    placer.Activity    `json:"placer"`
	Tenants   []queue.TenantUse  `json:"tenants,omitempty"`
	Jobs      []placer.JobStatus `json:"jobs"`
}

func (c *statusCommand) Run(args []string) int {
	if _, ok := c.parse(c.flags("status"), args, 0); !ok {
		return 1
	}
	s, err := c.ask()
	if err != nil {
		return c.fail(err)
	}
	o, gpus := overview{Warnings: s.Warnings(), Placer: s.activity}, []placer.GPU(nil)
	if o.Jobs, err = s.Jobs(); err == nil {
		gpus, err = s.GPUs()
	}
	if err == nil {
		o.Profile, err = s.Profile()
	}
	if err != nil {
		return c.fail(err)
	}
	if c.given("namespace") && c.namespace != "*" {
		o.Jobs = slices.DeleteFunc(o.Jobs, func(j placer.JobStatus) bool { return j.Namespace != c.namespace })
	}
	o.Tenants = s.Tenants()
	for _, g := range gpus {
		o.GPUs++
		if g.Available {
			o.Free++
		}
		if !g.Healthy {
			o.Unhealthy++
		}
	}
	if done, code := c.structured(o); done {
		return s.close(code)
	}
	profile := "none: nothing is measured yet"
	if o.Profile > 0 {
		profile = fmt.Sprintf("version %d", o.Profile)
	}
	rows := []string{row("GPUs", fmt.Sprintf("%d, %d free, %d unhealthy", o.GPUs, o.Free, o.Unhealthy)), row("Profile", profile), row("Placer", workSentence(o.Placer, time.Now()))}
	for _, w := range o.Warnings {
		rows = append(rows, row("Warning", oneLine(w)))
	}
	c.pairs(rows)
	c.printTenants(o.Tenants)
	if len(o.Jobs) == 0 {
		c.printf("\nNo jobs with GPUs.\n")
		return s.close(0)
	}
	c.printf("\n")
	c.printJobs(o.Jobs)
	return s.close(0)
}

func (b *base) printJobs(jobs []placer.JobStatus) {
	now := time.Now()
	rows := []string{row("Job", "Namespace", "Phase", "GPUs", "Class", "Submitted", "Expected start", "Reason")}
	for _, j := range jobs {
		expected := ""
		if !j.StartTo.IsZero() {
			expected = soon(j.StartFrom, j.StartTo, now)
		}
		rows = append(rows, row(j.Job, j.Namespace, j.Phase, j.Size(), j.Class, clock(j.Submitted), expected, oneLine(j.Reason)))
	}
	b.table(rows)
}
