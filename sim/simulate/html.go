// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/nomad-pal/nomad-pal/placer/agent/ui"
)

//go:embed report.html
var reportPage string

// table is a table of the report's page.
type table struct {
	Title string
	Head  []string
	Rows  [][]string
}

// chart is a line of the report's page, for uPlot.
type chart struct {
	Title  string    `json:"title"`
	XLabel string    `json:"x_label"`
	YLabel string    `json:"y_label"`
	Log    bool      `json:"log"` // the x axis is logarithmic
	X      []float64 `json:"x"`
	Y      []float64 `json:"y"`
}

// writeHTML writes a page that works offline: tables, and charts that uPlot draws.
func (r *Report) writeHTML(w io.Writer) error {
	script, err := ui.Files.ReadFile("uplot.js")
	if err != nil {
		return err
	}
	style, err := ui.Files.ReadFile("uplot.css")
	if err != nil {
		return err
	}
	t, err := template.New("report").Parse(reportPage)
	if err != nil {
		return err
	}
	lead := append([]string{fmt.Sprintf("%d GPUs on %d nodes, locality %s, seed %d, %d jobs.", r.GPUs, r.Nodes, r.Locality, r.Seed, len(r.Jobs))}, r.Warnings...)
	if r.Unfinished > 0 {
		lead = append(lead, fmt.Sprintf("%d jobs never finish: they %s. The figures cover the other jobs.", r.Unfinished, r.whyUnfinished()))
	}
	return t.Execute(w, map[string]any{
		"Title": fmt.Sprintf("%s: policy %s, order %s", r.Trace, r.Policy, r.Order), "Lead": lead, "Tables": r.tables(), "Charts": r.charts(),
		"Style": template.CSS(style), "Script": template.JS(script), // #nosec: our own files
	})
}

func hours(s float64) string { return fmt.Sprintf("%.2f h", s/3600) }

func (r *Report) tables() []table {
	all := []table{{"Results",
		[]string{"average JCT", "geometric mean", "median", "p99", "longest", "average wait", "makespan", "GPU time held", "restarts", "GPU hours lost"},
		[][]string{{hours(r.AvgJCT), hours(r.GeoJCT), hours(r.P50), hours(r.P99), hours(r.MaxJCT), hours(r.AvgWait), hours(r.Makespan),
			fmt.Sprintf("%.1f %%", 100*r.Utilization), fmt.Sprint(r.Restarts), fmt.Sprintf("%.0f", r.LostGPUh)}},
	}}
	for _, of := range []struct {
		title string
		rows  []row
	}{{"By size", r.BySize}, {"By locality", r.ByTier}, {"By application class", r.ByClass}, {"By GPU model", r.ByModel}} {
		if len(of.rows) == 0 {
			continue
		}
		t := table{of.title, []string{"kind", "jobs", "average JCT", "average wait", "p90 wait", "slowdown"}, nil}
		for _, r := range of.rows {
			t.Rows = append(t.Rows, []string{r.Kind, fmt.Sprint(r.Jobs), hours(r.AvgJCT), hours(r.AvgWait), hours(r.P90Wait), fmt.Sprintf("%.3f", r.Slowdown)})
		}
		all = append(all, t)
	}
	return all
}

// maxCurvePoints limits the points of a line to fewer than 2 × maxCurvePoints.
const maxCurvePoints = 400

func (r *Report) charts() []chart {
	var jcts []float64
	for _, j := range r.Jobs {
		if j.JCT >= 0 {
			jcts = append(jcts, max(1, j.JCT))
		}
	}
	slices.Sort(jcts)
	finished := chart{Title: "Jobs finished within a time after their submission", XLabel: "seconds", YLabel: "%", Log: true}
	for i := 0; i < len(jcts); i += max(1, len(jcts)/maxCurvePoints) {
		finished.X, finished.Y = append(finished.X, jcts[i]), append(finished.Y, 100*float64(i+1)/float64(len(jcts)))
	}
	busy := chart{Title: "GPUs held", XLabel: "hours", YLabel: "%"}
	waiting := chart{Title: "Waiting jobs", XLabel: "hours", YLabel: "jobs"}
	for i := 0; i < len(r.samples); i += max(1, len(r.samples)/maxCurvePoints) {
		s := r.samples[i]
		busy.X, busy.Y = append(busy.X, s.AtS/3600), append(busy.Y, 100*float64(s.BusyGPUs)/float64(r.GPUs))
		waiting.X, waiting.Y = append(waiting.X, s.AtS/3600), append(waiting.Y, float64(s.WaitingJobs))
	}
	return []chart{finished, busy, waiting}
}
