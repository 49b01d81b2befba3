// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import "github.com/nomad-pal/nomad-pal/sim/simulate"

type simulateCommand struct{ base }

func (c *simulateCommand) Synopsis() string {
	return "Play a trace or a workload under the placer's policies"
}

// Help is that of the simulator itself.
func (c *simulateCommand) Help() string {
	simulate.Run([]string{"-help"}, c.io.out, c.io.out)
	return ""
}

func (c *simulateCommand) Run(args []string) int {
	return simulate.Run(args, c.io.out, c.io.err)
}
