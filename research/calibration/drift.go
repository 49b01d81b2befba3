// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"math/rand/v2"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// sessionsPerYear: a GPU is measured weekly.
const sessionsPerYear = 52

// noise is one GPU's measured scores relative to its own median.
type noise struct {
	score      float64   // its median over the median GPU's
	deviations []float64 // of its runs, relative
}

// draw is the relative deviation of one session: the median of runs taken at
// random, as a session is more than one run.
func (n noise) draw(rng *rand.Rand, runs int) float64 {
	d := make([]float64, runs)
	for i := range d {
		d[i] = n.deviations[rng.IntN(len(n.deviations))]
	}
	sort.Float64s(d)
	return d[len(d)/2]
}

// sigma is the robust standard deviation of one run.
func (n noise) sigma() float64 {
	d := make([]float64, len(n.deviations))
	for i, x := range n.deviations {
		d[i] = max(x, -x)
	}
	sort.Float64s(d)
	return 1.4826 * profile.Quantile(d, 0.5)
}

// driftFigures is what years of weekly sessions on unchanged GPUs, and steps
// put into them, gave.
type driftFigures struct {
	GPUs, Years                                  int
	AlarmsPerGPUYear, FalseConfirmedPerGPUYear   float64
	ClassChangesWithout, ClassChangesPerGPUYear  float64 // without and with hysteresis
	StepFound, StepConfirmed, StepMedianSessions map[float64]float64
}

// simulateDrift runs every GPU for years of sessions, each the median of runs
// runs drawn from its own; then puts steps into it. A step is found when the
// first alarm comes within 2 sessions, confirmed when it is within 3.
func simulateDrift(gpus []noise, years, runs int, seed uint64) driftFigures {
	rng := rand.New(rand.NewPCG(seed, 0))
	f := driftFigures{GPUs: len(gpus), Years: years,
		StepFound: map[float64]float64{}, StepConfirmed: map[float64]float64{}, StepMedianSessions: map[float64]float64{}}
	alarms, confirmed := 0, 0
	for _, g := range gpus {
		a, c := quietYears(g, years*sessionsPerYear, runs, rng)
		alarms, confirmed = alarms+a, confirmed+c
	}
	gpuYears := float64(len(gpus) * years)
	f.AlarmsPerGPUYear, f.FalseConfirmedPerGPUYear = float64(alarms)/gpuYears, float64(confirmed)/gpuYears
	without, with := classChanges(gpus, years*sessionsPerYear, runs, rng)
	f.ClassChangesWithout, f.ClassChangesPerGPUYear = float64(without)/gpuYears, float64(with)/gpuYears
	for _, step := range []float64{0.005, 0.01, 0.02} {
		f.step(gpus, step, runs, rng)
	}
	return f
}

// quietYears counts alarms and confirmed changes of a GPU that never changes.
func quietYears(g noise, sessions, runs int, rng *rand.Rand) (alarms, confirmed int) {
	d := profile.NewDrift(g.score, g.sigma())
	alarmed := false
	for range sessions {
		state := d.Observe(g.score * (1 + g.draw(rng, runs))).State
		if state == profile.Alarmed && !alarmed {
			alarms++
		}
		if state == profile.Confirmed {
			confirmed++
		}
		alarmed = state == profile.Alarmed
	}
	return alarms, confirmed
}

// step puts a slowdown into every GPU after 10 quiet sessions.
func (f *driftFigures) step(gpus []noise, size float64, runs int, rng *rand.Rand) {
	var delays []float64
	found, confirmed := 0, 0
	for _, g := range gpus {
		d := profile.NewDrift(g.score, g.sigma())
		for range 10 {
			d.Observe(g.score * (1 + g.draw(rng, runs)))
		}
		d = profile.NewDrift(g.score, g.sigma())
		alarm, sure := 0, 0
		for s := 1; s <= sessionsPerYear && sure == 0; s++ {
			state := d.Observe(g.score * (1 + size) * (1 + g.draw(rng, runs))).State
			if alarm == 0 && state == profile.Alarmed {
				alarm = s
			}
			if state == profile.Confirmed {
				sure = s
			}
		}
		if alarm >= 1 && alarm <= 2 {
			found++
		}
		if sure >= 1 && sure <= 3 {
			confirmed++
		}
		delays = append(delays, float64(alarm))
	}
	sort.Float64s(delays)
	f.StepFound[size] = float64(found) / float64(len(gpus))
	f.StepConfirmed[size] = float64(confirmed) / float64(len(gpus))
	f.StepMedianSessions[size] = profile.Quantile(delays, 0.5)
}

// classChanges recalibrates the whole cluster after every session and counts
// the GPUs that change class, by plain edges and by Build with hysteresis.
func classChanges(gpus []noise, sessions, runs int, rng *rand.Rand) (without, with int) {
	o := profile.DefaultOptions()
	var prev *profile.Profile
	var plain []int
	for range sessions {
		samples := make([]profile.Sample, len(gpus))
		scores := make([]float64, len(gpus))
		for i, g := range gpus {
			scores[i] = g.score * (1 + g.draw(rng, runs))
			samples[i] = profile.Sample{GPU: gpuName(i), Model: "V100", App: "A", Time: scores[i]}
		}
		cur, err := profile.Build(samples, o, prev)
		if err != nil {
			panic(err) // the samples are ours
		}
		ranks := profile.Bins(scores, profile.Edges, o.Edges).Rank
		if prev != nil {
			for _, e := range profile.Diff(prev, cur) {
				if e.Kind == profile.ClassChanged {
					with++
				}
			}
			for i := range ranks {
				if ranks[i] != plain[i] {
					without++
				}
			}
		}
		prev, plain = cur, ranks
	}
	return without, with
}
