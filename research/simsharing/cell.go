// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/research/published"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// The policies.
const (
	exclusive = "exclusive"
	random    = "random neighbours"
	ours      = "ours"
	accepting = "refusing nobody"
	wrong     = "wrong classes"
	rows      = "exact rows"
	exact     = "exact pairs"
)

var policies = []string{exclusive, random, wrong, accepting, ours, rows, exact}

const (
	nodeGPUs = 8
	restartS = 60 // seconds that a stopped or moved gang loses
	parts    = 2
)

// virtualClusters are virtual clusters of Philly with Gavel's jobs. The first two (see chosen) were
// used to choose the rules.
var virtualClusters = []string{"ed69ec", "103959", "0e4a51", "7f04ca"}

const (
	chosen = 2  // number of virtual clusters, from the first on, that were used to choose the rules
	gpus   = 64 // GPUs of a cluster
)

var loads = []float64{0.85, 1.1}

// cell is a virtual cluster at one load, with one seed.
type cell struct {
	vc, model string
	chosen    bool
	load      float64
	preempts  bool
	seed      uint64
	jobs      []trace.Job
	pairs     Pairs
	large     map[string]bool // applications that request all parts of a GPU
	runs      map[string]result
}

// result is the outcome of a cell under a policy.
type result struct {
	avgJCT  float64
	byClass map[pal.AppClass]float64
}

// cellsOf returns the cells of a virtual cluster.
func cellsOf(dir, vc, gpu string, chosen bool, seeds uint64, pairs Pairs) (cells []*cell, err error) {
	for seed := range seeds {
		jobs, err := read(dir, vc, gpu, seed)
		if err != nil {
			return nil, err
		}
		for _, load := range loads {
			for _, preempts := range []bool{false, true} {
				c := &cell{vc: vc, model: gpu, chosen: chosen, load: load, preempts: preempts, seed: seed, jobs: slices.Clone(jobs), pairs: pairs,
					large: pairs.Large([]string{gpu}), runs: map[string]result{}}
				c.atLoad()
				cells = append(cells, c)
			}
		}
	}
	return cells, nil
}

// play simulates the cell under all policies.
func (c *cell) play() (err error) {
	for _, policy := range policies {
		if c.runs[policy], err = c.run(policy); err != nil {
			return fmt.Errorf("%s, load %v, seed %d, %s: %w", c.vc, c.load, c.seed, policy, err)
		}
	}
	return nil
}

// read returns the jobs of a virtual cluster on GPUs of one model. Seed 0 is the trace itself;
// other seeds shuffle the applications among jobs with equally many GPUs.
func read(dir, vc, gpu string, seed uint64) ([]trace.Job, error) {
	t, err := published.ReadFile(filepath.Join(dir, vc+"-seed0.csv"))
	if err != nil {
		return nil, err
	}
	jobs := t.OnModels([]string{deviceName(gpu)}).Jobs
	if seed == 0 {
		return jobs, nil
	}
	alike := map[int][]int{}
	for i, j := range jobs {
		alike[j.GPUs] = append(alike[j.GPUs], i)
	}
	as, rng := slices.Clone(jobs), rand.New(rand.NewPCG(seed, 0x5a4e))
	for _, n := range slices.Sorted(maps.Keys(alike)) {
		for i, from := range rng.Perm(len(alike[n])) {
			is := &jobs[alike[n][i]]
			is.Name, is.Class = as[alike[n][from]].Name, as[alike[n][from]].Class
		}
	}
	return jobs, nil
}

func deviceName(model string) string { return "nvidia/gpu/" + model }

// atLoad scales the submission times to the cell's load.
func (c *cell) atLoad() {
	work := 0.0
	for _, j := range c.jobs {
		work += float64(j.GPUs) * j.WorkS()
	}
	first, last := c.jobs[0].SubmitS, c.jobs[len(c.jobs)-1].SubmitS
	for i := range c.jobs {
		c.jobs[i].SubmitS = (c.jobs[i].SubmitS - first) * work / float64(gpus) / c.load / (last - first)
	}
}

func (c *cell) cluster(policy string) (*pal.Cluster, error) {
	var nodes []pal.Node
	for i := range gpus / nodeGPUs {
		g := pal.DeviceGroup{Name: deviceName(c.model)}
		for u := range nodeGPUs {
			g.GPUs = append(g.GPUs, pal.GPU{ID: fmt.Sprintf("%d-%d", i, u)})
		}
		name := fmt.Sprintf("node-%d", i)
		nodes = append(nodes, pal.Node{ID: name, Name: name, Datacenter: "dc1", Groups: []pal.DeviceGroup{g}})
	}
	if policy != exclusive {
		nodes = share(nodes, parts)
	}
	return pal.NewCluster(nodes, pal.TwoTier(pal.DefaultPenalty))
}

// chance is a pseudo-random number from 0 to 1 that depends only on the words.
func chance(words ...string) float64 {
	h := fnv.New64a()
	for _, w := range words {
		h.Write([]byte(w))
		h.Write([]byte{0})
	}
	return rand.New(rand.NewPCG(h.Sum64(), 7)).Float64()
}

