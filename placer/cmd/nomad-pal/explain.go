// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

type explainCommand struct{ base }

func (c *explainCommand) Synopsis() string {
	return "Say why a job runs where it runs, or why it waits"
}

func (c *explainCommand) Help() string {
	return help("explain [options] <job>", `
Says which GPUs a job got and why: what was to choose from, the entries of the
L×V matrix in the order they were tried, the GPUs with PM scores and variability
classes, the predicted slowdown, and the same for packed placement. For a job
that waits: what for, and who is ahead.
`, exitCodes, outputOptions, generalOptions)
}

func (c *explainCommand) Run(args []string) int {
	rest, ok := c.parse(c.flags("explain"), args, 1)
	if !ok {
		return 1
	}
	s, err := c.ask()
	if err != nil {
		return c.fail(err)
	}
	k, err := s.Find(c.namespace, rest[0])
	if err != nil {
		return c.fail(err)
	}
	e, err := s.Explain(k)
	if err != nil {
		return c.fail(err)
	}
	if done, code := c.structured(e); done {
		return s.close(code)
	}
	printExplanation(&c.base, e)
	return s.close(0)
}

func printExplanation(b *base, e *placer.Explanation) {
	rows := []string{
		row("Job", e.Job), row("Namespace", e.Namespace), row("Phase", e.Phase.String()), row("Reason", oneLine(e.Reason)),
	}
	if e.Mode != "" {
		rows = append(rows, row("Pins", e.Mode))
	}
	if !e.Decided.IsZero() {
		rows = append(rows, row("Decided", clock(e.Decided)))
	}
	if !e.Ready.IsZero() {
		rows = append(rows, row("Ready", clock(e.Ready)))
	}
	if e.Note != "" {
		rows = append(rows, row("Note", oneLine(e.Note)))
	}
	if d := e.Decision; d != nil {
		rows = append(rows,
			row("Demand", fmt.Sprintf("%d GPUs, application class %s%s", d.Demand, d.Class, because(e.ClassFrom))),
			row("Policy", d.Policy),
			row("Candidates", candidates(d.Candidates)))
	}
	b.pairs(rows)
	if e.Wait != nil && e.Phase != gang.Unschedulable {
		printWait(b, e)
	}
	printObstacles(b, e)
	if e.Decision != nil {
		printDecision(b, e.Decision)
	}
	printFailures(b, e)
	if len(e.Allocations) > 0 {
		b.printf("\nAllocations\n")
		rows := []string{row("ID", "Group", "Node", "Status", "GPUs")}
		for _, a := range e.Allocations {
			rows = append(rows, row(short(a.ID), a.Group, a.Node, a.Status, strings.Join(a.GPUs, " ")))
		}
		b.table(rows)
	}
}

func because(from string) string {
	if from == "" {
		return ""
	}
	return ": " + from
}

func candidates(c pal.Candidates) string {
	if c.Total == 0 {
		return "not recorded"
	}
	parts := []string{fmt.Sprintf("%d free of %d", c.Free, c.Total)}
	for _, x := range []struct {
		n    int
		what string
	}{{c.Ineligible, "not eligible"}, {c.Unhealthy, "unhealthy"}, {c.Quarantined, "quarantined"}, {c.Busy, "busy"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return strings.Join(parts, ", ")
}

func printWait(b *base, e *placer.Explanation) {
	b.printf("\nQueue\n")
	w := e.Wait
	rows := []string{row("Position", w.Position), row("Waits for", oneLine(strings.TrimPrefix(e.WaitsFor, "waits: ")))}
	if w.Ahead != "" {
		rows = append(rows, row("Ahead", fmt.Sprintf("%s goes first; those ahead need %d GPUs", w.Ahead, w.AheadGPUs)))
	}
	if w.Reason == queue.ReasonLocality && !e.StartTo.IsZero() {
		rows = append(rows, row("At most until", when(e.StartTo, time.Now())+": it then starts on the GPUs that are free"))
	} else if !e.StartTo.IsZero() {
		rows = append(rows, row("Expected start", span(e.StartFrom, e.StartTo, time.Now())))
	}
	b.pairs(rows)
}

// printFailures says which members failed, try by try.
func printFailures(b *base, e *placer.Explanation) {
	if len(e.Failures) == 0 {
		return
	}
	b.printf("\nFailures\n")
	rows := []string{row("Try", "Time", "Allocation", "Node", "Cause", "Reason", "GPUs")}
	for _, f := range e.Failures {
		rows = append(rows, row(f.Try, clock(f.At), short(f.Alloc), f.Node, f.Cause, oneLine(f.Reason), strings.Join(f.GPUs, " ")))
	}
	b.table(rows)
}

// printObstacles says why nodes do not serve it, thing by thing.
func printObstacles(b *base, e *placer.Explanation) {
	if len(e.Obstacles) == 0 {
		return
	}
	b.printf("\nWhy nodes with GPUs do not take it (each counts once)\n")
	rows := []string{row("Group", "Nodes", "Reason")}
	for _, o := range e.Obstacles {
		rows = append(rows, row(o.Group, fmt.Sprintf("%d of %d", o.Nodes, o.Total), o.What))
	}
	b.table(rows)
}

func printDecision(b *base, d *pal.Decision) {
	if len(d.Walk) > 0 {
		b.printf("\nL×V matrix, in the order tried\n")
		rows := []string{row("Locality", "Bin up to", "Penalty × bin", "Free GPUs", "Result")}
		for i, w := range d.Walk {
			if d.WalkOmitted > 0 && i == len(d.Walk)/2 {
				rows = append(rows, row("…", "…", "…", "…", fmt.Sprintf("%d more entries did not hold the gang", d.WalkOmitted)))
			}
			result := "does not hold the gang"
			if w.Taken {
				result = "chosen"
			}
			rows = append(rows, row(w.Tier, fmt.Sprintf("%.3f", w.Bin), fmt.Sprintf("%.3f", w.Product), w.Free, result))
		}
		b.table(rows)
	}
	if d.Chosen != nil {
		b.printf("\nChosen GPUs\n")
		rows := []string{row("Group", "Node", "GPU", "PM score", "Class")}
		for _, m := range d.Chosen.Members {
			for _, u := range m.GPUs {
				degraded := ""
				if u.Degraded != "" {
					degraded = " (degraded: " + oneLine(u.Degraded) + ")"
				}
				rows = append(rows, row(m.Group, m.Node, u.ID, score(u.PMScore), class(u.Class)+degraded))
			}
		}
		b.table(rows)
		b.printf("\nPredicted slowdown\n")
		rows = []string{row("Placement", "Nodes", "Locality", "Penalty", "Slowest PM score", "Slowdown"), choice("chosen", d.Chosen)}
		if d.Packed != nil {
			rows = append(rows, choice("packed", d.Packed))
		}
		b.table(rows)
	}
}

func choice(name string, c *pal.Choice) string {
	return row(name, c.Nodes, c.Tier, fmt.Sprintf("%.2f", c.Penalty), fmt.Sprintf("%.3f", c.PMScore), fmt.Sprintf("%.3f", c.Cost))
}

func score(s pal.PMScore) string {
	if s == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.3f", s)
}

func class(c uint8) string {
	if c == 0 {
		return "-"
	}
	return fmt.Sprint(c)
}

func short(id string) string { return id[:min(8, len(id))] }
