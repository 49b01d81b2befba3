// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package plot

import "fmt"

// Areas is a plot that shows how several quantities, stacked on each other, change over time. Its
// panels are drawn below each other and share their axes.
type Areas struct {
	Name, Title string
	X, Y        Axis
	Bands       []Band // from bottom to top
	Panels      []Panel
}

// Band is one of the stacked quantities.
type Band struct {
	Name   string
	Colour int
}

// Panel is one of the drawings of an [Areas] plot. Values[i] are the values of the bands from At[i]
// until At[i+1]; the last values apply until End.
type Panel struct {
	Title  string
	At     []float64
	Values [][]float64
	End    float64
}

// Sizes of the panels in a figure.
const (
	panelHeight = 150.0
	panelGap    = 34.0
)

// Figure draws the plot.
func (a Areas) Figure() Figure {
	xs, ys := []float64{0}, append([]float64{0}, a.Y.Ticks...)
	for _, p := range a.Panels {
		xs = append(xs, p.End)
		for _, values := range p.Values {
			ys = append(ys, total(values))
		}
	}
	var c canvas
	c.title(a.Title)
	x, y := newScale(a.X, xs), newScale(a.Y, ys)
	top := areaTop + 18
	for _, p := range a.Panels {
		c.panel(a, p, x, y, top)
		top += panelHeight + panelGap
	}
	bottom := top - panelGap
	for _, v := range x.ticks {
		c.text(areaLeft+areaWidth*x.at(v), bottom+16, "middle", "soft", Number(v))
	}
	c.text(areaLeft+areaWidth/2, bottom+36, "middle", "", a.X.Label)
	at := areaLeft
	for _, b := range a.Bands {
		c.box(at, bottom+50, 14, 12, b.Colour)
		c.text(at+20, bottom+60, "start", "", b.Name)
		at += 150
	}
	return Figure{a.Name, figureWidth, bottom + 76, c.String()}
}

func total(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum
}

func (c *canvas) panel(a Areas, p Panel, x, y scale, top float64) {
	down := func(v float64) float64 { return top + panelHeight*(1-y.at(v)) }
	right := func(v float64) float64 { return areaLeft + areaWidth*x.at(v) }
	for b := len(a.Bands) - 1; b >= 0; b-- { // each band is drawn from zero; the bands below are drawn over it
		fmt.Fprintf(c, `<path fill="%s" d="`, hue(a.Bands[b].Colour))
		before := down(0)
		for i, at := range p.At {
			v := down(total(p.Values[i][:b+1]))
			if i == 0 {
				fmt.Fprintf(c, "M%.1f %.1f", right(at), before)
			} else {
				fmt.Fprintf(c, "H%.1f", right(at))
			}
			fmt.Fprintf(c, "V%.1f", v)
		}
		fmt.Fprintf(c, `H%.1fV%.1fZ"/>`, right(p.End), down(0))
	}
	c.rows(y, top, panelHeight)
	c.text(areaLeft, top-6, "start", "", p.Title)
	c.upright(top+panelHeight/2, a.Y.Label)
}
