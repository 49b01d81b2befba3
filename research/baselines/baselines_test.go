// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package baselines

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

func job(id string, class pal.AppClass, gpus int, submitS, workS float64) trace.Job {
	return trace.Job{ID: id, Name: id, Class: class, GPUs: gpus, SubmitS: submitS, Iterations: workS, IterTimeS: 1}
}

// even is a cluster of equal GPUs.
func even(t *testing.T, nodes, gpus int, across float64) *pal.Cluster {
	t.Helper()
	p := sim.Population{Nodes: nodes, GPUsPerNode: gpus, Scores: make([][pal.NumClasses]pal.PMScore, nodes*gpus)}
	for i := range p.Scores {
		p.Scores[i] = [pal.NumClasses]pal.PMScore{1, 1, 1, 1}
	}
	ns, err := p.PalNodes(profile.DefaultOptions().Bin)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pal.NewCluster(ns, pal.TwoTier(across))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// spans are the first start and the finish of each job, in seconds.
func spans(o sim.Outcome) []string {
	var s []string
	for _, j := range o.Jobs {
		s = append(s, fmt.Sprintf("%s %g-%g", j.ID, math.Round(j.Start*1e3)/1e3, math.Round(j.Finish*1e3)/1e3))
	}
	return s
}

// Small workloads on small clusters of equal GPUs, with results worked out by hand.
func TestClairvoyantByHand(t *testing.T) {
	limit := func(nodes, gpus int, jobs ...trace.Job) func() (sim.Outcome, error) {
		return func() (sim.Outcome, error) { return Clairvoyant{Jobs: jobs, Cluster: even(t, nodes, gpus, 2)}.Run() }
	}
	four := []trace.Job{job("a", "A", 3, 0, 100), job("b", "A", 4, 10, 50), job("c", "A", 1, 20, 80), job("d", "A", 1, 20, 81)}
	// One GPU: a is long; b and c are short and arrive later.
	one := []trace.Job{job("a", "A", 1, 0, 1000), job("b", "A", 1, 100, 50), job("c", "A", 1, 110, 20)}
	// A holds 2 GPUs of a node, and moves at no cost for a gang of two members of 3 GPUs.
	gang, a := job("gang", "D", 6, 1, 300), job("a", "D", 2, 0, 100)
	gang.Groups, a.MemberGPUs = []trace.Group{{Members: 1, GPUs: 3}, {Members: 1, GPUs: 3}}, 2
	for _, tc := range []struct {
		name string
		run  func() (sim.Outcome, error)
		want []string
	}{
		{"the clairvoyant stops gangs at no cost: least remaining GPU time", limit(1, 1, one...),
			[]string{"a 0-1070", "b 100-170", "c 110-130"}},
		// b (200 GPU s) stops a (270 left), c and d (80, 81) stop b; from 100 to 101, a fits
		// beside d.
		{"the clairvoyant orders by remaining GPU time: c and d, b, a", limit(1, 4, four...),
			[]string{"a 0-230", "b 10-141", "c 20-100", "d 20-101"}},
		{"the clairvoyant pays for distance", limit(2, 2, job("a", "A", 3, 0, 100), job("b", "A", 2, 10, 100)),
			[]string{"a 0-300", "b 10-110"}},
		{"the clairvoyant moves gangs at no cost", limit(2, 2, job("x", "A", 1, 0, 10), job("y", "A", 2, 0, 100), job("z", "A", 1, 0, 100)),
			[]string{"x 0-10", "y 0-100", "z 0-100"}},
		{"the clairvoyant moves together what it had to spread", limit(2, 4, job("x", "A", 3, 0, 10), job("y", "A", 3, 0, 11), job("z", "A", 2, 0, 20)),
			[]string{"x 0-10", "y 0-11", "z 0-25"}},
		{"the clairvoyant stops what is in the way of members", limit(2, 4, a, gang), []string{"a 0-700", "gang 1-601"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := tc.run()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, spans(out)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Useful time is the work, and nothing is lost.
func TestUseful(t *testing.T) {
	out, err := Clairvoyant{Jobs: []trace.Job{job("a", "A", 2, 0, 1000), job("b", "A", 1, 500, 10)}, Cluster: even(t, 1, 2, 2)}.Run()
	if err != nil {
		t.Fatal(err)
	}
	const all = 2 * 1010
	if got := [4]float64{out.Useful * all, out.Utilization * all, out.LostGPUh, out.MakespanS}; math.Abs(got[0]-2010) > 1e-3 || math.Abs(got[1]-2010) > 1e-3 || got[2] != 0 || got[3] != 1010 {
		t.Errorf("useful, held and lost GPU seconds and makespan: %v", got)
	}
}

// No policy has a lower average than the clairvoyant one, on workloads like those for which the
// queue was tuned.
func TestNobodyBeatsTheClairvoyant(t *testing.T) {
	for seed := range uint64(3) {
		jobs := trace.SiaPhilly(seed, trace.Shape{Jobs: 160}).Jobs
		average := func(p sim.Policy) float64 {
			t.Helper()
			out, err := p.Run(sim.Config{Jobs: jobs, Cluster: even(t, 8, 8, 1.7), RestartS: 60, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			if out.Stuck > 0 {
				return math.Inf(1)
			}
			return sim.FiguresOf(out.Jobs).AvgJCT
		}
		best := average(Of(Limit))
		for _, p := range All() {
			if got := average(p); got < best {
				t.Errorf("seed %d: %s has an average of %v s, the clairvoyant policy %v s", seed, p.Name, got, best)
			}
		}
	}
}

// A run of centuries is refused, and a job that takes no time ends at once.
func TestLongAndShortRuns(t *testing.T) {
	_, err := Clairvoyant{Jobs: []trace.Job{job("long", "D", 1, 0, 1e11)}, Cluster: even(t, 2, 4, 1.7)}.Run()
	if err == nil || !strings.Contains(err.Error(), `job "long" would run for more than 100 years`) {
		t.Error(err)
	}
	out, err := Clairvoyant{Jobs: []trace.Job{job("a", "D", 1, 0.12345678912, 0), job("b", "D", 1, 0.5, 10)}, Cluster: even(t, 2, 4, 1.7)}.Run()
	if err != nil || out.Jobs[0].JCT() < 0 || out.Jobs[0].Wait < 0 {
		t.Errorf("%+v, %v", out.Jobs, err)
	}
}
