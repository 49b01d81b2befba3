// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpExplain = help("explain [options] <job> | <allocation> | <gpu> | <node> | <jobspec>", `
Explains in at most ten lines why the job runs where it runs, or why it waits: the
reason, its GPUs, its place in the queue, when it should start or end, and what you can
do next. For a job that can never run, it shows what must change.

-verbose adds the evidence: the GPUs to choose from, the L×V matrix, PM scores,
predicted slowdowns, members, and which jobs hold the GPUs.
docs/design/concepts.md explains the words.

For a GPU it shows who holds it, how fast it is, and why it is not chosen; for a
node, the same for each of its GPUs. A unique prefix of an id or name is enough. A GPU
is also named by nvidia-smi's number on its node (node-1:3) or by its PCI address. A
jobspec (a file *.hcl, *.nomad or *.json, a path, or "-") is explained as if it
were submitted now.

Explain Options:

  -what-if=<key>=<value>,...
                           Explain the job as if its file were different. Keys of the job: its hints
                           (an empty value removes a hint), priority, datacenters, node_pool, and
                           without (removes the constraints on an attribute). Keys of its group:
                           count, min, max, and gpus, device, cpu and memory of each member. With
                           several groups: <group>.count and so on. The job itself does not change.
                           For a running job: as if its file were run again.
