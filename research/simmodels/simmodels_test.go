// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

func speeds(a, b float64) pal.Speeds {
	return pal.Speeds{deviceName("a"): a, deviceName("b"): b}
}

// Two kinds with equal work, and one GPU of each of two models. Each kind runs on the model that
// suits it, and both end at the same time. If one model suits both, the kind that gains less by
// it goes to the other.
func TestFluid(t *testing.T) {
	for _, tc := range []struct {
		kinds []kind
		span  float64
	}{
		{[]kind{{speeds(1, 0.5), 100}, {speeds(0.5, 1), 100}}, 100},
		// The first kind takes 100 s on model a. Meanwhile model b does 0.5 · 100 of the second
		// kind, which then uses both models.
		{[]kind{{speeds(1, 0.1), 100}, {speeds(1, 0.5), 100}}, 100 + 50/1.5},
	} {
		span, prices, err := fluid(tc.kinds, []string{"a", "b"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(span-tc.span) > 1e-6 {
			t.Errorf("%v: it ends after %v s, want %v", tc.kinds, span, tc.span)
		}
		if sum := prices[deviceName("a")] + prices[deviceName("b")]; math.Abs(sum-1) > 1e-9 {
			t.Errorf("%v: prices %v add up to %v", tc.kinds, prices, sum)
		}
	}
}

// For jobs that arrive at the same time on one GPU, shortest first is best, and the bound is no
// higher.
func TestBound(t *testing.T) {
	var jobs []job
	for _, work := range []float64{1, 2, 3} {
		jobs = append(jobs, job{trace.Job{GPUs: 1, Iterations: work, IterTimeS: 1}, pal.Speeds{deviceName("a"): 1}})
	}
	got := bound(jobs, []string{"a"}, 1, map[string]float64{deviceName("a"): 1})
	if best := (1. + 3 + 6) / 3; math.Abs(got-best) > 1e-9 {
		t.Errorf("bound %v, the best policy's average is %v", got, best)
	}
}

// On the workload that simulates fastest, no policy beats the bound, and jobs end sooner with
// speeds than without.
func TestCell(t *testing.T) {
	if os.Getenv("PAL_DATA") == "" {
		t.Skip("PAL_DATA is not set; set it to the directory with Gavel's and Sia's measurements")
	}
	w, err := gavel(paldata.Dir(), "103959", true)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := w.cells([]float64{0.85})
	if err != nil {
		t.Fatal(err)
	}
	c := cs[0]
	for _, p := range []string{agnostic, fastest, ours} {
		r, err := c.run(p)
		if err != nil {
			t.Fatal(err)
		}
		if c.Runs = append(c.Runs, r); r.AvgJCT < c.Bound {
			t.Errorf("%s: average %v s is below the bound, %v s", p, r.AvgJCT, c.Bound)
		}
	}
	if a, o := c.Runs[0].AvgJCT, c.Runs[2].AvgJCT; o > 0.95*a {
		t.Errorf("average %v s with speeds, %v s without", o, a)
	}
}

// fits agrees with the linear program, solved by gonum, on whether all work can be done in time.
func TestFits(t *testing.T) {
	models := []string{"a", "b", "c"}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var c crowd
		var kinds []kind
		for range 1 + rng.IntN(6) {
			s := [3]float64{rng.Float64(), rng.Float64(), 1}
			rng.Shuffle(3, func(i, j int) { s[i], s[j] = s[j], s[i] })
			of := pal.Speeds{}
			for m, model := range models {
				of[deviceName(model)] = s[m]
			}
			rate := 10 * rng.Float64()
			c.speeds, c.rates, c.gpus = append(c.speeds, s), append(c.rates, rate), append(c.gpus, 1e9)
			kinds = append(kinds, kind{of, rate})
		}
		span, _, err := fluid(kinds, models, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, gpus := range []float64{0.999 * span, 1.001 * span} {
			if got, want := c.fits(gpus), gpus > span; got != want {
				t.Errorf("%v: with %v GPUs of each fits is %v, they need %v", kinds, gpus, got, span)
			}
		}
	}
}

// Equal jobs that arrive at the same time get equal shares, and end at the same time. A single
// job gets its fastest model. Jobs that suit different models get these.
func TestFinishTimeFairness(t *testing.T) {
	models := []string{"a", "b", "c"}
	on := func(a, b, c float64) pal.Speeds {
		return pal.Speeds{deviceName("a"): a, deviceName("b"): b, deviceName("c"): c}
	}
	does := func(work float64, s pal.Speeds) job {
		return job{trace.Job{GPUs: 1, Iterations: work, IterTimeS: 1}, s}
	}
	for _, tc := range []struct {
		name string
		jobs []job
		want float64
	}{
		{"alone", []job{does(10, on(1, 0.5, 0.1))}, 10},
		{"six alike on three GPUs", []job{does(10, on(1, 1, 1)), does(10, on(1, 1, 1)), does(10, on(1, 1, 1)), does(10, on(1, 1, 1)), does(10, on(1, 1, 1)), does(10, on(1, 1, 1))}, 20},
		{"each has its own", []job{does(10, on(1, 0.1, 0.1)), does(10, on(0.1, 1, 0.1)), does(10, on(0.1, 0.1, 1))}, 10},
	} {
		got, err := finishTimeFairness(tc.jobs, models, 1)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-tc.want) > 1e-2*tc.want {
			t.Errorf("%s: %v s on average, want %v", tc.name, got, tc.want)
		}
	}
	if _, err := finishTimeFairness(nil, models[:2], 1); err == nil {
		t.Error("two models are accepted")
	}
}
