// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command speedplot turns the output of BenchmarkJobs (sim) into an SVG:
// what a simulated job costs, against the GPUs of the cluster, a line per
// number of jobs (`make sim-million`).
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/nomad-pal/nomad-pal/sim/plot"
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

func draw(ps []point) string {
	l := plot.Lines{Title: "What a simulated job costs", Marks: true, X: plot.Axis{Label: "GPUs", Log: true}, Y: plot.Axis{Label: "CPU µs a job", Log: true}}
	for _, p := range ps {
		name := fmt.Sprintf("%d jobs", p.jobs)
		if n := len(l.Series); n == 0 || l.Series[n-1].Name != name {
			l.Series = append(l.Series, plot.Series{Name: name, Colour: plot.Ours + n})
		}
		s := &l.Series[len(l.Series)-1]
		s.Points = append(s.Points, plot.Point{X: float64(p.gpus), Y: p.micros})
	}
	return l.Figure().File()
}
