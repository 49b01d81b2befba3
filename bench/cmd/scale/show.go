// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/bench/plot"
)

// The names in plots, and their colours.
const (
	withGate = "placer, with a gate"
	byNomad  = "plain Nomad"
)

// looks returns all series, with names and colours.
func looks() []plot.Series {
	return []plot.Series{
		{Name: withGate, Colour: plot.Ours + 1}, {Name: withGate + ", p99", Colour: plot.Ours + 1, Dashed: true},
		{Name: byNomad, Colour: 1}, {Name: byNomad + ", p99", Colour: 1, Dashed: true},
		{Name: "placer", Colour: plot.Ours + 1}, {Name: "Nomad's server under it", Colour: plot.Ours + 2}, {Name: "Nomad's server alone", Colour: 1},
	}
}

// growth returns a plot of values by number of nodes.
func (r *report) growth(name, title, unit string, log bool, series map[string]func(point) float64) plot.Figure {
	f := plot.Lines{Name: name, Title: title, Marks: true, X: plot.Axis{Label: "nodes of 8 GPUs", Log: true}, Y: plot.Axis{Label: unit, Log: log}}
	for _, p := range r.Points {
		f.X.Ticks = append(f.X.Ticks, float64(p.Nodes))
	}
	for _, s := range looks() {
		value := series[s.Name]
		if value == nil {
			continue
		}
		for _, p := range r.Points {
			s.Points = append(s.Points, plot.Point{X: float64(p.Nodes), Y: value(p)})
		}
		f.Series = append(f.Series, s)
	}
	return f.Figure()
}

func (r *report) figures() []plot.Figure {
	each := func(seconds float64, p point) float64 { return 1000 * seconds / float64(max(p.Burst, 1)) }
	return []plot.Figure{
		r.growth("scale-latency", "From a job's registration until its gang of 2 × 4 GPUs has its allocations", "ms", true, map[string]func(point) float64{
			withGate: func(p point) float64 { return p.Gated.P50 }, withGate + ", p99": func(p point) float64 { return p.Gated.P99 },
			byNomad: func(p point) float64 { return p.Plain.P50 }, byNomad + ", p99": func(p point) float64 { return p.Plain.P99 }}),
		r.growth("scale-rate", "Gangs placed per second of a burst", "gangs/s", false, map[string]func(point) float64{
			withGate: func(p point) float64 { return p.Gated.GangsPerS },
			byNomad:  func(p point) float64 { return p.Plain.GangsPerS }}),
		r.growth("scale-memory", "Resident memory after the burst", "MB", true, map[string]func(point) float64{
			"placer": func(p point) float64 { return p.PlacerRSS }, "Nomad's server under it": func(p point) float64 { return p.ServerRSS }}),
		r.growth("scale-cpu", "Processor time per gang of the burst", "ms", true, map[string]func(point) float64{
			"placer":                  func(p point) float64 { return each(p.Gated.PlacerCPU, p) },
			"Nomad's server under it": func(p point) float64 { return each(p.Gated.ServerCPU, p) },
			"Nomad's server alone":    func(p point) float64 { return each(p.Plain.ServerCPU, p) }}),
	}
}

// Page returns the report as a web page.
func (r *report) Page() plot.Page {
	t := &plot.Table{Head: []string{"nodes", "GPUs", "burst", "way", "gangs/s", "least–most", "p50 ms", "p99 ms", "server CPU s", "placer CPU s", "placer MB", "placer idle CPU %"}}
	for _, p := range r.Points {
		for _, x := range p.ways() {
			t.Rows = append(t.Rows, []string{fmt.Sprint(p.Nodes), fmt.Sprint(p.GPUs), fmt.Sprint(p.Burst), x.name, fmt.Sprintf("%.1f", x.GangsPerS), fmt.Sprintf("%.1f–%.1f", x.Low, x.High),
				fmt.Sprintf("%.1f", x.P50), fmt.Sprintf("%.1f", x.P99), fmt.Sprintf("%.1f", x.ServerCPU), fmt.Sprintf("%.1f", x.PlacerCPU),
				fmt.Sprintf("%.0f", p.PlacerRSS), fmt.Sprintf("%.1f", p.PlacerIdle)})
		}
	}
	p := plot.Page{
		Title: "Placing on a large cluster",
		Lead: []string{
			"The cluster has one real Nomad server, and simulated nodes of 8 GPUs. A latency is the time from a job's registration until all its allocations exist; for latencies, jobs are submitted one after the other. For rates, a burst of jobs is submitted, eight requests at a time; a rate is the median of the rounds. \"plain\" is Nomad without the placer: the jobs have no gate, and are not placed as gangs. \"gated\" jobs are registered with a gate, and the placer chooses their GPUs.",
			r.Provenance.String(),
		},
		Sections: []plot.Section{{Title: "Growth", Table: t, Figures: r.figures()}},
	}
	for _, x := range r.Points {
		p.Sections = append(p.Sections, crowdTable(fmt.Sprintf("Bursts of jobs on %d nodes", x.Nodes), x.Plain.Crowds, x.Gated.Crowds)...)
	}
	if c := r.Clients; c != nil {
		title := fmt.Sprintf("Bursts of jobs on %d real clients with %d GPUs", c.Nodes, c.GPUs)
		p.Sections = append(p.Sections, crowdTable(title, c.Plain, c.Gated)...)
		p.Sections = append(p.Sections, c.gangTable()...)
	}
	if r.Extremes != nil {
		p.Sections = append(p.Sections, plot.Section{Title: "Extremes, at 1,000 nodes", Table: r.Extremes.table()})
	}
	return p
}

// crowdTable returns a table of the times until the jobs of crowds run, or nil without crowds.
func crowdTable(title string, plain, gated []crowd) []plot.Section {
	if len(plain) == 0 {
		return nil
	}
	t := &plot.Table{Head: []string{"jobs at once", "plain ms", "gated ms", "gated / plain"}}
	for i, x := range plain {
		g := gated[i].P50
		t.Rows = append(t.Rows, []string{fmt.Sprint(x.Jobs), fmt.Sprintf("%.0f", x.P50), fmt.Sprintf("%.0f", g), fmt.Sprintf("%.2f", g/x.P50)})
	}
	return []plot.Section{{Title: title, Notes: []string{"Median time until a job's task has started."}, Table: t}}
}

func (e *extremes) table() *plot.Table {
	return &plot.Table{Head: []string{"what", "measured"}, Rows: [][]string{
		{fmt.Sprintf("one gang of %d GPUs placed", e.WideGPUs), fmt.Sprintf("%.0f ms", e.WideMS)},
		{fmt.Sprintf("placer's memory with %d jobs queued", e.Queued), fmt.Sprintf("%.0f MB", e.QueuedRSS)},
		{"first placement after a restart of the placer with that queue", fmt.Sprintf("%.0f ms", e.RestartMS)},
		{"processor time that the placer used until this placement", fmt.Sprintf("%.1f s", e.RestartCPU)},
		{"gangs placed per second while the queue drains", fmt.Sprintf("%.1f", e.DrainGangsPer)},
	}}
}
