// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"math"

	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// near is the largest relative error of the simulator that counts as close to the measurement.
const near = 0.05

// beside compares the measured average JCT (s) of one run with the simulated one.
type beside struct {
	seed                uint64
	measured, simulated float64
	low, high           float64 // range of the simulations with jitter; 0 without such simulations
}

// beside returns the comparisons for a line's runs; none for plain Nomad.
func (l *line) beside() []beside {
	var out []beside
	for _, r := range l.Raw {
		if r.Predicted == nil {
			continue
		}
		b := beside{seed: r.Seed, measured: r.Summarize(l.gpus).AvgJCT.Seconds(), simulated: r.Predicted.AvgJCTOf(r)}
		if js := r.Predicted.Jittered; len(js) > 0 {
			b.low, b.high = js[0], js[len(js)-1]
		}
		if b.measured > 0 {
			out = append(out, b)
		}
	}
	return out
}

// off returns the simulator's relative error.
func (b beside) off() float64 { return b.simulated/b.measured - 1 }

func (b beside) close() bool { return math.Abs(b.off()) <= near }

// chance reports whether the measured value lies within the range of simulations of the same run
// with jitter.
func (b beside) chance() bool { return b.low <= b.measured && b.measured <= b.high }

// verdict returns "yes" if the simulator is close to the measurement, "by chance" if it differs only
// by chance, otherwise "no".
func (b beside) verdict() string {
	switch {
	case b.close():
		return "yes"
	case b.chance():
		return "by chance"
	}
	return "no"
}

func (b beside) cells() []string {
	jittered := "–"
	if b.high > 0 {
		jittered = fmt.Sprintf("%.1f…%.1f", b.low, b.high)
	}
	return []string{fmt.Sprint(b.seed), fmt.Sprintf("%.1f", b.measured), fmt.Sprintf("%.1f", b.simulated), fmt.Sprintf("%+.1f %%", 100*b.off()), jittered, b.verdict()}
}

// simulate counts the runs for which the simulator is close to the measurement, or differs only by
// chance.
func (l *line) simulate() {
	l.SimAvgJCT = l.mean(func(r *replay.Result, _ replay.Summary) float64 {
		if r.Predicted == nil {
			return 0
		}
		return r.Predicted.AvgJCTOf(r)
	})
	l.SimClose, l.SimChance = 0, 0
	for _, b := range l.beside() {
		switch b.verdict() {
		case "yes":
			l.SimClose++
		case "by chance":
			l.SimChance++
		}
	}
}

func (v view) simulated() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "seed", "measured avg JCT (s)", "simulated", "difference", "with jitter", "within 5 %"}}
	for _, l := range v.lines {
		for _, b := range l.beside() {
			t.Rows = append(t.Rows, append([]string{l.title()}, b.cells()...))
		}
	}
	return t
}
