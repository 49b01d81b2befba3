// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/research/baselines"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// The policies.
const (
	agnostic = "agnostic"
	fastest  = "fastest first"
	ours     = "ours"
	told     = "ours, told run times"
)

const (
	nodeGPUs = 8
	restartS = 60 // seconds that a stopped or moved gang loses
)

// gpusOf is the number of GPUs of each model in the cluster.
func (w workload) gpusOf() int {
	if len(w.models) > 3 {
		return 16
	}
	return 32
}

// cell is a workload at one load. The load is the least time for all work, divided by the time in
// which the work arrives.
type cell struct {
	Workload string  `json:"workload"`
	Chosen   bool    `json:"chosen"`
	Load     float64 `json:"load"`
	Preempts bool    `json:"preempts"`
	Bound    float64 `json:"bound_s"`
	Runs     []run   `json:"runs"`
	// Told and Clairvoyant are computed only for the lowest load. Told is the result of our policy
	// if it knows exact run times. Clairvoyant is the average under a policy that also stops,
	// starts and moves gangs at no cost.
	Told        run     `json:"told,omitzero"`
	Clairvoyant float64 `json:"clairvoyant_s,omitempty"`
	// Fair is the average under Gavel's finish-time fairness, computed as a fluid; 0 unless there
	// are three models.
	Fair float64 `json:"fair_s,omitempty"`

	w    workload
	jobs []job
}

// run is the outcome of a cell under a policy.
type run struct {
	Policy   string  `json:"policy"`
	AvgJCT   float64 `json:"avg_jct_s"`
	P99      float64 `json:"p99_slowdown"` // completion time divided by the time on the fastest model; times below 10 s count as 10 s
	Makespan float64 `json:"makespan_s"`
	Stops    int     `json:"stops"`
}

// cells returns the cells of a workload.
func (w workload) cells(loads []float64) (cs []*cell, err error) {
	var kinds []kind
	at := map[string]int{}
	for _, j := range w.jobs {
		key := fmt.Sprint(j.speeds)
		if _, ok := at[key]; !ok {
			at[key] = len(kinds)
			kinds = append(kinds, kind{speeds: j.speeds})
		}
		kinds[at[key]].work += float64(j.GPUs) * j.WorkS()
	}
	least, prices, err := fluid(kinds, w.models, float64(w.gpusOf()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Name, err)
	}
	for _, load := range loads {
		c := cell{Workload: w.Name, Chosen: w.Chosen, Load: load, w: w, jobs: slices.Clone(w.jobs)}
		span := w.jobs[len(w.jobs)-1].SubmitS
		for i := range c.jobs {
			c.jobs[i].SubmitS *= least / load / span
		}
		c.Bound = bound(c.jobs, w.models, float64(w.gpusOf()), prices)
		preempts := c
		preempts.Preempts = true
		cs = append(cs, &c, &preempts)
	}
	return cs, nil
}

// cluster makes nodes of one model each. The models alternate, so that no model comes first. All
// GPUs of a model are equal.
func (w workload) cluster() (*pal.Cluster, error) {
	var nodes []pal.Node
	for i := range w.gpusOf() / nodeGPUs {
		for _, m := range w.models {
			g := pal.DeviceGroup{Name: deviceName(m)}
			for u := range nodeGPUs {
				g.GPUs = append(g.GPUs, pal.GPU{ID: fmt.Sprintf("%s-%d-%d", m, i, u)})
			}
			name := fmt.Sprintf("%s-%d", m, i)
			nodes = append(nodes, pal.Node{ID: name, Name: name, Datacenter: "dc1", Groups: []pal.DeviceGroup{g}})
		}
	}
	return pal.NewCluster(nodes, pal.TwoTier(pal.DefaultPenalty))
}

// lists has the eligible device groups for each set of models; gangs with the same models share a
// list.
type lists struct {
	c  *pal.Cluster
	of map[string][]bool
}

