// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/nomad-pal/nomad-pal/bench/command"
)

type report struct {
	command.Provenance
	Points   []point   `json:"points"`
	Clients  *clients  `json:"clients,omitempty"`
	Extremes *extremes `json:"extremes,omitempty"`
}

func (r *report) write(path string) error {
	return command.WriteJSON(path, r)
}

// Print writes tables for a terminal.
func (r *report) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "NODES\tGPUS\tWAY\tGANGS/S\tLEAST\tMOST\tP50 MS\tP99 MS\tSERVER CPU S\tPLACER CPU S\tPLACER MB\tIDLE CPU %\t")
	for _, p := range r.Points {
		for _, x := range p.ways() {
			fmt.Fprintf(w, "%d\t%d\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t%.1f\t\n",
				p.Nodes, p.GPUs, x.name, x.GangsPerS, x.Low, x.High, x.P50, x.P99, x.ServerCPU, x.PlacerCPU, p.PlacerRSS, p.PlacerIdle)
		}
	}
	w.Flush()
	crowds := func(where string, plain, agent, gated []crowd) {
		for i, c := range plain {
			fmt.Fprintf(out, "%s, %d jobs at once: one runs after %.0f ms (median) by plain Nomad, %.2f times that if registered at the agent, %.2f times with a gate at Nomad\n",
				where, c.Jobs, c.P50, agent[i].P50/c.P50, gated[i].P50/c.P50)
		}
	}
	for _, p := range r.Points {
		crowds(fmt.Sprintf("%d nodes", p.Nodes), p.Plain.Crowds, p.Crowds, p.Gated.Crowds)
	}
	if c := r.Clients; c != nil {
		crowds(fmt.Sprintf("%d real clients of %d GPUs", c.Nodes, c.GPUs), c.Plain, c.Agent, c.Gated)
	}
	if e := r.Extremes; e != nil {
		fmt.Fprintf(out, "one gang of %d GPUs: %.0f ms; %d jobs queued: %.0f MB; first placement %.0f ms after a restart of the placer; draining at %.1f gangs/s\n",
			e.WideGPUs, e.WideMS, e.Queued, e.QueuedRSS, e.RestartMS, e.DrainGangsPer)
	}
}

// named is a way with what to call it.
type named struct {
	name string
	way
}

func (p point) ways() []named {
	return []named{{"plain", p.Plain}, {"agent", p.way}, {"gated", p.Gated}}
}
