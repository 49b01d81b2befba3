// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package plot draws the figures of the simulator and of the measurements: lines, distributions,
// bars, areas and heat maps as self-contained SVG, in a page or as separate files, for light and
// dark screens. The same input gives the same bytes.
//
// The product does not use gonum.org/v1/plot, because that would add 5.6 MB and eight modules
// (fonts, PDF, LaTeX) to its binary.
package plot

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// Figure is a drawing.
type Figure struct {
	Name          string // file name, without .svg
	width, height float64
	body          string
}

// Colours is the number of colours. By convention, colours below Ours are for other policies; the
// rest are for the product's policies.
const (
	Colours = 10
	Ours    = 5
)

// Bad and Good are the colours of an undesirable and of a desirable quantity.
const (
	Bad  = 3
	Good = Ours + 2
)

// style is the CSS that all drawings share.
const style = `.plot{--paper:#fff;--ink:#1f2328;--soft:#656d76;--grid:#d8dee4;--c0:#8c510a;--c1:#d9730d;--c2:#e0a100;--c3:#c2185b;--c4:#7f7f7f;--c5:#5aa9d6;--c6:#2166ac;--c7:#1b7837;--c8:#762a83;--c9:#00897b;font:12px system-ui,sans-serif}
@media(prefers-color-scheme:dark){.plot{--paper:#0d1117;--ink:#e6edf3;--soft:#9aa4ae;--grid:#30363d;--c0:#c99a63;--c1:#ff9f4a;--c2:#f5d06b;--c3:#f48fb1;--c4:#a8a8a8;--c5:#9ad4f5;--c6:#5b9df0;--c7:#6fcf7d;--c8:#c8a2e0;--c9:#4dd0c0}}
.plot .paper{fill:var(--paper)}.plot text{fill:var(--ink)}.plot .soft{fill:var(--soft)}.plot .title{font-weight:600;font-size:14px}
.plot .grid{stroke:var(--grid);stroke-width:1}.plot .mark{stroke:var(--ink);stroke-width:1.5;fill:none}.plot .line{fill:none;stroke-width:2;stroke-linejoin:round}
`

// Inline returns the drawing for a page with the style of [Page].
func (f Figure) Inline() template.HTML {
	return template.HTML(f.svg("", "")) // #nosec: all texts are escaped when they are drawn
}

// File returns the drawing as a separate file.
func (f Figure) File() string {
	return f.svg(` xmlns="http://www.w3.org/2000/svg"`, "<style>"+style+"</style>") + "\n"
}

func (f Figure) svg(space, style string) string {
	return fmt.Sprintf(`<svg%s class="plot" viewBox="0 0 %.0f %.0f" width="%.0f" role="img">%s<rect class="paper" width="%.0f" height="%.0f"/>%s</svg>`,
		space, f.width, f.height, f.width, style, f.width, f.height, f.body)
}

// canvas collects the elements of a drawing.
type canvas struct{ strings.Builder }

func (c *canvas) text(x, y float64, anchor, class, text string) {
	fmt.Fprintf(c, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, html.EscapeString(text))
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
}

func (c *canvas) box(x, y, w, h float64, colour int) {
	fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, x, y, w, h, hue(colour))
}

func hue(colour int) string { return fmt.Sprintf("var(--c%d)", colour%Colours) }

// title draws the title above a figure.
func (c *canvas) title(text string) { c.text(8, 20, "start", "title", text) }

// Number formats a value for axes and labels, with three digits.
func Number(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 999_500:
		return fmt.Sprintf("%.3gM", v/1e6)
	case a >= 9_995:
		return fmt.Sprintf("%.3gk", v/1e3)
	case a >= 99.5:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
