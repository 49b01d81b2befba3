// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"github.com/nomad-pal/nomad-pal/pal"
)

type gpusCommand struct{ base }

func (c *gpusCommand) Synopsis() string { return "Show every GPU: classes, health, who uses it" }

func (c *gpusCommand) Help() string {
	return help("gpus [options]", `
Shows every GPU with its variability class per application class (1 is the
fastest), its PM score for class A, whether it is healthy and works as it
should, and the job that holds it. A degraded GPU is in the last class.
`, exitCodes, outputOptions, generalOptions)
}

func (c *gpusCommand) Run(args []string) int {
	if _, ok := c.parse(c.flags("gpus"), args, 0); !ok {
		return 1
	}
	s, err := c.ask()
	if err != nil {
		return c.fail(err)
	}
	gpus, err := s.GPUs()
	if err != nil {
		return c.fail(err)
	}
	if done, code := c.structured(gpus); done {
		return s.close(code)
	}
	c.warn(s)
	if len(gpus) == 0 {
		c.printf("No GPUs. Is the device plugin installed on the clients?\n")
		return s.close(0)
	}
	rows := []string{row("GPU", "Node", "Device", "A", "B", "C", "D", "Score A", "Health", "Job")}
	for _, g := range gpus {
		health := "healthy"
		if !g.Healthy {
			health = "unhealthy: " + oneLine(g.Unhealthy)
		} else if g.Quarantine != nil {
			health = "quarantined"
		} else if g.Degraded != "" {
			health = "degraded: " + oneLine(g.Degraded)
		}
		rows = append(rows, row(g.ID, g.Node, g.Device,
			class(g.Classes[pal.ClassA]), class(g.Classes[pal.ClassB]), class(g.Classes[pal.ClassC]), class(g.Classes[pal.ClassD]),
			score(g.PMScores[pal.ClassA]), health, g.Job))
	}
	c.table(rows)
	return s.close(0)
}
