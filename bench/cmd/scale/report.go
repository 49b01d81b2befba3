// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/internal/version"
)

type report struct {
	Command  []string  `json:"command"`
	Commit   string    `json:"commit"`
	Go       string    `json:"go"`
	CPUs     int       `json:"cpus"`
	Date     string    `json:"date"`
	Points   []point   `json:"points"`
	Extremes *extremes `json:"extremes,omitempty"`
}

func newReport() *report {
	return &report{
		Command: replay.Invocation("scale", os.Args[1:]), Commit: version.Revision,
		Go: runtime.Version(), CPUs: runtime.NumCPU(), Date: time.Now().UTC().Format(time.DateOnly),
	}
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func (r *report) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "NODES\tGPUS\tGANGS/S\tPLAIN\tP50 MS\tPLAIN\tP99 MS\tPLAIN\tPLACER MB\tPLACER CPU S\tIDLE CPU %\tSERVER CPU S\tPLAIN\t")
	for _, p := range r.Points {
		fmt.Fprintf(w, "%d\t%d\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t\n",
			p.Nodes, p.GPUs, p.GangsPerS, p.PlainGangsPerS, p.P50, p.PlainP50, p.P99, p.PlainP99, p.PlacerRSS, p.PlacerCPU, p.PlacerIdle, p.ServerCPU, p.PlainServerCPU)
	}
	w.Flush()
	for _, p := range r.Points {
		for _, c := range p.Crowds {
			fmt.Fprintf(out, "%d nodes, %d jobs at once: one runs after %.0f ms (median), by plain Nomad after %.0f ms: %.2f times\n", p.Nodes, c.Jobs, c.P50, c.PlainP50, c.Ratio)
		}
	}
	if e := r.Extremes; e != nil {
		fmt.Fprintf(out, "one gang of %d GPUs: %.0f ms; %d jobs queued: %.0f MB; first placement %.0f ms after a restart of the placer; draining at %.1f gangs/s\n",
			e.WideGPUs, e.WideMS, e.Queued, e.QueuedRSS, e.RestartMS, e.DrainGangsPer)
	}
}
