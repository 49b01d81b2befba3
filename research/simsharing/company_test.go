// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// nodesOf returns n nodes of four equal GPUs.
func nodesOf(n int) []pal.Node {
	nodes := make([]pal.Node, n)
	for i := range nodes {
		id := fmt.Sprintf("node-%d", i)
		nodes[i] = pal.Node{ID: id, Name: id, Datacenter: "dc1", Groups: []pal.DeviceGroup{{Name: "nvidia/gpu/V100"}}}
		for u := range 4 {
			nodes[i].Groups[0].GPUs = append(nodes[i].Groups[0].GPUs, pal.GPU{ID: fmt.Sprintf("%d-%d", i, u)})
		}
	}
	return nodes
}

func clusterOf(t *testing.T, nodes []pal.Node, penalty float64) *pal.Cluster {
	c, err := pal.NewCluster(nodes, pal.TwoTier(penalty))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func onePart(j trace.Job) pal.Gang { return sharedGang(j, 1) }

func job(id string, class pal.AppClass, gpus int, submitS, workS float64) trace.Job {
	return trace.Job{ID: id, Name: id, Class: class, GPUs: gpus, SubmitS: submitS, Iterations: workS, IterTimeS: 1}
}

// drawn returns random jobs.
func drawn(rng *rand.Rand, n, maxGPUs int) (jobs []trace.Job) {
	at := 0.0
	for i := range n {
		at += 40 * rng.ExpFloat64()
		jobs = append(jobs, job(fmt.Sprint(i), pal.AppClasses()[rng.IntN(pal.NumClasses)], 1+rng.IntN(maxGPUs), at, 10+500*rng.ExpFloat64()))
	}
	return jobs
}

// If neighbours cost nothing, each part is like a GPU: all jobs end at the same times as on that
// many GPUs. (No gang may be stopped, because which one is stopped depends on where it is.)
func TestPartsThatCostNothingAreGPUs(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		cfg := sim.Config{Jobs: drawn(rng, 40, 6), Queue: queue.Default()}
		var ends [2][]float64
		for shared := range 2 {
			c := cfg
			if shared == 0 {
				c.Cluster = clusterOf(t, nodesOf(4), 1)
			} else {
				c.Cluster = clusterOf(t, share(nodesOf(2), 2), 1)
				c.Cluster.SetInterference(func(_, _ pal.Occupant) float64 { return 0 })
				c.Repace = newCompany(c.Cluster, len(c.Jobs), func(int, []int, int) float64 { return 1 }).repace
				c.Gang = func(j trace.Job) pal.Gang {
					g := sharedGang(j, 1)
					g.Sharing.Self = true // because a gang of 16 fits on 16 GPUs
					return g
				}
			}
			out, err := c.Run()
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range out.Jobs {
				ends[shared] = append(ends[shared], j.Finish)
			}
		}
		if d := cmp.Diff(ends[0], ends[1], cmpopts.EquateApprox(0, 1e-6)); d != "" {
			t.Errorf("ends on 16 GPUs, and on 16 parts of 8 (-GPUs +parts):\n%s", d)
		}
	}
}

// Jobs that request all parts run as on whole GPUs.
func TestAllPartsAreAGPU(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		cfg := sim.Config{Jobs: drawn(rng, 30, 6), Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.PAL}}}
		alone, shared := cfg, cfg
		alone.Cluster, shared.Cluster = clusterOf(t, nodesOf(2), 1), clusterOf(t, share(nodesOf(2), 3), 1)
		shared.Repace = newCompany(shared.Cluster, len(shared.Jobs), func(int, []int, int) float64 { t.Fatal("neighbours"); return 0 }).repace
		shared.Gang = func(j trace.Job) pal.Gang { return sharedGang(j, 3) }
		a, err := alone.Run()
		if err != nil {
			t.Fatal(err)
		}
		s, err := shared.Run()
		if err != nil {
			t.Fatal(err)
		}
		a.Samples, s.Samples, a.Utilization, a.Useful, s.Utilization, s.Useful = nil, nil, 0, 0, 0, 0 // these count parts
		if d := cmp.Diff(a, s, cmpopts.EquateApprox(1e-9, 0), cmpopts.IgnoreFields(sim.JobResult{}, "Tier")); d != "" {
			t.Errorf("(-alone +all parts):\n%s", d)
		}
	}
}

// However jobs arrive, leave, stop and restart, each does exactly its work. The test adds up,
// from the observed events alone, the time of each job beside each set of others.
func TestWorkIsConserved(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		jobs := drawn(rng, 40, 5)
		cluster := clusterOf(t, share(nodesOf(2), 2), 1)
		beside := func(i int, others []int, _ int) float64 { return 0.3 + 0.7*float64((7*i+13*others[0])%10)/10 }
		on, done, last := map[int]map[int]bool{}, make([]float64, len(jobs)), 0.0
		running := map[int]pal.Placement{}
		add := func(until float64) {
			for i, p := range running {
				rate := 1.0
				for _, m := range p.Members {
					for o := range on[m.Group] {
						if o != i {
							rate = min(rate, beside(i, []int{o}, m.Group))
						}
					}
				}
				done[i] += rate * (until - last)
			}
			last = until
		}
		cfg := sim.Config{Jobs: jobs, Cluster: cluster, Queue: queue.Default(), Preemptible: true, Gang: onePart, Repace: newCompany(cluster, len(jobs), beside).repace}
		cfg.Observe = func(now time.Duration, i int, kind string, p pal.Placement) {
			add(now.Seconds())
			starts := kind == "start" || kind == "resume"
			for _, m := range p.Members {
				if on[m.Group] == nil {
					on[m.Group] = map[int]bool{}
				}
				if starts == on[m.Group][i] {
					t.Fatalf("job %d: %s on GPU %d, but it is on %v", i, kind, m.Group, !starts)
				}
				if delete(on[m.Group], i); starts {
					on[m.Group][i] = true
				}
			}
			if delete(running, i); starts {
				running[i] = p
			}
		}
		out, err := cfg.Run()
		if err != nil {
			t.Fatal(err)
		}
		for i, j := range out.Jobs {
			if j.Finish < 0 || math.Abs(done[i]-jobs[i].WorkS()) > 1e-3 {
				t.Errorf("job %d did %v of %v s of work, and ended at %v", i, done[i], jobs[i].WorkS(), j.Finish)
			}
		}
	}
}
