// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"io"
	"sync"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/process"
)

// report is the result file.
type report struct {
	command.Provenance
	Seed      uint64   `json:"seed"`
	Nodes     int      `json:"nodes"`
	GPUs      int      `json:"gpus"`
	DurationS float64  `json:"duration_s"` // including the drain
	Submitted int      `json:"jobs_submitted"`
	Finished  int      `json:"jobs_finished"`
	HeldBackS int      `json:"submitting_paused_s"` // time without submissions because too many jobs were unfinished
	Passed    bool     `json:"passed"`
	Failures  []string `json:"failures"`
	Looks     []look   `json:"looks"`
	Events    []event  `json:"events"`
	// Causes counts, by cause, the recent failures that the placer remembers at the end.
	Causes map[string]int `json:"causes,omitempty"`
	mu     sync.Mutex     // guards Events, Failures and the counts
}

// event is the beginning or the end of a disturbance.
type event struct {
	AtS  float64 `json:"at_s"`
	What string  `json:"what"`
}

// look is the result of one check.
type look struct {
	AtS        float64 `json:"at_s"`
	GPUsHeld   int     `json:"gpus_held"` // according to Nomad
	Waiting    int     `json:"jobs_waiting"`
	Unfinished int     `json:"jobs_unfinished"`
	// Drift lists the subjects about which the placer and Nomad still disagreed after [settle].
	Drift     []string      `json:"drift,omitempty"`
	PlacerPID int           `json:"placer_pid"`
	Placer    process.Usage `json:"placer"`
	// Goroutines is the placer's number of goroutines, if its metrics have it.
	Goroutines int `json:"placer_goroutines,omitempty"`
	// Plugins is the number of device plugin processes, PluginRSSMB the mean of
	// their memory, PluginFiles the sum of their open files.
	Plugins     int     `json:"plugins"`
	PluginRSSMB float64 `json:"plugin_rss_mb"`
	PluginFiles int     `json:"plugin_open_files"`
	// PluginThreads is the number of threads of all device plugin processes.
	PluginThreads int `json:"plugin_threads"`
	// Variables is the number of the placer's variables in Nomad.
	Variables int `json:"variables"`
}

func (l look) String() string {
	return fmt.Sprintf("%4.0f s: %d GPUs held, %d jobs waiting, %d unfinished; placer %.1f MB, %d threads, %d goroutines, %d files, %d variables; %d plugins of %.1f MB; %d differences",
		l.AtS, l.GPUsHeld, l.Waiting, l.Unfinished, l.Placer.RSSMB, l.Placer.Threads, l.Goroutines, l.Placer.Files, l.Variables, l.Plugins, l.PluginRSSMB, len(l.Drift))
}

func newReport(o options) *report {
	return &report{
		Provenance: command.NewProvenance("soak"), Seed: o.Seed, Nodes: o.Nodes, GPUs: o.Nodes * gpusPerNode, Failures: []string{},
	}
}

func (r *report) event(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Events = append(r.Events, e)
}

func (r *report) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

func (r *report) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// judge adds the failures that only the checks together show. For the placer, only the last process
// counts, because the earlier ones were killed. The last check does not count, because it had no
// traffic.
func (r *report) judge() {
	if len(r.Looks) > 0 {
		looks := r.Looks[:len(r.Looks)-1]
		last := r.Looks[len(r.Looks)-1].PlacerPID
		for _, s := range []struct {
			what   string
			placer bool
			value  func(look) float64
		}{
			{"the placer's memory (MB)", true, func(l look) float64 { return l.Placer.RSSMB }},
			{"the placer's threads", true, func(l look) float64 { return float64(l.Placer.Threads) }},
			{"the placer's goroutines", true, func(l look) float64 { return float64(l.Goroutines) }},
			{"the placer's open files", true, func(l look) float64 { return float64(l.Placer.Files) }},
			{"the plugins' memory (MB)", false, func(l look) float64 { return l.PluginRSSMB }},
			{"the plugins' open files", false, func(l look) float64 { return float64(l.PluginFiles) }},
			{"the plugins' threads", false, func(l look) float64 { return float64(l.PluginThreads) }},
			{"the placer's variables", false, func(l look) float64 { return float64(l.Variables) }},
		} {
			var ys []float64
			for _, l := range looks {
				if !s.placer || l.PlacerPID == last {
					ys = append(ys, s.value(l))
				}
			}
			if how := steady(s.what, ys); how != "" {
				r.fail("%s", how)
			}
		}
	}
	r.Passed = len(r.Failures) == 0
}

func (r *report) write(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return command.WriteJSON(path, r)
}

// print prints a summary, and returns an error if the run failed.
func (r *report) print(out io.Writer) error {
	first, last := r.Looks[0], r.Looks[len(r.Looks)-1]
	fmt.Fprintf(out, "%.0f s on %d nodes: %d jobs submitted, %d finished, %d checks, %d disturbances and recoveries; placer %.1f MB at first, %.1f MB at the end\n",
		r.DurationS, r.Nodes, r.Submitted, r.Finished, len(r.Looks), len(r.Events), first.Placer.RSSMB, last.Placer.RSSMB)
	for _, f := range r.Failures {
		fmt.Fprintln(out, "FAILED:", f)
	}
	if !r.Passed {
		return fmt.Errorf("%d failures", len(r.Failures))
	}
	fmt.Fprintln(out, "passed")
	return nil
}
