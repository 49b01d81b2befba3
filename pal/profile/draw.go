// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// drawnBins is the number of bars of a distribution.
const drawnBins = 24

// bar is one interval of scores, with the GPUs in it by class.
type bar struct {
	from, to float64
	byClass  [MaxClass]int
}

func (b bar) total() int {
	n := 0
	for _, c := range b.byClass {
		n += c
	}
	return n
}

// distribution is a group's scores in bars of equal width, and beyond them the
// outliers, which would squeeze the others together.
type distribution struct {
	bars     []bar
	outliers []Entry // by score
	byClass  [MaxClass]int
	most     int // GPUs in the fullest bar
}

// entriesOfGroup are the group's entries in the order of the GPUs.
func (p *Profile) entriesOfGroup(g *Group) []Entry {
	var out []Entry
	for _, gpu := range p.GPUs {
		if gpu.Model != g.Model {
			continue
		}
		for _, e := range gpu.Entries {
			if e.App == g.App && e.Key == g.Key {
				out = append(out, e)
			}
		}
	}
	return out
}

func (p *Profile) distribution(g *Group) distribution {
	var d distribution
	var scores []float64
	var rest []Entry
	for _, e := range p.entriesOfGroup(g) {
		d.byClass[e.Class-1]++
		if float64(e.Score) >= p.Options.Outlier {
			d.outliers = append(d.outliers, e)
			continue
		}
		scores, rest = append(scores, float64(e.Score)), append(rest, e)
	}
	if len(scores) == 0 {
		return d
	}
	asc := sorted(scores)
	// At least 2 % wide, so that noise does not fill the picture.
	from, to := asc[0], asc[len(asc)-1]
	if to-from < 0.02 {
		from, to = (from+to)/2-0.01, (from+to)/2+0.01
	}
	width := (to - from) / drawnBins
	for i := range drawnBins {
		d.bars = append(d.bars, bar{from: from + float64(i)*width, to: from + float64(i+1)*width})
	}
	for i, e := range rest {
		at := min(drawnBins-1, int((scores[i]-from)/width))
		d.bars[at].byClass[e.Class-1]++
		d.most = max(d.most, d.bars[at].total())
	}
	return d
}

// title is a group in one line.
func (g *Group) title() string {
	s := fmt.Sprintf("%s, application %s: %d GPUs, spread %.1f %%", g.Model, g.App, g.Measured, 100*g.Spread)
	if g.Noise > 0 {
		s += fmt.Sprintf(", noise %.2f %%", 100*g.Noise)
	}
	if g.Key != "" {
		s += ", key " + g.Key
	}
	if g.SingleClass {
		s += "; the spread is within the noise: one class"
	}
	if g.Provisional {
		s += "; too few GPUs: provisional"
	}
	return s
}

// Text draws the distribution of every group for a terminal of that many
// columns: a bar per interval of scores, with the classes in it as digits.
func (p *Profile) Text(columns int) string {
	var b strings.Builder
	for i := range p.Groups {
		g := &p.Groups[i]
		d := p.distribution(g)
		fmt.Fprintf(&b, "%s\n", g.title())
		for _, r := range d.bars {
			bar := r.digits(max(10, columns-16), d.most) + count(r.total())
			fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("  %.3f %s", r.from, bar), " "))
		}
		for _, e := range d.outliers {
			fmt.Fprintf(&b, "  %.3f %d  outlier\n", e.Score, e.Class)
		}
		fmt.Fprintf(&b, "  classes:%s\n\n", d.classes())
	}
	if n := p.neverMeasured(); n > 0 {
		fmt.Fprintf(&b, "GPUs never measured: %d. They count as class %d.\n", n, MaxClass)
	}
	return b.String()
}

// digits is the bar: each class's share of it written in the class's digit.
func (r bar) digits(width, most int) string {
	var b strings.Builder
	drawn, sum := 0, 0
	for c, n := range r.byClass {
		sum += n
		upTo := int(math.Ceil(float64(width*sum) / float64(max(1, most))))
		if n > 0 {
			b.WriteString(strings.Repeat(fmt.Sprint(c+1), upTo-drawn))
			drawn = upTo
		}
	}
	return b.String()
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" %d", n)
}

func (d distribution) classes() string {
	var b strings.Builder
	for c, n := range d.byClass {
		fmt.Fprintf(&b, " %d: %d", c+1, n)
	}
	return b.String()
}

func (p *Profile) neverMeasured() int {
	n := 0
	for _, g := range p.GPUs {
		if len(g.Entries) == 0 {
			n++
		}
	}
	return n
}

// classColor goes from green, the fastest, to red.
func classColor(class int) string {
	return [MaxClass]string{"#1a9850", "#91cf60", "#d9d040", "#fc8d59", "#d73027"}[class-1]
}

// Sizes of the picture, in pixels.
const (
	svgWidth  = 760
	svgLeft   = 40
	svgRow    = 190
	svgHeight = 120 // of the fullest bar
)

// SVG draws the same picture as a file of its own.
func (p *Profile) SVG() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		svgWidth, 20+svgRow*len(p.Groups))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i := range p.Groups {
		p.svgGroup(&b, &p.Groups[i], 20+svgRow*i)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// svgGroup draws one group from this height on.
func (p *Profile) svgGroup(b *strings.Builder, g *Group, top int) {
	d := p.distribution(g)
	base := top + 20 + svgHeight
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", svgLeft, top+8, html.EscapeString(g.title()))
	step := float64(svgWidth-2*svgLeft-80) / drawnBins
	for i, r := range d.bars {
		x, y := svgLeft+float64(i)*step, float64(base)
		for c, n := range r.byClass {
			h := float64(svgHeight*n) / float64(max(1, d.most))
			y -= h
			if n > 0 {
				fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%.3f to %.3f, class %d: %d GPUs</title></rect>`+"\n",
					x, y, step-1, h, classColor(c+1), r.from, r.to, c+1, n)
			}
		}
		if i%6 == 0 {
			fmt.Fprintf(b, `<text x="%.1f" y="%d">%.3f</text>`+"\n", x, base+14, r.from)
		}
	}
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="black"/>`+"\n", svgLeft, base, svgWidth-svgLeft, base)
	for i, e := range d.outliers {
		fmt.Fprintf(b, `<circle cx="%d" cy="%d" r="4" fill="%s"><title>outlier, PM score %.3f</title></circle>`+"\n",
			svgWidth-svgLeft-60+(i%6)*10, base-6-(i/6)*10, classColor(e.Class), e.Score)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">classes:%s</text>`+"\n", svgLeft, base+28, html.EscapeString(d.classes()))
}
