// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// TestNomadModel compares the model of plain Nomad with Nomad's own scheduler on small clusters;
// e2e/scheduler/plain records its results in the file and checks them.
func TestNomadModel(t *testing.T) {
	b, err := os.ReadFile("testdata/nomad.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name   string
		GPUs   int
		Busy   []int
		Count  int
		Spread bool
		Placed map[string]float64
	}
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	const runs, tolerance = 2000, 0.08
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			got := map[string]float64{}
			for seed := range uint64(runs) {
				got[placedByModel(t, c.GPUs, c.Busy, c.Count, c.Spread, seed)] += 1.0 / runs
			}
			for k := range c.Placed {
				got[k] += 0 // outcomes that never occur in the model count too
			}
			for k, v := range got {
				if math.Abs(v-c.Placed[k]) > tolerance {
					t.Errorf("%q in %.3f of the runs, in Nomad's scheduler in %.3f", k, v, c.Placed[k])
				}
			}
		})
	}
}

func placedByModel(t *testing.T, gpus int, busy []int, count int, spread bool, seed uint64) string {
	t.Helper()
	p := Population{Nodes: len(busy), GPUsPerNode: gpus, Scores: make([][pal.NumClasses]pal.PMScore, len(busy)*gpus)}
	for i := range p.Scores {
		p.Scores[i] = [pal.NumClasses]pal.PMScore{1, 1, 1, 1}
	}
	c, err := p.Cluster(pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	one := job("j", "A", count, 0, 1)
	e := newNomadEngine(Nomad{Jobs: []trace.Job{one}, Cluster: c, Spread: spread, Seed: seed})
	e.jobs = []nomadJob{newNomadJob(one)}
	for g, n := range busy {
		first, _ := c.GroupGPUs(g)
		for u := range n {
			c.SetTaken(first+u, true)
			e.occupy(g, 1)
		}
	}
	e.evaluate(0)
	counts := make([]int, len(busy))
	for _, m := range e.jobs[0].members {
		counts[m.Group]++
	}
	return strings.Trim(fmt.Sprint(counts), "[]")
}

// The time that a start takes comes before a gang's work, and does not shorten it.
func TestNomadStartsTakeTime(t *testing.T) {
	c := exampleCluster(t, 1.7)
	for _, startS := range []float64{0, 3} {
		out, err := Nomad{Cluster: c, StartS: startS, Jobs: []trace.Job{job("a", "D", 8, 5, 100)}}.Run()
		if want := 5 + startS + 172.04; err != nil || math.Abs(out.Jobs[0].Finish-want) > 1e-3 {
			t.Errorf("a start of %v s: finishes at %v, want %v (%v)", startS, out.Jobs[0].Finish, want, err)
		}
	}
}

// Waiting jobs are served in the order of submission, as Nomad's evaluation broker serves blocked
// evaluations of one priority (scenario "blocked" of nomadtest).
func TestNomadTriesTheOldestFirst(t *testing.T) {
	c := exampleCluster(t, 1.7)
	jobs := []trace.Job{job("fills all but one GPU", "A", c.NumGPUs()-1, 0, 1e6)}
	for i := range 20 {
		jobs = append(jobs, job(fmt.Sprint(i), "A", 1, float64(i), 100))
	}
	out, err := Nomad{Cluster: c, Jobs: jobs, Seed: 1}.Run()
	if err != nil {
		t.Fatal(err)
	}
	served := slices.Clone(out.Jobs[1:])
	slices.SortFunc(served, func(a, b JobResult) int { return cmp.Compare(a.Start, b.Start) })
	for i, j := range served {
		if j.ID != fmt.Sprint(i) {
			t.Fatalf("job %s is served at position %d", j.ID, i+1)
		}
	}
}
