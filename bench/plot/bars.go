// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package plot

import "fmt"

// Bar is one value with its spread.
type Bar struct {
	Name      string
	Colour    int
	Value     float64
	Low, High float64 // both 0: no spread to draw
	// Beside is a value to compare with, drawn as a diamond; 0 means no diamond.
	Beside float64
	Note   string // text after the value
}

// Bars is a plot of horizontal bars, each with a name and a value.
type Bars struct {
	Name, Title string
	Label       string // label of the axis
	Beside      string // meaning of the diamonds; "": there are none
	Bars        []Bar
}

// Sizes of the rows of bars in a figure.
const (
	namesWidth = 220.0
	barsWidth  = figureWidth - namesWidth - 170 // room for value and note
	barRow     = 26.0
	barHeight  = 16.0
)

// Figure draws the plot.
func (b Bars) Figure() Figure {
	values := []float64{0}
	for _, r := range b.Bars {
		values = append(values, r.Value, r.High, r.Beside)
	}
	s := newScale(Axis{Label: b.Label}, values)
	bottom := areaTop + barRow*float64(len(b.Bars))
	var c canvas
	c.title(b.Title)
	for _, v := range s.ticks {
		at := namesWidth + barsWidth*s.at(v)
		c.line("grid", at, areaTop, at, bottom)
		c.text(at, bottom+16, "middle", "soft", Number(v))
	}
	for i, r := range b.Bars {
		c.bar(r, s, areaTop+barRow*float64(i)+barRow/2)
	}
	c.text(namesWidth+barsWidth/2, bottom+36, "middle", "", b.Label)
	height := bottom + 46
	if b.Beside != "" {
		c.diamond(namesWidth, height+4)
		c.text(namesWidth+10, height+8, "start", "", b.Beside)
		height += 20
	}
	return Figure{b.Name, figureWidth, height, c.String()}
}

// bar draws one bar, centred at height y.
func (c *canvas) bar(r Bar, s scale, y float64) {
	x := func(v float64) float64 { return namesWidth + barsWidth*s.at(v) }
	c.text(namesWidth-8, y+4, "end", "", r.Name)
	c.box(namesWidth, y-barHeight/2, x(r.Value)-namesWidth, barHeight, r.Colour)
	end := x(max(r.Value, r.High, r.Beside))
	if r.Low != 0 || r.High != 0 {
		c.line("mark", x(r.Low), y, x(r.High), y)
		c.line("mark", x(r.Low), y-4, x(r.Low), y+4)
		c.line("mark", x(r.High), y-4, x(r.High), y+4)
	}
	if r.Beside != 0 {
		c.diamond(x(r.Beside), y)
	}
	label := Number(r.Value)
	if r.Note != "" {
		label += " " + r.Note
	}
	c.text(end+8, y+4, "start", "", label)
}

func (c *canvas) diamond(x, y float64) {
	fmt.Fprintf(c, `<path class="mark" style="fill:var(--paper)" d="M%.1f %.1fl5 5l-5 5l-5 -5z"/>`, x, y-5)
}
