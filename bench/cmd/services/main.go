// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command services is `make services-bench`. It runs a service of three replicas on a real Nomad
// cluster with emulated GPUs, first under plain Nomad, then under the placer. It kills a node,
// makes a rolling update and a canary update, and counts the replicas meanwhile.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

type options struct {
	command.Options
	reps int
}

// report is the result file.
type report struct {
	command.Provenance
	Nodes int   `json:"nodes"`
	Runs  []run `json:"runs"`
}

// run has the results for the service on one cluster.
type run struct {
	Scheduler string `json:"scheduler"`
	// Nodes is the number of nodes on which the replicas ran at first.
	Nodes  int     `json:"nodes_of_replicas"`
	Events []event `json:"events"`
}

// event is a disturbance and its effect on the replicas.
type event struct {
	What string `json:"what"`
	// Fewest is the smallest number of replicas at any moment.
	Fewest int `json:"fewest"`
	// ShortS is the time in which replicas were missing, in seconds.
	ShortS float64 `json:"short_s"`
	// TookS is the time until all replicas ran again and continued to run, in seconds.
	TookS float64 `json:"took_s"`
}

const (
	nodeLost = "node lost"
	rolling  = "rolling update"
	canary   = "canary update"
)

func main() {
	var o options
	o.Flags(5, "bench/results/services.json", " (at least 4)", "the GPUs")
	flag.IntVar(&o.reps, "repetitions", 3, "how often each disturbance is tried on each cluster")
	flag.Parse()
	command.Main("services", func(ctx context.Context) error { return measure(ctx, o) })
}

func measure(ctx context.Context, o options) error {
	if o.Nodes < replicas+1 {
		return fmt.Errorf("-nodes %d: at least %d are needed, so that a replica can move to another node", o.Nodes, replicas+1)
	}
	gpus, _, err := replay.DrawGPUs(o.Nodes, 4, 1, o.Seed)
	if err != nil {
		return err
	}
	r := report{Provenance: command.NewProvenance("services"), Nodes: o.Nodes}
	for _, placer := range []bool{false, true} {
		got, err := on(ctx, o, gpus, placer)
		if err != nil {
			return err
		}
		r.Runs = append(r.Runs, got)
	}
	r.table(os.Stdout)
	return command.WriteJSON(o.JSON, r)
}

// on applies all disturbances to the service on a new cluster, with or without the placer.
func on(ctx context.Context, o options, gpus *replay.GPUs, placer bool) (r run, err error) {
	r.Scheduler = "plain Nomad"
	if placer {
		r.Scheduler = "nomad-pal"
	}
	say := func(line string) { fmt.Fprintf(os.Stderr, "  %s: %s\n", r.Scheduler, line) }
	bed, err := replay.Start(ctx, replay.Setup{Nomad: o.Nomad, Bin: o.Bin, GPUs: gpus, Penalty: 1.7, Progress: say})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	s := &service{Cluster: bed.Cluster, submit: []string{o.Nomad, "job", "run", "-detach"}}
	if placer {
		p, err := bed.StartPlacer(cluster.PlacerOptions{Config: "http {\n  bind_port = 0\n}\n"})
		if err != nil {
			return r, err
		}
		if err := p.Serves(ctx); err != nil {
			return r, err
		}
		s.submit = []string{bed.Program("nomad-pal"), "run", "-detach"}
		s.env = []string{"NOMAD_PAL_ADDR=" + p.URL()}
		defer func() {
			if err != nil {
				err = fmt.Errorf("%w\nthe last lines of the placer's log:\n%s", err, p.LogTail(15))
			}
		}()
	}
	if r.Nodes, err = s.start(ctx); err != nil {
		return r, fmt.Errorf("%s: %w", r.Scheduler, err)
	}
	for range o.reps {
		for _, what := range []string{nodeLost, rolling, canary} {
			e, err := s.disturb(ctx, what)
			if err != nil {
				return r, fmt.Errorf("%s, %s: %w", r.Scheduler, what, err)
			}
			say(fmt.Sprintf("%+v", e))
			r.Events = append(r.Events, e)
		}
	}
	return r, nil
}

// table prints the results as in the docs: the fewest replicas in any repetition, and the median,
// minimum and maximum of the times.
func (r report) table(out io.Writer) {
	fmt.Fprintf(out, "%s\n\n| |", r.Provenance)
	row := func(name string, value func(run) string) {
		fmt.Fprintf(out, "| %s |", name)
		for _, run := range r.Runs {
			fmt.Fprintf(out, " %s |", value(run))
		}
		fmt.Fprintln(out)
	}
	for _, run := range r.Runs {
		fmt.Fprintf(out, " %s |", run.Scheduler)
	}
	fmt.Fprintln(out, "\n|---|---|---|")
	row("nodes with a replica at the start", func(r run) string { return fmt.Sprint(r.Nodes) })
	for _, what := range []string{nodeLost, rolling, canary} {
		row(what+": fewest replicas", func(r run) string {
			return fmt.Sprint(slices.MinFunc(r.of(what), func(a, b event) int { return cmp.Compare(a.Fewest, b.Fewest) }).Fewest)
		})
		row(fmt.Sprintf("%s: time with fewer than %d replicas", what, replicas), func(r run) string { return span(r.of(what), func(e event) float64 { return e.ShortS }) })
		row(what+": duration", func(r run) string { return span(r.of(what), func(e event) float64 { return e.TookS }) })
	}
}

func (r run) of(what string) (es []event) {
	for _, e := range r.Events {
		if e.What == what {
			es = append(es, e)
		}
	}
	return es
}

// span formats the median of a figure with its minimum and maximum.
func span(es []event, of func(event) float64) string {
	var all []float64
	for _, e := range es {
		all = append(all, of(e))
	}
	slices.Sort(all)
	return fmt.Sprintf("%.1f s (%.1f–%.1f)", all[len(all)/2], all[0], all[len(all)-1])
}

// pause is the time between two queries of the replicas.
const pause = 20 * time.Millisecond
