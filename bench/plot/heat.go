// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package plot

import "fmt"

// Heat is a plot with one row per object and one column per time slot.
type Heat struct {
	Name, Title string
	X           string // label of the time axis
	End         float64
	Rows        [][]Cell // all of the same length
}

// Cell is one object in one time slot. Share, 0 to 1, is the share of the slot in which the object
// was busy; it is drawn as the cell's opacity. Warm, 0 to 1, is drawn as the cell's colour, from
// blue to red.
type Cell struct{ Share, Warm float64 }

// Sizes of the cells in a figure, and the marks along its axes.
const (
	cellHeight = 5.0
	heatMarks  = 16 // if there are more rows, at least this number have names, but fewer than twice this number
	heatHours  = 6
)

// Figure draws the plot.
func (h Heat) Figure() Figure {
	var c canvas
	c.title(h.Title)
	for i, row := range h.Rows {
		y, width := areaTop+cellHeight*float64(i), areaWidth/float64(len(row))
		for k, cell := range row {
			if cell.Share < 0.005 {
				continue
			}
			fmt.Fprintf(&c, `<rect x="%.1f" y="%.0f" width="%.1f" height="%.0f" fill="rgb(%.0f,%.0f,%.0f)" fill-opacity="%.2f"/>`,
				areaLeft+width*float64(k), y, width, cellHeight, 40+190*cell.Warm, 110-60*cell.Warm, 190-150*cell.Warm, min(1, cell.Share))
		}
		if i%max(1, len(h.Rows)/heatMarks) == 0 {
			c.text(areaLeft-6, y+6, "end", "soft", fmt.Sprint(i))
		}
	}
	bottom := areaTop + cellHeight*float64(len(h.Rows))
	for i := range heatHours + 1 {
		part := float64(i) / heatHours
		c.text(areaLeft+areaWidth*part, bottom+16, "middle", "soft", Number(h.End*part))
	}
	c.text(areaLeft+areaWidth/2, bottom+36, "middle", "", h.X)
	return Figure{h.Name, figureWidth, bottom + 46, c.String()}
}