func (l lists) only(models ...string) []bool {
	key := fmt.Sprint(models)
	if l.of[key] == nil {
		l.of[key] = make([]bool, l.c.Groups())
		for i := range l.of[key] {
			_, name := l.c.Group(i)
			l.of[key][i] = slices.Contains(models, name)
		}
	}
	return l.of[key]
}

// gang is a job's gang under a policy.
func (l lists) gang(j job, policy string) pal.Gang {
	g := pal.Gang{ID: j.ID, Class: j.Class}
	bySpeed := slices.SortedFunc(maps.Keys(j.speeds), func(a, b string) int {
		return cmp.Or(cmp.Compare(j.speeds[b], j.speeds[a]), cmp.Compare(a, b))
	})
	for _, t := range j.TaskGroups() {
		g.MemberSets = append(g.MemberSets, pal.MemberSet{Members: t.Members, GPUs: t.GPUs, Eligible: l.only(slices.Sorted(maps.Keys(j.speeds))...)})
	}
	switch policy {
	case ours, told:
		g.Speeds = j.speeds
	case fastest:
		for i := range g.MemberSets {
			for _, model := range bySpeed {
				g.MemberSets[i].Prefer = append(g.MemberSets[i].Prefer, l.only(model))
			}
		}
	}
	return g
}

// reach computes the results of policies that know run times.
func (c *cell) reach() (err error) {
	if c.Told, err = c.run(told); err != nil {
		return err
	}
	cluster, err := c.w.cluster()
	if err != nil {
		return err
	}
	jobs := make([]trace.Job, len(c.jobs))
	for i, j := range c.jobs {
		jobs[i] = j.Job
	}
	out, err := baselines.Clairvoyant{Jobs: jobs, Cluster: cluster}.Run()
	c.Clairvoyant = sim.FiguresOf(out.Jobs).AvgJCT
	return err
}

// shareFairly computes the result of Gavel's finish-time fairness.
func (c *cell) shareFairly() (err error) {
	if len(c.w.models) == 3 {
		c.Fair, err = finishTimeFairness(c.jobs, c.w.models, float64(c.w.gpusOf()))
	}
	return err
}

// run simulates the cell under a policy.
func (c *cell) run(policy string) (run, error) {
	cluster, err := c.w.cluster()
	if err != nil {
		return run{}, err
	}
	agent := model.DefaultConfig()
	rules := agent.Queue
	rules.Placement = queue.Placement(agent.Placement)
	jobs, of, l := make([]trace.Job, len(c.jobs)), map[string]job{}, lists{cluster, map[string][]bool{}}
	for i, j := range c.jobs {
		jobs[i], of[j.ID] = j.Job, j
	}
	cfg := sim.Config{Jobs: jobs, Cluster: cluster, Queue: rules, RestartS: restartS, Preemptible: c.Preempts, MovesPerHour: agent.MovesPerHour,
		Gang: func(j trace.Job) pal.Gang { return l.gang(of[j.ID], policy) },
		Slower: func(i int, p pal.Placement) float64 {
			_, name := cluster.Group(p.Members[0].Group)
			return cmp.Or(p.Speed, 1) / c.jobs[i].speeds[name]
		}}
	if policy == told {
		cfg.Estimate = sim.Exact
	}
	out, err := cfg.Run()
	if err != nil {
		return run{}, fmt.Errorf("%s, load %v, %s: %w", c.Workload, c.Load, policy, err)
	}
	if out.Stuck > 0 {
		return run{}, fmt.Errorf("%s, load %v, %s: %d jobs never finish", c.Workload, c.Load, policy, out.Stuck)
	}
	f := sim.FiguresOf(out.Jobs)
	slow := make([]float64, len(out.Jobs))
	for i, j := range out.Jobs {
		slow[i] = baselines.Stretch(j)
	}
	slices.Sort(slow)
	return run{policy, f.AvgJCT, slow[min(len(slow)-1, len(slow)*99/100)], f.Makespan, out.Preemptions}, nil
}
