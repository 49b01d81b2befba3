// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

// handed returns a run of gangs. Each gang was submitted, placed, started and finished at these
// seconds (placed 0: not recorded) on these GPUs.
func handed(jobs ...JobResult) *Result {
	return &Result{Jobs: jobs}
}

func gang(submitted, placed, started, finished float64, gpus ...string) JobResult {
	at := func(s float64) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(s * float64(time.Second))) }
	j := JobResult{SubmittedAt: at(submitted), StartedAt: at(started), FinishedAt: at(finished), Attempts: 1, GPUIDs: map[string][]string{"n": gpus}}
	if placed > 0 {
		j.PlacedAt = at(placed)
	}
	return j
}

func TestHandovers(t *testing.T) {
	t.Parallel()
	s := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	stopped := gang(0, 30, 31, 32, "g2")
	stopped.Attempts = 2
	r := handed(
		gang(0, 0.5, 1, 10, "g1"),   // found its GPU free
		gang(2, 10.5, 12, 20, "g1"), // waited for the first
		gang(1, 21, 23, 30, "g1"),   // waited for both, by choice or not
		stopped,                     // unknown when it got which GPUs
		gang(40, 39, 41, 42, "g1"),  // clocks differ
	)
	want := []Handover{{false, s(0.5), s(0.5)}, {true, s(0.5), s(1.5)}, {true, s(1), s(2)}, {false, 0, s(1)}}
	if d := cmp.Diff(want, r.Handovers()); d != "" {
		t.Error(d)
	}
}

// The simulator gets the time of starts on free GPUs (without gangs that waited by choice), and how
// much longer starts on another gang's GPUs took.
func TestStartingAndEnding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		run      *Result
		starting []float64
		ending   float64
	}{
		{"both", handed(gang(0, 0.5, 1, 10, "g1"), gang(2, 11, 12, 20, "g1"), gang(0, 0.5, 2, 10, "g3"), gang(0, 50, 51, 60, "g2")), []float64{1, 2}, 0.5},
		{"no end", handed(gang(0, 0.5, 1, 10, "g1")), []float64{1}, 0},
		{"nothing ran", handed(), nil, 0},
	} {
		if got := c.run.starting(); !cmp.Equal(got, c.starting) {
			t.Errorf("%s: starting %v, want %v", c.name, got, c.starting)
		}
		if got := c.run.ending(); got != c.ending {
			t.Errorf("%s: ending %v, want %v", c.name, got, c.ending)
		}
	}
}

// twoNodes returns two nodes with four GPUs each.
func twoNodes(t *testing.T) *GPUs {
	t.Helper()
	all, err := population.Draw(population.Spec{Cluster: "longhorn", Nodes: 2, GPUsPerNode: 4}, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := NewGPUs(all)
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

// If jobs of a run may be stopped, the simulator also stops gangs, and the prediction counts how
// often.
func TestPredictPreemptions(t *testing.T) {
	t.Parallel()
	gpus := twoNodes(t)
	for preempt, want := range map[bool]int{true: 1, false: 0} {
		jobs := []Job{
			{ID: "long", Class: "A", Allocations: 2, GPUsEach: 4, Iterations: 400, Iteration: 250 * time.Millisecond, Preempt: preempt},
			{ID: "short", Class: "A", Allocations: 1, GPUsEach: 4, Iterations: 4, Iteration: 250 * time.Millisecond, Submit: 50 * time.Second, Preempt: preempt},
		}
		o := queue.Options{Order: queue.LAS, Quantum: time.Second, Placement: pal.Policy{Name: pal.PAL}, Preempt: true}
		p, err := Predict(jobs, gpus, 1.7, o, sim.Config{RestartS: 1})
		if err != nil {
			t.Fatal(err)
		}
		if p.Preemptions != want {
			t.Errorf("preemption allowed: %v: %d gangs stopped, want %d", preempt, p.Preemptions, want)
		}
	}
}

// If gangs never wait, the prediction of a run is exact, with jitter, too. If they wait for each
// other, jitter changes the average.
func TestPredictRun(t *testing.T) {
	t.Parallel()
	gpus := twoNodes(t)
	for _, c := range []struct {
		every  float64
		varies float64 // largest change of the average
	}{{100, 0}, {5, 2}} {
		r := &Result{Seed: 3}
		for i := range 8 {
			at := c.every * float64(i)
			g := gang(at, at+0.5, at+1.5, at+12, "g1")
			g.Job = Job{ID: fmt.Sprint("j", i), Class: "A", Allocations: 1, GPUsEach: 4, Iterations: 40, Iteration: 250 * time.Millisecond}
			r.Jobs = append(r.Jobs, g)
		}
		o := queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.PAL}}
		p, err := PredictRun(r, gpus, 1.7, o, sim.Config{RestartS: 1})
		if err != nil {
			t.Fatal(err)
		}
		again, err := PredictRun(r, gpus, 1.7, o, sim.Config{RestartS: 1})
		if d := cmp.Diff(p, again); d != "" || err != nil {
			t.Errorf("the second call returned another prediction (%v):\n%s", err, d)
		}
		if len(p.Jittered) != jitters || !cmp.Equal(p.JCTS["j0"] > 11, true) {
			t.Fatalf("every %v s: %+v", c.every, p)
		}
		if spread := p.Jittered[jitters-1] - p.Jittered[0]; spread > c.varies+1e-9 || c.varies > 0 && spread == 0 {
			t.Errorf("every %v s: averages %v", c.every, p.Jittered)
		}
		if c.varies == 0 && math.Abs(p.AvgJCTS-p.Jittered[0]) > 1e-9 {
			t.Errorf("every %v s: %v, with jitter %v", c.every, p.AvgJCTS, p.Jittered)
		}
	}
}
