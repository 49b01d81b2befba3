// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"fmt"
	"io"

	"github.com/nomad-pal/nomad-pal/sim/plot"
)

// writeHTML writes a self-contained page without scripts.
func (r *Report) writeHTML(w io.Writer) error { return r.page().Write(w) }

func (r *Report) page() plot.Page {
	p := plot.Page{
		Title: fmt.Sprintf("%s: policy %s, order %s", r.Trace, r.Policy, r.Order),
		Lead:  []string{fmt.Sprintf("%d GPUs on %d nodes, locality %s, seed %d, %d jobs.", r.GPUs, r.Nodes, r.Locality, r.Seed, len(r.Jobs))},
	}
	p.Lead = append(p.Lead, r.Warnings...)
	if r.Unfinished > 0 {
		p.Lead = append(p.Lead, fmt.Sprintf("%d jobs never finish: they %s. The figures cover the other jobs.", r.Unfinished, r.whyUnfinished()))
	}
	p.Sections = append(p.Sections, plot.Section{Title: "Results", Table: r.results()})
	for _, t := range []struct {
		title string
		rows  []row
	}{{"By size", r.BySize}, {"By locality", r.ByTier}, {"By application class", r.ByClass}, {"By GPU model", r.ByModel}} {
		if len(t.rows) == 0 {
			continue
		}
		p.Sections = append(p.Sections, plot.Section{Title: t.title, Table: sums(t.rows)})
	}
	p.Sections = append(p.Sections, plot.Section{Title: "Figures", Figures: r.figures()})
	if r.heat != nil && len(r.heat.cells) > 0 {
		p.Sections = append(p.Sections, plot.Section{Title: "GPUs over time", Figures: []plot.Figure{r.heat.figure()},
			Notes: []string{"One row per GPU. Blank: idle. Blue: busy, and as fast as the median GPU. Red: busy, and slower."}})
	}
	return p
}

func hours(s float64) string { return fmt.Sprintf("%.2f h", s/3600) }

func (r *Report) results() *plot.Table {
	return &plot.Table{
		Head: []string{"average JCT", "geometric mean", "median", "p99", "longest", "average wait", "makespan", "GPU time held", "restarts", "GPU hours lost"},
		Rows: [][]string{{hours(r.AvgJCT), hours(r.GeoJCT), hours(r.P50), hours(r.P99), hours(r.MaxJCT), hours(r.AvgWait), hours(r.Makespan),
			fmt.Sprintf("%.1f %%", 100*r.Utilization), fmt.Sprint(r.Restarts), fmt.Sprintf("%.0f", r.LostGPUh)}},
	}
}

func sums(rows []row) *plot.Table {
	t := &plot.Table{Head: []string{"kind", "jobs", "average JCT", "average wait", "p90 wait", "slowdown"}}
	for _, r := range rows {
		t.Rows = append(t.Rows, []string{r.Kind, fmt.Sprint(r.Jobs), hours(r.AvgJCT), hours(r.AvgWait), hours(r.P90Wait), fmt.Sprintf("%.3f", r.Slowdown)})
	}
	return t
}

// maxCurvePoints limits the points of a line over time to fewer than 2 × maxCurvePoints.
const maxCurvePoints = 400

func (r *Report) figures() []plot.Figure {
	var jcts []float64
	for _, j := range r.Jobs {
		if j.JCT >= 0 {
			jcts = append(jcts, max(1, j.JCT))
		}
	}
	percent := plot.Axis{Label: "%", Ticks: []float64{0, 20, 40, 60, 80, 100}}
	figures := []plot.Figure{plot.Lines{Title: "Jobs finished within a time after their submission", X: plot.Axis{Label: "seconds", Log: true}, Y: percent,
		Series: []plot.Series{{Name: "jobs", Colour: plot.Ours, Points: plot.Distribution(jcts, len(jcts))}}, Steps: true}.Figure()}
	if len(r.samples) > 1 {
		var busy, waiting []plot.Point
		for i := 0; i < len(r.samples); i += max(1, len(r.samples)/maxCurvePoints) {
			s := r.samples[i]
			busy = append(busy, plot.Point{X: s.AtS / 3600, Y: 100 * float64(s.BusyGPUs) / float64(r.GPUs)})
			waiting = append(waiting, plot.Point{X: s.AtS / 3600, Y: float64(s.WaitingJobs)})
		}
		hours := plot.Axis{Label: "hours"}
		figures = append(figures,
			plot.Lines{Title: "GPUs held", X: hours, Y: percent, Series: []plot.Series{{Name: "GPUs held", Colour: plot.Ours, Points: busy}}}.Figure(),
			plot.Lines{Title: "Waiting jobs", X: hours, Y: plot.Axis{Label: "jobs"}, Series: []plot.Series{{Name: "waiting jobs", Colour: plot.Ours, Points: waiting}}}.Figure())
	}
	slowdown := plot.Bars{Title: "Slowdown by application class", Label: "time on GPUs, divided by the work (the time at cost 1)"}
	for _, x := range r.ByClass {
		slowdown.Bars = append(slowdown.Bars, plot.Bar{Name: x.Kind, Colour: plot.Ours, Value: x.Slowdown})
	}
	return append(figures, slowdown.Figure())
}

// figure draws a row per GPU. A GPU with a PM score of 1.3 or more is red.
func (h *heat) figure() plot.Figure {
	f := plot.Heat{Title: "GPUs over time", X: "hours", End: h.last.Hours()}
	for _, cells := range h.cells {
		row := make([]plot.Cell, len(cells))
		for i, c := range cells {
			if c.busy > 0 {
				row[i] = plot.Cell{Share: c.busy, Warm: min(1, max(0, (c.slow/c.busy-0.95)/0.35))}
			}
		}
		f.Rows = append(f.Rows, row)
	}
	return f.Figure()
}
