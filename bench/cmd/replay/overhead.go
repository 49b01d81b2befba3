// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// overhead is the cost of placing gangs, for one line.
type overhead struct {
	// FreeP50 is the median time to the start, for jobs that found an empty queue and free GPUs
	// when they were submitted.
	FreeP50 float64 `json:"submitted_to_running_s,omitempty"`
	// DecidedP50 and StartedP50 are medians over the gangs that ran once. DecidedP50 is the time
	// until Nomad had placed the whole gang, from its submission or, if later, the moment when its
	// GPUs were free. StartedP50 is the time from the placement until all ranks run.
	DecidedP50 float64 `json:"free_to_placed_s,omitempty"`
	StartedP50 float64 `json:"placed_to_running_s,omitempty"`
	// PlacerCPU and PlacerRSS are medians over the repetitions; absent under plain
	// Nomad.
	PlacerCPU float64 `json:"placer_cpu_ms_per_job,omitempty"`
	PlacerRSS float64 `json:"placer_rss_mb,omitempty"`
}

func (l *line) overhead() overhead {
	o := overhead{FreeP50: replay.Median(l.starts())}
	var decided, started, cpu, rss []float64
	for _, r := range l.Raw {
		for _, h := range r.Handovers() {
			decided, started = append(decided, h.Decided.Seconds()), append(started, h.Started.Seconds())
		}
		if r.Cost != nil {
			cpu, rss = append(cpu, 1000*r.Cost.CPUS/float64(len(r.Jobs))), append(rss, r.Cost.RSSMB)
		}
	}
	o.DecidedP50, o.StartedP50 = replay.Median(decided), replay.Median(started)
	o.PlacerCPU, o.PlacerRSS = replay.Median(cpu), replay.Median(rss)
	return o
}

// starts returns the start times, in seconds and ascending, of jobs that found an empty queue and
// free GPUs.
func (l *line) starts() []float64 {
	var out []float64
	for _, raw := range l.Raw {
		for _, d := range raw.Starts(l.gpus) {
			out = append(out, d.Seconds())
		}
	}
	slices.Sort(out)
	return out
}

// cells returns a line's cells, without its name.
func (o overhead) cells(starts []float64) []string {
	row := []string{fmt.Sprint(len(starts)), "–", "–", "–", "–", "–", "–"}
	if n := len(starts); n > 0 {
		row[1], row[2] = seconds(o.FreeP50), seconds(starts[min(n-1, n*95/100)])
	}
	if o.DecidedP50 > 0 {
		row[3] = seconds(o.DecidedP50)
	}
	if o.StartedP50 > 0 {
		row[4] = seconds(o.StartedP50)
	}
	if o.PlacerRSS > 0 {
		row[5], row[6] = fmt.Sprintf("%.0f ms", o.PlacerCPU), fmt.Sprintf("%.0f MB", o.PlacerRSS)
	}
	return row
}

func (v view) overhead() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "found free GPUs", "runs after: median", "p95", "GPUs free → placed", "placed → all ranks run",
		"placer's CPU per job", "placer's memory"}}
	for _, l := range v.lines {
		t.Rows = append(t.Rows, append([]string{l.title()}, l.Overhead.cells(l.starts())...))
	}
	return t
}
