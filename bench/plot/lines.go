// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package plot

import (
	"fmt"
	"slices"
)

// Point is a point of a plot, in the units of the axes.
type Point struct{ X, Y float64 }

// Series is one line.
type Series struct {
	Name   string
	Colour int
	Dashed bool
	Points []Point // in order of X
}

// Lines is a plot of several series over the same axes.
type Lines struct {
	Name, Title string
	X, Y        Axis
	Series      []Series
	Steps       bool // a value stays until the next point
	Marks       bool // a dot at every point
}

// Distribution returns the cumulative distribution of the values, as percentages of the total count
// `all`. If there are fewer than `all` values, the missing values count as larger than any other
// value.
func Distribution(values []float64, all int) []Point {
	asc := slices.Sorted(slices.Values(values))
	points := make([]Point, len(asc))
	for i, v := range asc {
		points[i] = Point{v, 100 * float64(i+1) / float64(max(all, 1))}
	}
	return points
}

// Size and position of the plot in a figure.
const (
	figureWidth = 720.0
	areaLeft    = 64.0
	areaTop     = 36.0
	areaWidth   = figureWidth - areaLeft - 24
	areaHeight  = 280.0
	legendTop   = areaTop + areaHeight + 62
	legendRow   = 20.0
	legendWide  = 224.0
)

// Figure draws the plot.
func (l Lines) Figure() Figure {
	var xs, ys []float64
	for _, s := range l.Series {
		for _, p := range l.shown(s) {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	var c canvas
	c.title(l.Title)
	if len(xs) == 0 {
		c.text(figureWidth/2, areaTop+areaHeight/2, "middle", "soft", "no values")
		return Figure{l.Name, figureWidth, areaTop + areaHeight, c.String()}
	}
	x, y := newScale(l.X, xs), newScale(l.Y, ys)
	c.axes(x, y)
	for _, s := range l.Series {
		l.draw(&c, s, x, y)
	}
	rows := c.legend(l.Series)
	return Figure{l.Name, figureWidth, legendTop + legendRow*float64(rows), c.String()}
}

func (c *canvas) axes(x, y scale) {
	c.rows(y, areaTop, areaHeight)
	for _, v := range x.ticks {
		at := areaLeft + areaWidth*x.at(v)
		c.line("grid", at, areaTop, at, areaTop+areaHeight)
		c.text(at, areaTop+areaHeight+16, "middle", "soft", Number(v))
	}
	c.text(areaLeft+areaWidth/2, areaTop+areaHeight+36, "middle", "", x.axis.Label)
	c.upright(areaTop+areaHeight/2, y.axis.Label)
}

// rows draws the grid lines of a vertical axis, from the height `top` downwards.
func (c *canvas) rows(y scale, top, height float64) {
	for _, v := range y.ticks {
		at := top + height*(1-y.at(v))
		c.line("grid", areaLeft, at, areaLeft+areaWidth, at)
		c.text(areaLeft-6, at+4, "end", "soft", Number(v))
	}
}

// upright draws the label of a vertical axis, centred at height y.
func (c *canvas) upright(y float64, label string) {
	fmt.Fprintf(c, `<g transform="translate(14 %.1f) rotate(-90)">`, y)
	c.text(0, 0, "middle", "", label)
	c.WriteString("</g>")
}

func (l Lines) draw(c *canvas, s Series, x, y scale) {
	fmt.Fprintf(c, `<path class="line" stroke="%s"%s d="`, hue(s.Colour), dash(s.Dashed))
	before := 0.0
	for i, p := range l.shown(s) {
		px, py := areaLeft+areaWidth*x.at(p.X), areaTop+areaHeight*(1-y.at(p.Y))
		switch {
		case i == 0:
			fmt.Fprintf(c, "M%.1f %.1f", px, py)
		case l.Steps:
			fmt.Fprintf(c, "L%.1f %.1fL%.1f %.1f", px, before, px, py)
		default:
			fmt.Fprintf(c, "L%.1f %.1f", px, py)
		}
		before = py
	}
	c.WriteString(`"/>`)
	if !l.Marks {
		return
	}
	for _, p := range l.shown(s) {
		fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`,
			areaLeft+areaWidth*x.at(p.X), areaTop+areaHeight*(1-y.at(p.Y)), hue(s.Colour))
	}
}

// shown returns the points of a series that the axes can show.
func (l Lines) shown(s Series) []Point {
	return slices.DeleteFunc(slices.Clone(s.Points), func(p Point) bool { return !l.X.shows(p.X) || !l.Y.shows(p.Y) })
}

func dash(dashed bool) string {
	if dashed {
		return ` stroke-dasharray="6 3"`
	}
	return ""
}

// legend names the series below the plot and returns its number of rows.
func (c *canvas) legend(series []Series) int {
	const columns = 3
	for i, s := range series {
		x, y := areaLeft+float64(i%columns)*legendWide, legendTop+legendRow*float64(i/columns)-4
		fmt.Fprintf(c, `<line class="line" stroke="%s"%s x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, hue(s.Colour), dash(s.Dashed), x, y, x+24, y)
		c.text(x+30, y+4, "start", "", s.Name)
	}
	return (len(series) + columns - 1) / columns
}
