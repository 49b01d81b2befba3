// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"fmt"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/sim"
	"github.com/nomad-pal/nomad-pal/bench/trace"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// Cluster is the snapshot that the placer would make of these GPUs.
func (g *GPUs) Cluster(penalty float64) (*pal.Cluster, error) {
	var nodes []pal.Node
	for _, u := range g.All {
		for u.Node >= len(nodes) {
			name := fmt.Sprintf("gpu-%02d", len(nodes))
			nodes = append(nodes, pal.Node{ID: name, Name: name, Free: pal.Resources{CPU: 1 << 30, MemoryMB: 1 << 30, DiskMB: 1 << 30},
				Groups: []pal.DeviceGroup{{Name: "nvidia/gpu/" + u.Model}}})
		}
		p := pal.GPU{ID: u.ID}
		for k, c := range pal.AppClasses() {
			e, _ := g.profile.Lookup(u.ID, c)
			p.Scores[k], p.Binned[k], p.Classes[k] = pal.PMScore(u.Scores[k]), e.Value, uint8(e.Class)
		}
		group := &nodes[u.Node].Groups[0]
		group.GPUs = append(group.GPUs, p)
	}
	return pal.NewCluster(nodes, pal.TwoTier(penalty))
}

// Prediction is what the simulator says about a run.
type Prediction struct {
	AvgJCTS   float64 `json:"avg_jct_s"`
	MakespanS float64 `json:"makespan_s"`
	// JCTS are the jobs' completion times (s), by job.
	JCTS map[string]float64 `json:"jct_by_job_s,omitempty"`
}

// AvgJCTOf is the simulated average over the jobs that finished in the run:
// what a run's own average compares with. Results without times by job have the
// average over all jobs only.
func (p *Prediction) AvgJCTOf(r *Result) float64 {
	sum, n := 0.0, 0
	for _, j := range r.Jobs {
		if s, ok := p.JCTS[j.ID]; ok && j.JCT() > 0 {
			sum += s
			n++
		}
	}
	if n == 0 {
		return p.AvgJCTS
	}
	return sum / float64(n)
}

// Predict simulates a run under the placer. Overhead is what starting and ending
// a gang on the real cluster takes, during which it holds its GPUs.
func Predict(jobs []Job, g *GPUs, penalty float64, o queue.Options, restart, overhead time.Duration) (Prediction, error) {
	c, err := g.Cluster(penalty)
	if err != nil {
		return Prediction{}, err
	}
	shapes := map[string]Job{}
	var traced []trace.Job
	preempt := false
	for _, j := range jobs {
		shapes[j.ID] = j
		preempt = preempt || j.Preempt
		traced = append(traced, trace.Job{ID: j.ID, Name: j.ID, Class: j.Class, GPUs: j.GPUs(), SubmitS: j.Submit.Seconds(),
			Iterations: 1, IterTimeS: (j.Work() + overhead).Seconds()})
	}
	out, err := sim.Config{
		Jobs: traced, Cluster: c, Queue: o, RestartS: (restart + overhead).Seconds(), Preemptible: preempt,
		Gang: func(t trace.Job) pal.Gang {
			j := shapes[t.ID]
			return pal.Gang{ID: j.ID, Class: j.Class, Shapes: []pal.Shape{{Name: "ranks", Members: j.Allocations, GPUs: j.GPUsEach}}}
		},
	}.Run()
	if err != nil {
		return Prediction{}, fmt.Errorf("simulate the replay: %w", err)
	}
	p := Prediction{MakespanS: out.MakespanS, JCTS: map[string]float64{}}
	for _, j := range out.Jobs {
		p.AvgJCTS += j.JCT() / float64(len(out.Jobs))
		p.JCTS[j.ID] = j.JCT()
	}
	return p, nil
}

// Overhead is how long the gangs that found an empty cluster took from
// submission to the moment when all ranks were there: the median of the first
// few.
func (r *Result) Overhead() time.Duration {
	var ds []time.Duration
	for _, j := range r.Jobs[:min(3, len(r.Jobs))] {
		if !j.StartedAt.IsZero() {
			ds = append(ds, j.StartedAt.Sub(j.SubmittedAt))
		}
	}
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[len(ds)/2]
}
