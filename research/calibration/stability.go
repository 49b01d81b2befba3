// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/sim/paldata"
)

func gpuName(i int) string { return fmt.Sprintf("GPU-%04d", i) }

// series are the runs of one application on one cluster, by GPU in order of
// first appearance, each in order of the file.
type series struct {
	paldata.Series
	runs [][]float64
}

func readSeries(dir string, s paldata.Series) (series, error) {
	rows, err := paldata.ReadVariability(filepath.Join(dir, s.File))
	if err != nil {
		return series{}, err
	}
	out := series{Series: s}
	at := map[string]int{}
	for _, r := range rows {
		i, ok := at[r.GPU]
		if !ok {
			i = len(out.runs)
			at[r.GPU] = i
			out.runs = append(out.runs, nil)
		}
		out.runs[i] = append(out.runs[i], r.Time)
	}
	return out, nil
}

// noises are the GPUs with at least minRuns runs.
func (s series) noises(minRuns int) []noise {
	ref := median(s.medians())
	var out []noise
	for _, runs := range s.runs {
		if len(runs) < minRuns {
			continue
		}
		m := median(runs)
		n := noise{score: m / ref}
		for _, x := range runs {
			n.deviations = append(n.deviations, x/m-1)
		}
		out = append(out, n)
	}
	return out
}

func (s series) medians() []float64 {
	out := make([]float64, len(s.runs))
	for i, runs := range s.runs {
		out[i] = median(runs)
	}
	return out
}

// stability compares the calibrations from the first and from the second half
// of every GPU's runs.
type stability struct {
	GPUs int
	// Same is the share of GPUs in the same class by both, without memory;
	// Held after the second half came as two sessions on top of the first's
	// profile, with hysteresis; Within1 at most one class apart without.
	Same, Held, Within1 float64
	Rank                float64 // Spearman's correlation of the scores
	// OneClass is how many of the two halves' calibrations are one class, as the
	// spread is within the noise: halves that disagree in that share few classes.
	OneClass int
	Ceiling  float64 // classes that two calibrations from shuffled halves share
}

// halves gives stability of GPUs with at least 2·minRuns runs.
func (s series) halves(minRuns int, seed uint64) (stability, error) {
	var first, second [][]float64
	for _, runs := range s.runs {
		if h := len(runs) / 2; h >= minRuns {
			first, second = append(first, runs[:h]), append(second, runs[len(runs)-h:])
		}
	}
	st := stability{GPUs: len(first)}
	if st.GPUs == 0 {
		return st, nil
	}
	a, err := calibrate(first, nil)
	if err != nil {
		return st, err
	}
	b, err := calibrate(second, nil)
	if err != nil {
		return st, err
	}
	held := a
	for _, part := range quarters(second) {
		if held, err = calibrate(part, held); err != nil {
			return st, err
		}
	}
	st.Same, st.Within1 = agreement(a, b, st.GPUs)
	st.Held, _ = agreement(a, held, st.GPUs)
	st.Rank = spearman(scoresOf(a, st.GPUs), scoresOf(b, st.GPUs))
	for _, p := range []*profile.Profile{a, b} {
		if p.Groups[0].SingleClass {
			st.OneClass++
		}
	}
	st.Ceiling, err = shuffledAgreement(first, second, seed)
	return st, err
}

// classes counts the GPUs per class, all runs taken together, and those that
// are outliers.
func (s series) classes() (byClass [profile.MaxClass]int, outliers int, err error) {
	p, err := calibrate(s.runs, nil)
	if err != nil {
		return byClass, 0, err
	}
	for i := range s.runs {
		e, _ := p.Lookup(gpuName(i), "A")
		byClass[e.Class-1]++
		if e.Outlier {
			outliers++
		}
	}
	return byClass, outliers, nil
}

// quarters splits every GPU's runs in two sessions.
func quarters(runs [][]float64) [2][][]float64 {
	var out [2][][]float64
	for _, xs := range runs {
		h := len(xs) / 2
		out[0], out[1] = append(out[0], xs[:h]), append(out[1], xs[h:])
	}
	return out
}

// shuffledAgreement is what run-to-run noise alone allows: halves drawn at
// random, so that time plays no part.
func shuffledAgreement(first, second [][]float64, seed uint64) (float64, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	a, b := make([][]float64, len(first)), make([][]float64, len(first))
	for i := range first {
		all := append(append([]float64(nil), first[i]...), second[i]...)
		rng.Shuffle(len(all), func(x, y int) { all[x], all[y] = all[y], all[x] })
		a[i], b[i] = all[:len(first[i])], all[len(first[i]):]
	}
	pa, err := calibrate(a, nil)
	if err != nil {
		return 0, err
	}
	pb, err := calibrate(b, nil)
	if err != nil {
		return 0, err
	}
	same, _ := agreement(pa, pb, len(a))
	return same, nil
}

func calibrate(runs [][]float64, prev *profile.Profile) (*profile.Profile, error) {
	var samples []profile.Sample
	for i, xs := range runs {
		for _, x := range xs {
			samples = append(samples, profile.Sample{GPU: gpuName(i), Model: "m", App: "A", Time: x})
		}
	}
	return profile.Build(samples, profile.DefaultOptions(), prev)
}

func agreement(a, b *profile.Profile, n int) (same, within1 float64) {
	for i := range n {
		x, _ := a.Lookup(gpuName(i), "A")
		y, _ := b.Lookup(gpuName(i), "A")
		if x.Class == y.Class {
			same++
		}
		if max(x.Class-y.Class, y.Class-x.Class) <= 1 {
			within1++
		}
	}
	return same / float64(n), within1 / float64(n)
}

func scoresOf(p *profile.Profile, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		e, _ := p.Lookup(gpuName(i), "A")
		out[i] = float64(e.Score)
	}
	return out
}

func median(xs []float64) float64 {
	s := append([]float64(nil), xs...)
	sort.Float64s(s)
	return profile.Quantile(s, 0.5)
}

// spearman is the correlation of ranks, ties sharing the mean rank.
func spearman(a, b []float64) float64 {
	ra, rb := ranks(a), ranks(b)
	mean := float64(len(a)-1) / 2
	var ab, aa, bb float64
	for i := range ra {
		x, y := ra[i]-mean, rb[i]-mean
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}

func ranks(xs []float64) []float64 {
	order := make([]int, len(xs))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return xs[order[i]] < xs[order[j]] })
	r := make([]float64, len(xs))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && xs[order[j]] == xs[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			r[order[k]] = float64(i+j-1) / 2
		}
		i = j
	}
	return r
}
