// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/placer"
)

type defragCommand struct{ base }

func (c *defragCommand) Help() string {
	return help("defrag -dry-run [options]", `
Shows the moves that would pay now: gangs that allow it (pal_migrate), whose
predicted gain is worth more than being stopped and started again. The agent
makes such moves itself if its configuration says queue { migrate = true }.

Defrag Options:

  -dry-run                 Required: this command moves nothing.
`, examples(
		"Which gangs would run better elsewhere?", "nomad-pal defrag -dry-run",
	), outputOptions, generalOptions)
}

func (c *defragCommand) Run(args []string) int {
	fs := c.flags("defrag")
	dry := fs.Bool("dry-run", false, "")
	if _, ok := c.parse(fs, args, 0); !ok {
		return 1
	}
	if !*dry {
		return c.fail(fmt.Errorf("only -dry-run: moves are made by the agent, if its configuration says queue { migrate = true }"))
	}
	client, err := c.client()
	if err != nil {
		return c.fail(err)
	}
	moves, err := placer.Moves(c.ctx, client)
	if err != nil {
		return c.fail(err)
	}
	return c.show(moves, func() { c.print(moves) })
}

func (c *defragCommand) print(moves []placer.Move) {
	if len(moves) == 0 {
		c.printf("No move would pay.\n")
		return
	}
	rows := []string{row("Job", "Namespace", "Slowdown now", "Slowdown then", "Nodes now", "Nodes then")}
	for _, m := range moves {
		rows = append(rows, row(m.Job, m.Namespace, fmt.Sprintf("%.3f", m.From.Cost), fmt.Sprintf("%.3f", m.To.Cost), m.From.Nodes, m.To.Nodes))
	}
	c.table(rows)
}
