// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"math/rand/v2"
	"testing"
)

func TestDriftStory(t *testing.T) {
	d := NewDrift(1, 0)
	steps := []struct {
		score float64
		want  DriftState
	}{
		{1.001, Steady}, {0.999, Steady},
		{1.008, Alarmed}, {1.001, Cleared}, // one bad session
		{1.02, Alarmed}, {1.02, Confirmed}, // a large step takes two sessions
		{1.02, Steady},
		{1.027, Alarmed}, {1.027, Alarmed}, {1.026, Confirmed}, // a small step takes three
		{0.99, Alarmed}, {0.99, Confirmed}, // faster again
	}
	for i, s := range steps {
		before := d.Baseline
		e := d.Observe(s.score)
		if e.State != s.want {
			t.Fatalf("session %d at %v: %s, want %s (%+v)", i+1, s.score, e.State, s.want, d)
		}
		if e.From != before || e.To != d.Baseline || (e.State == Confirmed) == (before == d.Baseline) {
			t.Errorf("session %d at %v: event %+v, baseline %v before and %v after", i+1, s.score, e, before, d.Baseline)
		}
	}
}

func TestDriftDegraded(t *testing.T) {
	d := NewDrift(1, 0)
	d.Observe(1.2)
	if e := d.Observe(1.2); e.State != Confirmed || !e.Degraded {
		t.Errorf("20 %% slower twice: %+v", e)
	}
	d = NewDrift(1, 0)
	d.Observe(0.8)
	if e := d.Observe(0.8); e.State != Confirmed || e.Degraded {
		t.Errorf("20 %% faster twice: %+v", e)
	}
}

// A creep of 0.05 % per session is below the noise of each session. The sum of deviations detects
// it.
func TestDriftFindsCreep(t *testing.T) {
	d := NewDrift(1, 0)
	for s := 1; s <= 20; s++ {
		if d.Observe(1+0.0005*float64(s)).State == Confirmed {
			if s > 12 {
				t.Errorf("creep confirmed only after %d sessions", s)
			}
			return
		}
	}
	t.Error("creep of 1 % in 20 sessions not confirmed")
}

// A lasting shift of one standard deviation is too small for the moving average, but the sum
// detects it.
func TestDriftSumsUpSmallShifts(t *testing.T) {
	d := NewDrift(1, 0)
	for s := 1; s <= 15; s++ {
		if d.Observe(1+minSigma).State == Alarmed {
			if s < 8 {
				t.Errorf("alarm as early as after %d sessions", s)
			}
			return
		}
	}
	t.Error("no alarm in 15 sessions")
}

// Limits on false and missed alarms, with normal noise of the size measured on Longhorn (median
// GPU 0.11 %, noisiest tenth from 0.25 %). docs/results/studies.md has the results with the
// measured noise.
func TestDriftOnNormalNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	for _, sigma := range []float64{0.0011, 0.0025} {
		const gpuYears = 2000
		confirmed, found := 0, 0
		for range gpuYears {
			d := NewDrift(1, sigma)
			for range 52 {
				if d.Observe(1+sigma*rng.NormFloat64()).State == Confirmed {
					confirmed++
				}
			}
			d = NewDrift(1, sigma)
			for range 2 {
				if d.Observe(1.02+sigma*rng.NormFloat64()).State == Alarmed {
					found++
					break
				}
			}
		}
		if rate := float64(confirmed) / gpuYears; rate > 0.2 {
			t.Errorf("noise %v: %.3f confirmed false alarms per GPU-year", sigma, rate)
		}
		if share := float64(found) / gpuYears; share < 0.99 {
			t.Errorf("noise %v: %.3f of 2 %% steps found within 2 sessions", sigma, share)
		}
	}
}
