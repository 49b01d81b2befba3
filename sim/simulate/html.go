// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"bytes"
	_ "embed"
	"html/template"
	"slices"

	"github.com/nomad-pal/nomad-pal/internal/wholefile"
	"github.com/nomad-pal/nomad-pal/placer/agent/ui"
)

//go:embed report.html
var reportPage string

// chart is a line of the report's page, for uPlot.
type chart struct {
	Title  string    `json:"title"`
	XLabel string    `json:"x_label"`
	YLabel string    `json:"y_label"`
	Log    bool      `json:"log"` // the x axis is logarithmic
	X      []float64 `json:"x"`
	Y      []float64 `json:"y"`
}

// writeHTML writes a page that works offline: the report as text, and charts that uPlot draws.
func (r *Report) writeHTML(path string) error {
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
	var text, page bytes.Buffer
	if err := r.writeTable(&text); err != nil {
		return err
	}
	if err := t.Execute(&page, map[string]any{
		"Title": r.Trace, "Text": text.String(), "Charts": r.charts(),
		"Style": template.CSS(style), "Script": template.JS(script), // #nosec: our own files
	}); err != nil {
		return err
	}
	return wholefile.Write(path, page.Bytes())
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
