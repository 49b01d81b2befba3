// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/placer/query"
)

var helpDefrag = help("defrag -dry-run [options]", `
Shows which moves would pay off now: moves of gangs that allow moves (pal_migrate) and
would gain more than a restart costs. The agent makes these moves itself, unless its
configuration sets queue { migrate = false }.

Defrag Options:

  -dry-run                 Required: this command moves nothing.
`, examples(
	"Which gangs would run better elsewhere?", "nomad-pal defrag -dry-run",
), exitCodes, outputOptions, generalOptions)

func runDefrag(b *base, args []string) int {
	fs := b.flags("defrag")
	dry := fs.Bool("dry-run", false, "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	if !*dry {
		return b.fail(fmt.Errorf("defrag only shows moves, so use -dry-run; the agent itself moves gangs, unless its configuration sets queue { migrate = false }"))
	}
	s, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	moves, err := s.Moves()
	if err != nil {
		return b.fail(err)
	}
	return s.close(b.show(moves, func() { printMoves(b, moves) }))
}

func printMoves(b *base, moves []query.Move) {
	if len(moves) == 0 {
		b.printf("No move would pay off.\n")
		return
	}
	rows := []string{row("Job", "Namespace", "Slowdown now", "Slowdown after", "Nodes now", "Nodes after")}
	for _, m := range moves {
		rows = append(rows, row(m.Job, m.Namespace, fmt.Sprintf("%.3f", m.From.Cost), fmt.Sprintf("%.3f", m.To.Cost), m.From.Nodes, m.To.Nodes))
	}
	b.table(rows)
}
