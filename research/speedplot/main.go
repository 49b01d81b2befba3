// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command speedplot turns the output of BenchmarkJobs (sim) into an SVG:
// what a simulated job costs, against the GPUs of the cluster, a line per
// number of jobs (`make sim-bench`).
package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// point is one benchmark: µs a job on a cluster.
type point struct {
	jobs, gpus int
	micros     float64
}

func main() {
	points, err := read(os.Stdin)
	if err == nil {
		_, err = io.WriteString(os.Stdout, draw(points))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "speedplot: %v\n", err)
		os.Exit(1)
	}
}

// read takes the points out of `go test -bench` output.
func read(r io.Reader) ([]point, error) {
	line := regexp.MustCompile(`^BenchmarkJobs/jobs=(\d+)/gpus=(\d+)\S*\s.*?([\d.]+) µs/job`)
	var ps []point
	s := bufio.NewScanner(r)
	for s.Scan() {
		m := line.FindStringSubmatch(s.Text())
		if m == nil {
			continue
		}
		jobs, err1 := strconv.Atoi(m[1])
		gpus, err2 := strconv.Atoi(m[2])
		micros, err3 := strconv.ParseFloat(m[3], 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, fmt.Errorf("read %q: not a benchmark line", s.Text())
		}
		ps = append(ps, point{jobs, gpus, micros})
	}
	if len(ps) == 0 {
		return nil, fmt.Errorf("no BenchmarkJobs line on standard input")
	}
	slices.SortStableFunc(ps, func(a, b point) int { return (a.jobs-b.jobs)*10 + min(1, max(-1, a.gpus-b.gpus)) })
	return ps, s.Err()
}

// The drawing area, and what it spans on both axes (powers of ten).
const (
	width, height = 620.0, 360.0
	left, top     = 60.0, 20.0
	right, bottom = 130.0, 40.0
)

// axis maps values to places on a log scale.
type axis struct{ low, high, from, to float64 }

func spanning(values []float64, from, to float64) axis {
	return axis{math.Floor(math.Log10(slices.Min(values))), math.Ceil(math.Log10(slices.Max(values)) + 1e-9), from, to}
}

func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*(math.Log10(v)-a.low)/(a.high-a.low)
}

func draw(ps []point) string {
	var gpus, micros []float64
	for _, p := range ps {
		gpus, micros = append(gpus, float64(p.gpus)), append(micros, p.micros)
	}
	x, y := spanning(gpus, left, width-right), spanning(micros, height-bottom, top)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="#fff"/>`+"\n", width, height)
	for e := x.low; e <= x.high; e++ {
		px := x.at(math.Pow(10, e))
		fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="#e3e8ec"/><text x="%.1f" y="%.1f" text-anchor="middle">%.0f</text>`+"\n", px, top, height-bottom, px, height-bottom+16, math.Pow(10, e))
	}
	for e := y.low; e <= y.high; e++ {
		py := y.at(math.Pow(10, e))
		fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#e3e8ec"/><text x="%.1f" y="%.1f" text-anchor="end">%g</text>`+"\n", left, py, width-right, left-6, py+4, math.Pow(10, e))
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">GPUs</text><text x="14" y="%.1f">CPU µs a job</text>`+"\n", (left+width-right)/2, height-6, top-6)
	for i := 0; i < len(ps); {
		n := i
		for ; n < len(ps) && ps[n].jobs == ps[i].jobs; n++ {
		}
		series(&b, ps[i:n], x, y, i)
		i = n
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// series draws the points of one number of jobs, joined, with its name.
func series(b *strings.Builder, ps []point, x, y axis, i int) {
	color := []string{"#286ebe", "#c0562b", "#3d8b57", "#7b5aa6", "#8a6d1d"}[i%5]
	var path []string
	for _, p := range ps {
		px, py := x.at(float64(p.gpus)), y.at(p.micros)
		path = append(path, fmt.Sprintf("%.1f,%.1f", px, py))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", px, py, color)
	}
	last := ps[len(ps)-1]
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.8"/><text x="%.1f" y="%.1f" fill="%s">%d jobs</text>`+"\n",
		strings.Join(path, " "), color, x.at(float64(last.gpus))+8, y.at(last.micros)+4, color, last.jobs)
}
