// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/sim/simulate"
)

// helpSimulate returns the simulator's own help, with examples.
func helpSimulate() string {
	var text strings.Builder
	simulate.Command{}.Run([]string{"-help"}, &text, &text)
	return narrow(text.String()) + "\n" + examples(
		"A generated workload under the defaults:", "nomad-pal simulate",
		"What my cluster ran in a month, by the agent's history:", "nomad-pal simulate -from-history -since 30d -config agent.hcl",
		"The same workload under plain Nomad, with a report:", "nomad-pal simulate -policy nomad -html report.html",
	)
}

// narrow wraps lines at 80 columns, including those that package flag prints.
func narrow(text string) string {
	const indent = "        "
	var out []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		mark := ""
		if does, ok := strings.CutPrefix(line, "    \t"); ok {
			mark, line = indent, does
		}
		for _, l := range wrapped(line, columns-len(mark)) {
			out = append(out, mark+l)
		}
	}
	return strings.Join(out, "\n")
}

func runSimulate(b *base, args []string) int {
	b.flags("simulate") // reads the agent's address from the environment
	done := make(chan int, 1)
	go func() {
		done <- simulate.Command{Past: b.pastRuns}.Run(args, b.io.out, b.io.err)
	}() // ends with the process if interrupted
	select {
	case code := <-done:
		return code
	case <-b.ctx.Done():
		return exitInterrupted
	}
}

// pastRuns returns the runs in the agent's history that the user may list.
func (b *base) pastRuns(since string) ([]palapi.Run, error) {
	times := historyOptions{since: since}
	q, err := times.query(b, time.Now())
	if err != nil {
		return nil, err
	}
	s, err := b.ask()
	if err != nil {
		return nil, err
	}
	runs, err := s.runs(q, 0)
	if err != nil {
		return nil, fmt.Errorf("reading the agent's history: %w", err)
	}
	return runs, nil
}