// judge makes the cluster assess neighbours as the policy does.
func (c *cell) judge(cluster *pal.Cluster, policy string) {
	apps := map[string]string{}
	for _, j := range c.jobs {
		apps[j.ID] = AppOf(j)
	}
	switch policy {
	case random:
		cluster.SetInterference(randomNeighbours(c.seed))
	case rows:
		row := c.rows()
		cluster.SetInterference(func(of, by pal.Occupant) float64 { return row[apps[of.Gang]][by.Class] })
	case exact:
		cluster.SetInterference(func(of, by pal.Occupant) float64 {
			return 1/c.pairs.Rate(c.model, apps[of.Gang], []string{apps[by.Gang]}) - 1
		})
	}
}

// rows returns what a neighbour of each class costs each application: the mean of the measured
// pairs. The queue cannot learn more than this from an application's own runs.
func (c *cell) rows() map[string][pal.NumClasses]float64 {
	classes, row := map[string]pal.AppClass{}, map[string][pal.NumClasses]float64{}
	for _, j := range c.jobs {
		classes[AppOf(j)] = j.Class
	}
	for of, class := range classes {
		var sum, n, costs [pal.NumClasses]float64
		for _, by := range slices.Sorted(maps.Keys(classes)) {
			if r := c.pairs.Rate(c.model, of, []string{by}); r > 0 {
				k := classes[by].Index()
				sum[k], n[k] = sum[k]+r, n[k]+1
			}
		}
		for k, by := range pal.AppClasses() {
			if costs[k] = pal.Interference(class, by); n[k] > 0 {
				costs[k] = n[k]/sum[k] - 1
			}
		}
		row[of] = costs
	}
	return row
}

// run simulates the cell under a policy.
func (c *cell) run(policy string) (result, error) {
	cluster, err := c.cluster(policy)
	if err != nil {
		return result{}, err
	}
	c.judge(cluster, policy)
	agent := model.DefaultConfig()
	rules := agent.QueueOptions()
	rules.Starts, rules.Placement.RefuseBad = 0, policy != accepting
	cfg := sim.Config{Jobs: c.jobs, Cluster: cluster, Queue: rules, RestartS: restartS, Preemptible: c.preempts, MovesPerHour: agent.MovesPerHour,
		Gang: func(j trace.Job) pal.Gang { return c.gang(j, policy) }}
	if policy == exact || policy == rows {
		cfg.Gang = c.alikeByApp(cluster)
	}
	if policy != exclusive {
		cfg.Repace = newCompany(cluster, len(c.jobs), c.beside).repace
	}
	out, err := cfg.Run()
	if err != nil {
		return result{}, err
	}
	if out.Stuck > 0 {
		return result{}, fmt.Errorf("%d jobs never finish", out.Stuck)
	}
	r, n := result{avgJCT: sim.FiguresOf(out.Jobs).AvgJCT, byClass: map[pal.AppClass]float64{}}, map[pal.AppClass]float64{}
	for i, j := range out.Jobs {
		r.byClass[c.jobs[i].Class] += j.JCT()
		n[c.jobs[i].Class]++
	}
	for k := range r.byClass {
		r.byClass[k] /= n[k]
	}
	return r, nil
}

// gang is a job's gang under a policy. Each member has one GPU, or parts of one GPU.
func (c *cell) gang(j trace.Job, policy string) pal.Gang {
	if policy == exclusive {
		return pal.SingleGPUs(j.ID, j.Class, j.GPUs)
	}
	n := 1
	if c.large[AppOf(j)] {
		n = parts
	}
	g := sharedGang(j, n)
	if policy == wrong {
		g.Class = pal.AppClasses()[int(chance(fmt.Sprint(c.seed), j.ID)*pal.NumClasses)]
	}
	return g
}

// alikeByApp makes gangs for exact pairs, whose speeds differ between applications of one class.
// The queue therefore treats gangs as equal only if they run the same application.
func (c *cell) alikeByApp(cluster *pal.Cluster) func(trace.Job) pal.Gang {
	everywhere := map[string][]bool{}
	return func(j trace.Job) pal.Gang {
		g, app := c.gang(j, exact), AppOf(j)
		if everywhere[app] == nil {
			everywhere[app] = slices.Repeat([]bool{true}, cluster.Groups())
		}
		g.MemberSets[0].Eligible = everywhere[app]
		return g
	}
}

// beside returns the measured speed of job i beside others, relative to its speed alone.
func (c *cell) beside(i int, others []int, _ int) float64 {
	apps := make([]string, len(others))
	for n, o := range others {
		apps[n] = AppOf(c.jobs[o])
	}
	rate := c.pairs.Rate(c.model, AppOf(c.jobs[i]), apps)
	if rate <= 0 {
		panic(fmt.Sprintf("job %q does not fit in a GPU's memory together with job %q", c.jobs[i].ID, c.jobs[others[0]].ID)) // large applications request whole GPUs
	}
	return rate
}
