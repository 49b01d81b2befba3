// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/placer"
)

type statusCommand struct{ base }

func (c *statusCommand) Synopsis() string { return "Show GPUs and jobs at a glance" }

func (c *statusCommand) Help() string {
	return help("status [options]", `
Shows how many GPUs there are and are free, and every job with GPUs that has not
ended: its phase and, where it waits, why.
`, outputOptions, generalOptions)
}

// overview is what status prints.
type overview struct {
	GPUs      int                `json:"gpus"`
	Free      int                `json:"free"`
	Unhealthy int                `json:"unhealthy"`
	Profile   int                `json:"profile_version,omitempty"`
	Warnings  []string           `json:"warnings,omitempty"`
	Jobs      []placer.JobStatus `json:"jobs"`
}

func (c *statusCommand) Run(args []string) int {
	if _, ok := c.parse(c.flags("status"), args, 0); !ok {
		return 1
	}
	client, err := c.client()
	if err != nil {
		return c.fail(err)
	}
	s, err := placer.Observe(c.ctx, client)
	if err != nil {
		return c.fail(err)
	}
	o := overview{Jobs: s.Jobs(), Warnings: s.Warnings()}
	if p := s.Profile(); p != nil {
		o.Profile = p.Version
	}
	for _, g := range s.GPUs() {
		o.GPUs++
		if g.Available {
			o.Free++
		}
		if !g.Healthy {
			o.Unhealthy++
		}
	}
	if done, code := c.structured(o); done {
		return code
	}
	profile := "none: nothing is measured yet"
	if o.Profile > 0 {
		profile = fmt.Sprintf("version %d", o.Profile)
	}
	rows := []string{row("GPUs", fmt.Sprintf("%d, %d free, %d unhealthy", o.GPUs, o.Free, o.Unhealthy)), row("Profile", profile)}
	for _, w := range o.Warnings {
		rows = append(rows, row("Warning", oneLine(w)))
	}
	c.pairs(rows)
	if len(o.Jobs) == 0 {
		c.printf("\nNo jobs with GPUs.\n")
		return 0
	}
	c.printf("\n")
	c.printJobs(o.Jobs)
	return 0
}

func (b *base) printJobs(jobs []placer.JobStatus) {
	rows := []string{row("Job", "Namespace", "Phase", "GPUs", "Class", "Submitted", "Expected start", "Reason")}
	for _, j := range jobs {
		expected := ""
		if !j.StartTo.IsZero() {
			expected = j.StartFrom.Local().Format(time.TimeOnly) + "–" + j.StartTo.Local().Format(time.TimeOnly)
		}
		rows = append(rows, row(j.Job, j.Namespace, j.Phase, j.GPUs, j.Class, j.Submitted.Local().Format(time.DateTime), expected, oneLine(j.Reason)))
	}
	b.table(rows)
}
