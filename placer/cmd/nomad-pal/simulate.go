// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"

	"github.com/nomad-pal/nomad-pal/sim/simulate"
)

// helpSimulate is that of the simulator itself.
func helpSimulate() string {
	var text strings.Builder
	simulate.Run([]string{"-help"}, &text, &text)
	return narrow(text.String()) + "\n" + examples(
		"A generated workload under the defaults:", "nomad-pal simulate",
		"My cluster's history, under my agent's configuration:", "nomad-pal simulate -from-nomad -config agent.hcl",
		"Against plain Nomad, with a report:", "nomad-pal simulate -policy nomad-30m -html report.html",
	)
}

// narrow breaks what Go's flags print, and other lines, at 80 columns.
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

func (b *base) runSimulate(args []string) int {
	return simulate.Run(args, b.io.out, b.io.err)
}
