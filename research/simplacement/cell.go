// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// variant is one way to place gangs. The queue is the agent's in all variants.
type variant struct {
	name   string
	policy pal.PolicyName
	// blind: the queue does not avoid outliers either, so nothing knows how fast the GPUs are.
	blind bool
	// sorted: the same GPUs, but sorted by their score for class A before they are put into nodes.
	sorted bool
	// best: each gang runs as fast as on the best GPUs of an empty cluster, wherever it is placed.
	best bool
}

// base is the variant to which all others are compared. Its queue avoids outliers.
const base = "packed"

func variants() []variant {
	return []variant{
		{name: base, policy: pal.Packed},
		{name: "pal", policy: pal.PAL},
		{name: "packed, blind", policy: pal.Packed, blind: true},
		{name: "spread", policy: pal.Spread},
		{name: "random", policy: pal.Random},
		{name: "pal, sorted nodes", policy: pal.PAL, sorted: true},
		{name: "bound", policy: pal.Packed, best: true},
	}
}

// cell is a workload on GPUs of one profile, at one load.
type cell struct {
	in      *inputs
	of      workload
	profile string
	load    float64
	pairs   []pair
}

func (c *cell) name() string { return fmt.Sprintf("%s on %s, load %g", c.of.name, c.profile, c.load) }

// pair has the results of all variants on the same jobs and the same GPUs.
type pair map[string][pal.NumClasses + 1]totals

// all is the index in pair of the totals over all classes.
const all = pal.NumClasses

// totals are sums over jobs, in seconds.
type totals struct{ jct, run, wait float64 }

// run runs one pair. The seed decides the jobs and the GPUs.
func (c *cell) run(seed uint64) (pair, error) {
	jobs, nodes := c.of.jobs(seed)
	for i := range jobs {
		jobs[i].SubmitS /= c.load
	}
	gpus, err := c.in.draw(c.profile, nodes, c.of.nodeGPUs, seed)
	if err != nil {
		return nil, err
	}
	p := pair{}
	for _, v := range variants() {
		out, err := v.run(jobs, gpus, seed)
		if err != nil {
			return nil, fmt.Errorf("%s, seed %d: %w", v.name, seed, err)
		}
		p[v.name] = sum(out)
	}
	return p, nil
}

func sum(o sim.Outcome) (s [pal.NumClasses + 1]totals) {
	for _, j := range o.Jobs {
		for _, k := range []int{j.Class.Index(), all} {
			s[k].jct += j.JCT()
			s[k].run += j.HeldS
			s[k].wait += j.Wait
		}
	}
	return s
}

// restartS is what a stopped or moved gang loses, in seconds.
const restartS = 60

func (v variant) run(jobs []trace.Job, gpus sim.Population, seed uint64) (sim.Outcome, error) {
	agent := model.DefaultConfig()
	q := agent.Queue
	q.Placement = queue.Placement(v.policy)
	if v.policy == pal.Random {
		rng := rand.New(rand.NewPCG(seed, 0x5a3))
		q.Placement.Sample = func(n, k int) []int { return rng.Perm(n)[:k] }
	}
	if v.blind {
		q.OutlierThreshold = 0
	}
	if v.sorted {
		gpus.Scores = slices.Clone(gpus.Scores)
		slices.SortStableFunc(gpus.Scores, func(a, b [pal.NumClasses]pal.PMScore) int { return cmp.Compare(a[0], b[0]) })
	}
	nodes, err := gpus.PalNodes(agent.Calibration.Bin)
	if err != nil {
		return sim.Outcome{}, err
	}
	c, err := pal.NewCluster(nodes, agent.Locality)
	if err != nil {
		return sim.Outcome{}, err
	}
	cfg := sim.Config{Jobs: jobs, Cluster: c, Queue: q, RestartS: restartS, Seed: seed}
	if v.best {
		cfg.Slower = fastest(jobs, gpus)
	}
	out, err := cfg.Run()
	if err == nil && out.Stuck > 0 {
		err = fmt.Errorf("%d jobs never finish", out.Stuck)
	}
	return out, err
}

// fastest returns a [sim.Config.Slower] with which every gang of n GPUs runs as fast as on the n
// fastest GPUs of the cluster, but as far apart as it was placed.
func fastest(jobs []trace.Job, gpus sim.Population) func(int, pal.Placement) float64 {
	var scores [pal.NumClasses][]float64
	for k := range scores {
		for _, s := range gpus.Scores {
			scores[k] = append(scores[k], float64(s[k]))
		}
		slices.Sort(scores[k])
	}
	return func(i int, p pal.Placement) float64 {
		return scores[jobs[i].Class.Index()][jobs[i].GPUs-1] / float64(p.PMScore)
	}
}

// over compares a figure of a variant with that of base. The weights treat both alike: see
// [sim.RatioOf].
func (c *cell) over(variant string, class int, of func(totals) float64) sim.Ratio {
	var a, b, w []float64
	for _, p := range c.pairs {
		va, vb := p[variant][class], p[base][class]
		a, b, w = append(a, of(va)), append(b, of(vb)), append(w, va.jct+vb.jct)
	}
	return sim.RatioOf(a, b, w)
}

func jct(t totals) float64  { return t.jct }
func ran(t totals) float64  { return t.run }
func wait(t totals) float64 { return t.wait }
