// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
)

//go:embed report.html.tmpl
var page string

// writeHTML writes a page with everything in it: no script, no other file.
func (r *report) writeHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"hours":   func(s float64) string { return fmt.Sprintf("%.2f h", s/3600) },
		"percent": func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) },
		"f3":      func(v float64) string { return fmt.Sprintf("%.3f", v) },
		"f0":      func(v float64) string { return fmt.Sprintf("%.0f", v) },
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	return t.Execute(w, map[string]any{"R": r, "Plots": r.plots(), "Heat": r.heatMap()})
}

// Tables are the sums by kind, by their headings.
func (r *report) Tables() map[string][]row {
	return map[string][]row{"By size": r.BySize, "By locality": r.ByTier, "By application class": r.ByClass}
}

// plot is a line or bar plot as SVG.
type plot struct {
	Title, Note string
	SVG         template.HTML
}

func (r *report) plots() []plot {
	var ps []plot
	var jcts []float64
	for _, j := range r.Jobs {
		if j.JCT >= 0 {
			jcts = append(jcts, max(1, j.JCT))
		}
	}
	slices.Sort(jcts)
	if len(jcts) > 0 {
		ps = append(ps, plot{"Job completion times", "share of jobs (%) finished within so many seconds after submission (log scale)", cdf(jcts)})
	}
	if len(r.samples) > 1 {
		var busy, queue [][2]float64
		gpus := float64(r.GPUs)
		for _, s := range r.samples {
			busy = append(busy, [2]float64{s.AtS / 3600, 100 * float64(s.BusyGPUs) / gpus})
			queue = append(queue, [2]float64{s.AtS / 3600, float64(s.WaitingJobs)})
		}
		ps = append(ps, plot{"Utilisation", "GPUs held (%) over hours", lines(busy, 100)},
			plot{"Queue", "waiting jobs over hours", lines(queue, 0)})
	}
	if len(r.ByClass) > 0 {
		ps = append(ps, plot{"Slowdown by application class", "time on GPUs over work at cost 1", bars(r.ByClass)})
	}
	return ps
}

// The plotting area in the SVG's own units.
const (
	plotW, plotH   = 460.0, 220.0
	plotX, plotY   = 46.0, 10.0
	axisW, axisH   = plotW - plotX - 24, plotH - plotY - 26
	plotTicks      = 4
	maxCurvePoints = 400
)

type svg struct{ strings.Builder }

func newSVG(w, h float64) *svg {
	s := &svg{}
	fmt.Fprintf(s, `<svg viewBox="0 0 %.0f %.0f" role="img">`, w, h)
	return s
}

func (s *svg) end() template.HTML {
	s.WriteString("</svg>")
	return template.HTML(s.String()) // #nosec: numbers and our own words only
}

func (s *svg) label(x, y float64, anchor, text string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, template.HTMLEscapeString(text))
}

// axes draws both axes; at gives the values at the ends.
func (s *svg) axes(x0, x1, y1 float64, xText func(float64) string) {
	for i := range plotTicks + 1 {
		f := float64(i) / plotTicks
		y := plotY + axisH*(1-f)
		fmt.Fprintf(s, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, plotX, y, plotX+axisW, y)
		s.label(plotX-5, y+4, "end", number(y1*f))
		s.label(plotX+axisW*f, plotY+axisH+16, "middle", xText(x0+(x1-x0)*f))
	}
}

func number(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.3gk", v/1e3)
	}
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func (s *svg) curve(points [][2]float64, x0, x1, y1 float64) {
	step := max(1, len(points)/maxCurvePoints)
	s.WriteString(`<polyline class="curve" points="`)
	for i := 0; i < len(points); i += step {
		p := points[i]
		fmt.Fprintf(s, "%.1f,%.1f ", plotX+axisW*(p[0]-x0)/(x1-x0), plotY+axisH*(1-min(1, p[1]/y1)))
	}
	s.WriteString(`"/>`)
}

// cdf draws the distribution of ascending values on a log scale.
func cdf(asc []float64) template.HTML {
	x0, x1 := math.Log10(asc[0]), math.Log10(asc[len(asc)-1])
	if x1 <= x0 {
		x1 = x0 + 1
	}
	points := make([][2]float64, len(asc))
	for i, v := range asc {
		points[i] = [2]float64{math.Log10(v), 100 * float64(i+1) / float64(len(asc))}
	}
	s := newSVG(plotW, plotH)
	s.axes(x0, x1, 100, func(v float64) string { return number(math.Pow(10, v)) })
	s.curve(points, x0, x1, 100)
	return s.end()
}

// lines draws values over time; top 0 takes the highest.
func lines(points [][2]float64, top float64) template.HTML {
	for _, p := range points {
		top = max(top, p[1])
	}
	top = max(top, 1)
	x1 := max(points[len(points)-1][0], 1e-9)
	s := newSVG(plotW, plotH)
	s.axes(0, x1, top, number)
	s.curve(points, 0, x1, top)
	return s.end()
}

func bars(rows []row) template.HTML {
	top := 1.0
	for _, r := range rows {
		top = max(top, r.Slowdown)
	}
	s := newSVG(plotW, plotH)
	s.axes(0, 0, top, func(float64) string { return "" })
	w := axisW / float64(len(rows))
	for i, r := range rows {
		h := axisH * r.Slowdown / top
		x := plotX + w*float64(i)
		fmt.Fprintf(s, `<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, x+w*0.2, plotY+axisH-h, w*0.6, h)
		s.label(x+w/2, plotY+axisH+16, "middle", fmt.Sprintf("%s: %.2f", r.Kind, r.Slowdown))
	}
	return s.end()
}

// heatMap draws a line per GPU and a column per slot of time: white is idle,
// blue busy at the median speed, red busy on a slow GPU.
func (r *report) heatMap() template.HTML {
	if r.heat == nil || len(r.heat.cells) == 0 {
		return ""
	}
	w, h := 7.0, 5.0
	s := newSVG(plotX+w*heatSlots+24, h*float64(len(r.heat.cells))+28)
	for u, cells := range r.heat.cells {
		for i, c := range cells {
			if c.busy < 0.005 {
				continue
			}
			slow := min(1, max(0, (c.slow/c.busy-0.95)/0.35))
			fmt.Fprintf(s, `<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" fill="rgb(%.0f,%.0f,%.0f)" fill-opacity="%.2f"/>`,
				plotX+w*float64(i), h*float64(u)+4, w, h, 40+190*slow, 110-60*slow, 190-150*slow, min(1, c.busy))
		}
		if u%max(1, len(r.heat.cells)/16) == 0 {
			s.label(plotX-5, h*float64(u)+10, "end", fmt.Sprint(u))
		}
	}
	for i := 0; i <= heatSlots; i += heatSlots / 6 {
		hour := r.heat.last.Hours() * float64(i) / heatSlots
		s.label(plotX+w*float64(i), h*float64(len(r.heat.cells))+20, "middle", number(hour)+" h")
	}
	return s.end()
}
