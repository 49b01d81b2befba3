// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// summarize returns a summary of each group of the profile or, if app is not "", of each group of
// this application class.
func summarize(p *profile.Profile, app string) []groupSummary {
	var out []groupSummary
	for _, g := range p.Groups {
		if app != "" && g.App != pal.AppClass(app) {
			continue
		}
		s := groupSummary{Group: g, Members: members(p, g)}
		if r, ok := p.Rate(g.Model, g.App); ok {
			s.Rate, s.Unit, s.RatedGPUs, s.Speed = r.Rate, attr.RateUnit(g.App), r.GPUs, p.Speeds(g.App)[g.Model]
		}
		for class := range profile.MaxClass {
			c := classSummary{Class: class + 1}
			for _, m := range s.Members {
				if m.Class != c.Class {
					continue
				}
				if c.GPUs == 0 {
					c.Min = m.Score
				}
				c.Max = m.Score
				c.GPUs++
			}
			s.Classes = append(s.Classes, c)
		}
		out = append(out, s)
	}
	return out
}

// members returns the group's GPUs sorted by PM score, the fastest first; equal scores by id.
func members(p *profile.Profile, g profile.Group) []memberSummary {
	ms := []memberSummary{}
	for _, u := range p.GPUs {
		if u.Model != g.Model {
			continue
		}
		for _, e := range u.Entries {
			if e.App == g.App && e.Key == g.Key {
				ms = append(ms, memberSummary{ID: u.ID, Score: e.Score, Class: e.Class, Outlier: e.Outlier, Pending: e.Pending})
			}
		}
	}
	slices.SortFunc(ms, func(a, b memberSummary) int { return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.ID, b.ID)) })
	return ms
}

// The chart has one panel per group. PM scores grow to the right; each GPU is a dot, and dots with
// similar scores are stacked. Scores above lastScore are drawn at the right edge.
const (
	panelWidth, panelHeight = 800, 150
	marginLeft, marginTop   = 40, 60
	plotWidth, plotHeight   = 720, 70
	firstScore, lastScore   = 0.9, 1.3
	columnWidth             = 8
)

type panel struct {
	Y                  int
	Title, Remark      string
	Dots               []dot
	Ticks              []tick
	Bottom, Left, Wide int
}

type dot struct {
	X, Y   float64
	Radius float64
	Class  int
	Title  string
}

type tick struct {
	X     float64
	Label string
}

func place(score float64) float64 {
	share := (score - firstScore) / (lastScore - firstScore)
	return marginLeft + plotWidth*math.Min(1, math.Max(0, share))
}

// drawProfile draws the groups as one SVG.
func drawProfile(version int, groups []groupSummary) []byte {
	chart := struct {
		Version, Width, Height int
		Panels                 []panel
	}{Version: version, Width: panelWidth, Height: marginTop + panelHeight*len(groups)}
	for i, g := range groups {
		chart.Panels = append(chart.Panels, drawGroup(marginTop+i*panelHeight, g))
	}
	var b strings.Builder
	if err := svgTemplate().Execute(&b, chart); err != nil {
		panic(err) // the template is the program's own
	}
	return []byte(b.String())
}

func drawGroup(y int, g groupSummary) panel {
	p := panel{
		Y: y, Bottom: y + plotHeight + 20, Left: marginLeft, Wide: marginLeft + plotWidth,
		Title:  fmt.Sprintf("%s, application %s", g.Model, g.App),
		Remark: fmt.Sprintf("%d GPUs, spread %.1f %%", g.Measured, 100*g.Spread),
	}
	for s := firstScore; s < lastScore+0.01; s += 0.05 {
		label := fmt.Sprintf("%.2f", s)
		if s > lastScore-0.01 {
			label = "≥ " + label
		}
		p.Ticks = append(p.Ticks, tick{X: place(s), Label: label})
	}
	columns := map[int]int{}
	for _, m := range g.Members {
		columns[column(m)]++
	}
	fullest := 1
	for _, n := range columns {
		fullest = max(fullest, n)
	}
	step := math.Min(columnWidth, plotHeight/float64(fullest))
	clear(columns)
	for _, m := range g.Members {
		k := column(m)
		p.Dots = append(p.Dots, dot{
			X: float64(marginLeft + k*columnWidth), Y: float64(p.Bottom) - step*(float64(columns[k])+0.5),
			Radius: math.Max(0.5, 0.45*step), Class: m.Class,
			Title: fmt.Sprintf("%s: %.3f, class %d", m.ID, m.Score, m.Class),
		})
		columns[k]++
	}
	return p
}

func column(m memberSummary) int {
	return int(math.Round((place(float64(m.Score)) - marginLeft) / columnWidth))
}

func svgTemplate() *template.Template {
	return template.Must(template.New("svg").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="11" role="img" aria-label="PM scores of all GPUs">
<style>.c1{fill:#1a9850}.c2{fill:#91cf60}.c3{fill:#fdae61}.c4{fill:#f46d43}.c5{fill:#a50026}text{fill:#333}line{stroke:#999}</style>
<rect width="100%" height="100%" fill="#fff"/>
<text x="40" y="20" font-size="14">PM scores (time relative to the median GPU), profile version {{.Version}}</text>
<g><circle class="c1" cx="44" cy="36" r="4"/><text x="52" y="40">class 1, the fastest</text><circle class="c2" cx="174" cy="36" r="4"/><text x="182" y="40">2</text><circle class="c3" cx="204" cy="36" r="4"/><text x="212" y="40">3</text><circle class="c4" cx="234" cy="36" r="4"/><text x="242" y="40">4</text><circle class="c5" cx="264" cy="36" r="4"/><text x="272" y="40">5</text></g>
{{range .Panels}}<text x="{{.Left}}" y="{{.Y}}" font-weight="bold">{{.Title}}</text><text x="{{.Wide}}" y="{{.Y}}" text-anchor="end">{{.Remark}}</text>
<line x1="{{.Left}}" y1="{{.Bottom}}" x2="{{.Wide}}" y2="{{.Bottom}}"/>
{{$bottom := .Bottom}}{{range .Ticks}}<text x="{{printf "%.1f" .X}}" y="{{$bottom}}" dy="14" text-anchor="middle">{{.Label}}</text>
{{end}}{{range .Dots}}<circle class="c{{.Class}}" cx="{{printf "%.1f" .X}}" cy="{{printf "%.2f" .Y}}" r="{{printf "%.2f" .Radius}}"><title>{{.Title}}</title></circle>
{{end}}{{end}}</svg>
`))
}