`, jobOptions, examples(
	"Why does my job wait?", "nomad-pal explain train",
	"Would it start now with fewer members, or in another class?", "nomad-pal explain -what-if count=2 train\n      $ nomad-pal explain -what-if pal_class=B,count=4 train.nomad.hcl",
	"Who uses this GPU, and how fast is it?", "nomad-pal explain GPU-8d3f1c02",
), exitCodes, outputOptions, generalOptions)

// explained is the JSON object that `nomad-pal explain -json` prints.
type explained struct {
	// Kind is job, allocation, gpu or node.
	Kind string `json:"kind"`
	// Summary is the answer in one sentence.
	Summary string `json:"summary"`
	// WhatIf are the changes to try, by key.
	WhatIf map[string]string `json:"what_if,omitempty"`
	*palapi.Explanation
	Allocation string       `json:"allocation,omitempty"` // the allocation's id, if Kind is allocation
	GPU        *palapi.GPU  `json:"gpu,omitempty"`        // the GPU, if Kind is gpu
	Node       string       `json:"node,omitempty"`       // the node's name, if Kind is node
	NodeGPUs   []palapi.GPU `json:"node_gpus,omitempty"`  // the node's GPUs, if Kind is node
}

func runExplain(b *base, args []string) int {
	fs := b.flags("explain")
	f := b.jobFlags(fs)
	var whatIf paths
	fs.Var(&whatIf, "what-if", "")
	rest, ok := b.parse(fs, args, 1)
	if !ok {
		return 1
	}
	changes, err := query.ParseChanges(whatIf...)
	if err != nil {
		return b.fail(err)
	}
	s, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	x, err := explain(b, s, rest[0], f, changes)
	if err != nil {
		return b.fail(err)
	}
	return s.close(b.show(x, func() { printExplained(b, x) }))
}

// explain finds the job, allocation, GPU or node that the argument names, and explains its state.
func explain(b *base, s *answers, name string, f *jobFlags, changes query.Changes) (*explained, error) {
	if isJobFile(name) {
		job, _, err := b.readJob(name, f)
		if err != nil {
			return nil, err
		}
		b.jobspec = name
		return b.planned(s, job, changes)
	}
	t, err := b.target(s, name)
	if err != nil {
		return nil, err
	}
	switch {
	case len(changes) > 0 && t.job.ID == "":
		return nil, fmt.Errorf("-what-if is for jobs, and %q is none", name)
	case t.gpu != nil:
		return &explained{Kind: "gpu", Summary: gpuSentence(*t.gpu), GPU: t.gpu}, nil
	case t.node != "":
		text := fmt.Sprintf("Node %s has %s: %s.", t.node, pal.CountGPUs(len(t.gpus)), countGPUs(t.gpus))
		return &explained{Kind: "node", Summary: text, Node: t.node, NodeGPUs: t.gpus}, nil
	case len(changes) > 0:
		job, err := s.nomad.Job(b.ctx, t.job)
		if err != nil {
			return nil, err
		}
		if job == nil {
			return nil, nomad.NoJob(t.job)
		}
		return b.planned(s, rewrite.Author(job), changes)
	}
	e, err := s.Explain(t.job)
	if errors.Is(err, nomad.ErrNoJob) {
		return nil, didYouMean(b, s, name, err)
	}
	if err != nil {
		return nil, err
	}
	x := &explained{Kind: "job", Summary: e.Headline(time.Now()), Explanation: e}
	if t.alloc != nil {
		x.Kind, x.Allocation = "allocation", t.alloc.ID
		x.Summary = allocSentence(t.alloc) + " " + x.Summary
	}
	return x, nil
}

// planned explains what would happen if somebody submitted the job with the changes applied.
func (b *base) planned(s *answers, job *api.Job, changes query.Changes) (*explained, error) {
	if err := changes.Apply(job); err != nil {
		return nil, err
	}
	e, err := s.Plan(job)
	if err != nil {
		return nil, err
	}
	with := ""
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		with += fmt.Sprintf("With %s=%s: ", key, changes[key])
	}
	return &explained{Kind: "job", Summary: with + e.Headline(time.Now()), WhatIf: changes, Explanation: e}, nil
}

func printExplained(b *base, x *explained) {
	switch {
	case x.GPU != nil:
		printGPU(b, x)
	case x.Node != "":
		printNode(b, x)
	default:
		printAnswer(b, x.Summary, x.Explanation)
	}
}

// printExplanation prints an explanation below its headline.
func printExplanation(b *base, e *palapi.Explanation) {
	printAnswer(b, e.Headline(time.Now()), e)
}

// mostSteps is the number of next steps that fit into the ten lines of an answer.
const mostSteps = 2

// printAnswer prints the ten lines that most readers need and, with -verbose, the evidence.
func printAnswer(b *base, headline string, e *palapi.Explanation) {
	b.io.say(bold, headline)
	now := time.Now()
	var rows []string
	known := func(key, value string) {
		if value != "" {
			rows = append(rows, row(key, value))
		}
	}
	why := e.Reason.String()
	if !strings.Contains(strings.ToLower(headline), strings.ToLower(why)) {
		known("Reason", why)
	}
	if e.Reason.Kind != reason.Held {
		known("Hold", e.Hold.String())
	}
	known(map[bool]string{true: "Would get now", false: "GPUs"}[e.State == palapi.Waiting], gpusOf(e))
	w := e.Wait
	if w != nil && e.State != palapi.Unschedulable {
		ahead := ""
		if w.Ahead != "" {
			ahead = "; " + w.Ahead + " goes first"
		}
		known("Position", fmt.Sprintf("%d%s", w.Position, ahead))
		known(expectedStart(e, now))
	}
	end := e.EndWhy
	if !e.EndTo.IsZero() {
		end = palapi.Span(e.EndFrom, e.EndTo, now) + ": " + end
	}
	known("Expected end", end)
	steps := e.Next(b.jobspec)
	n := len(steps) - mostSteps
	if n > 0 && !b.verbose {
		steps = append(steps[:mostSteps], fmt.Sprintf("%s: add -verbose", counted(n, "more step")))
	}
	for _, s := range steps {
		known("Next", s)
	}
	if len(rows) > 0 {
		b.io.write("\n")
		b.io.pairs(rows)
	}
	if b.verbose {
		printEvidence(b, e)
	}
}

// mostGPUs is the number of GPUs that an answer names.
const mostGPUs = 8

// gpusOf describes the GPUs that a job has or would get: names, variability classes, models and
// locality.
func gpusOf(e *palapi.Explanation) string {
	var ids, classes, models []string
	var c pal.Choice
	d := e.Decision
	if d != nil && d.Chosen != nil {
		c = *d.Chosen
	}
	for _, m := range c.Members {
		models = append(models, modelOf(m.Device))
		for _, u := range m.GPUs {
			ids = append(ids, u.ID)
			if u.Class > 0 {
				classes = append(classes, class(u.Class))
			}
		}
	}
	if len(ids) == 0 { // Nomad placed the job, or the record of its decision was too large
		for _, a := range e.Allocations {
			ids = append(ids, a.GPUs...)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	text := gpuNames(e, ids[:min(len(ids), mostGPUs)]...)
	n := len(ids) - mostGPUs
	if n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	distinct := func(all []string) string {
		slices.Sort(all)
		return strings.Join(slices.Compact(all), ", ")
	}
	for _, of := range [][2]string{{"variability class ", distinct(classes)}, {"", distinct(models)}, {"locality ", c.Tier.String()}} {
		if of[1] != "" {
			text += "; " + of[0] + of[1]
		}
	}
	return text
}

// expectedStart returns a key and a value that describe when a waiting job should start. The value
// is "" if nothing is known.
func expectedStart(e *palapi.Explanation, now time.Time) (key, value string) {
	start := ""
	switch {
	case e.StartTo.IsZero():
	case e.Wait.Reason == reason.Locality:
		return "At most until", palapi.When(e.StartTo, now) + ": it then starts on any suitable GPUs that are still free"
	default:
		start = palapi.Span(e.StartFrom, e.StartTo, now)
	}
	room := roomWhen(e.Holders)
	if room != "" {
		return "Expected start", cmp.Or(start, "unknown") + ". " + room
	}
	return "Expected start", start
}

// printEvidence prints how the placer reached its answer.
func printEvidence(b *base, e *palapi.Explanation) {
	rows := []string{row("Job", e.Job), row("Namespace", e.Namespace), row("State", stateCell(e.State)), row("Reason", e.Reason.String())}
	known := func(key, value string) {
		if value != "" {
			rows = append(rows, row(key, value))
		}
	}
	known("Submitted", palapi.When(e.Submitted, time.Now()))
	o := e.Outcome
	if o != nil {
		style := map[string]style{"complete": green, "failed": red, "stopped": yellow, palapi.AtRest: yellow}[o.Status]
		rows = append(rows, row("Outcome", painted{style, o.Status}))
		known(map[bool]string{false: "Ended", true: "Since"}[o.Status == palapi.AtRest], palapi.When(o.At, time.Now()))
	}
	known("Pins", e.Mode)
	known("Decided", clock(e.Decided))
	known("Ready", clock(e.Ready))
	known("Restarted", clock(e.Restarted))
	known("Note", oneLine(e.Note))
	d := e.Decision
	if d != nil {
		request := fmt.Sprintf("%s, application class %s", pal.CountGPUs(d.Demand), d.Class)
		if e.ClassFrom != "" {
			request += ": " + e.ClassFrom
		}
		rows = append(rows,
			row("Request", request),
			row("Policy", d.Policy),
			row("Candidates", candidates(d.Candidates)))
	}
	w := e.Wait
	if w != nil && e.State != palapi.Unschedulable {
		known("Waits for", e.WaitsFor.String())
		if w.AheadGPUs > 0 {
			known("Ahead", "in total, the jobs ahead that wait only for GPUs need "+reason.Amount(w.AheadGPUs))
		}
	}
	b.io.write("\n")
	b.io.pairs(rows)
	printObstacles(b, e)
	if e.Decision != nil {
		printDecision(b, e)
	}
	printFailures(b, e)
	b.io.section("Allocations", allocationRows(e))
	printHolders(b, e.Holders)
}

// allocationRows returns table rows of the members. During a deployment, the rows include the
// members' versions.
func allocationRows(e *palapi.Explanation) []string {
	line := rowWith(true, true, e.Deployment != nil, true, true, true)
	rows := []string{line("ID", "Group", "Version", "Node", "Status", "GPUs")}
	for _, a := range e.Allocations {
		version := "-"
		if a.Version != nil {
			version = strconv.FormatUint(*a.Version, 10)
		}
		rows = append(rows, line(short(a.ID), a.Group, version, a.Node, a.Status, gpuNames(e, a.GPUs...)))
	}
	return rows
}

func candidates(c pal.Candidates) string {
	if c.Total == 0 {
		return "not recorded"
	}
	parts := []string{fmt.Sprintf("%d free of %d", c.Free, c.Total)}
	for _, x := range []struct {
		n    int
		what string
	}{{c.Ineligible, "not eligible"}, {c.Unhealthy, "unhealthy"}, {c.Quarantined, "quarantined"}, {c.Unavailable, "unavailable"}, {c.Allocated, "allocated"}, {c.Outliers, "too slow"}, {c.Kept, "kept by windows"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return strings.Join(parts, ", ")
}

// printFailures lists the failed members of each try.
func printFailures(b *base, e *palapi.Explanation) {
	rows := []string{row("Try", "Time", "Allocation", "Node", "Cause", "Reason", "GPUs")}
	for _, f := range e.Failures {
		rows = append(rows, row(f.Try, clock(f.At), short(f.Alloc), f.Node, f.Cause, oneLine(f.Reason), gpuNames(e, f.GPUs...)))
	}
	b.io.section("Failures", rows)
}

// printObstacles lists the reasons why nodes cannot run the job, with the number of nodes.
func printObstacles(b *base, e *palapi.Explanation) {
	rows := []string{row("Group", "Nodes", "Reason")}
	for _, o := range e.Obstacles {
		what := o.What
		if o.Fault != "" {
			what += ": " + o.Fault
		}
		rows = append(rows, row(o.Group, fmt.Sprintf("%d of %d", o.Nodes, o.Total), oneLine(what)))
	}
	b.io.section("Why nodes with GPUs cannot run the job (each node counts once)", rows)
}

func printDecision(b *base, e *palapi.Explanation) {
	d := e.Decision
	walk := []string{row("Locality", "PM scores of the bin", "Mean", "Penalty × mean", "Free GPUs", "Result")}
	for i, w := range d.Walk {
		if d.WalkOmitted > 0 && i == len(d.Walk)/2 {
			walk = append(walk, row("…", "…", "…", "…", "…", fmt.Sprintf("%d more entries were not chosen", d.WalkOmitted)))
		}
		walk = append(walk, row(w.Tier, bin(w), fmt.Sprintf("%.3f", w.Bin), fmt.Sprintf("%.3f", w.Product), w.Free, result(w)))
	}
	printModels(b, e)
	b.io.section("L×V matrix, in the order tried", walk)
	if d.Chosen != nil {
		b.io.head("Chosen GPUs")
		_, mixed := d.Slowest()
		line := rowWith(true, true, mixed, true, true, true)
		rows := []string{line("Group", "Node", "Model", "GPU", "PM score", "Class")}
		for _, m := range d.Chosen.Members {
			for _, u := range m.GPUs {
				degraded := ""
				if u.Degraded != "" {
					degraded = " (degraded: " + oneLine(u.Degraded) + ")"
				}
				rows = append(rows, line(m.Group, m.Node, m.Device, gpuNames(e, u.ID), palapi.Score(u.PMScore), class(u.Class)+degraded))
			}
		}
		b.io.table(rows)
		printNeighbours(b, e)
		rows = []string{row("Placement", "Nodes", "Locality", "Penalty", "Slowest PM score", "Slowdown")}
		if e.Predicted == nil {
			rows = append(rows, choice("chosen", d.Chosen))
		} else {
			rows = append(rows, choice("as it runs", d.Chosen), choice("as chosen", e.Predicted))
		}
		if d.Packed != nil {
			rows = append(rows, choice("packed", d.Packed))
		}
		for _, a := range e.Alternatives {
			rows = append(rows, choice(a.What, a.Choice))
		}
		b.io.section("Predicted slowdown", rows)
	}
}

// printNeighbours lists the members of other jobs that share GPUs with the gang, and the expected
// slowdown of the gang and its neighbours.
func printNeighbours(b *base, e *palapi.Explanation) {
	rows := []string{row("Group", "GPU", "Neighbours", "Class", "The job takes longer by", "Known from", "Neighbours take longer by")}
	for _, m := range e.Decision.Chosen.Members {
		for _, n := range m.Neighbours {
			rows = append(rows, row(m.Group, gpuNames(e, m.GPUs[0].ID), n.Members, n.Class, percent(n.Costs), cmp.Or(e.NeighboursFrom[n.Class], "the table"), percent(n.CostsThem)))
		}
	}
	b.io.section("Expected neighbours on the same GPU", rows)
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// printModels compares the placements on each GPU model.
func printModels(b *base, e *palapi.Explanation) {
	line := rowWith(true, true, true, true, len(e.SpeedsFrom) > 0) // SpeedsFrom is empty for a job that has ended
	rows := []string{line("GPU model", "Speed", "Slowdown", "Result", "Speed known from")}
	for _, m := range e.Decision.Models {
		cost, result := "-", "no room now"
		if m.Fits {
			cost, result = fmt.Sprintf("%.3f", m.Cost), "has room"
		}
		switch {
		case m.Chosen:
			result = "chosen"
		case e.Decision.Replicas: // replicas are placed on all models together
			result = "-"
		}
		rows = append(rows, line(m.Device, fmt.Sprintf("%.3g", m.Speed), cost, result, e.SpeedsFrom[m.Device]))
	}
	b.io.section("GPU models", rows)
}

// bin formats the range of PM scores in an entry's bin.
func bin(w pal.Entry) string {
	low, high := palapi.Score(w.Lowest), palapi.Score(w.Highest)
	if low == high {
		return low
	}
	return low + "–" + high
}

// result describes whether an entry of the L×V matrix was chosen.
func result(w pal.Entry) string {
	switch {
	case w.Taken:
		return "chosen"
	case w.PassedOver:
		return "fits, but on GPUs kept for wide gangs"
	}
	return "does not fit"
}

func choice(name string, c *pal.Choice) string {
	return row(name, c.Nodes, c.Tier, fmt.Sprintf("%.2f", c.Penalty), fmt.Sprintf("%.3f", c.PMScore), fmt.Sprintf("%.3f", c.Cost))
}

func class(c uint8) string {
	if c == 0 {
		return "-"
	}
	return fmt.Sprint(c)
}

func short(id string) string { return id[:min(8, len(id))] }
