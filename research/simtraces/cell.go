// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/research/baselines"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/population"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// cell is one trace, with one size of tasks, at one load, on one population of GPUs.
type cell struct {
	Trace    string  `json:"trace"`
	Part     part    `json:"part"`
	TaskGPUs int     `json:"task_gpus"` // GPUs of a task; 1: each GPU can be on any node
	NodeGPUs int     `json:"node_gpus"`
	Load     float64 `json:"load"`     // 0: as in the trace
	Outliers int     `json:"outliers"` // number of outliers among the GPUs
	GPUs     int     `json:"gpus"`
	Jobs     int     `json:"jobs"`
}

// result is a cell with the results of the policies.
type result struct {
	cell
	Runs []run

	jobs []trace.Job
	seed uint64 // of all random numbers
}

// run is the result of one policy in a cell.
type run struct {
	Policy   string  `json:"policy"`
	AvgJCT   float64 `json:"avg_jct_s"`
	P99      float64 `json:"p99_slowdown"` // completion time divided by work; times below 10 s count as 10 s
	Makespan float64 `json:"makespan_s"`
	Useful   float64 `json:"useful"`
	Restarts int     `json:"restarts"`
	// Stuck is the number of jobs that never finish; the figures leave these jobs out.
	Stuck int `json:"never_finished,omitempty"`
	// Forecasts is the number of predicted starts, Hits is the share of right predictions, and
	// Width is the median length of the predicted ranges.
	Forecasts int     `json:"forecasts,omitempty"`
	Hits      float64 `json:"forecast_hits,omitempty"`
	Width     float64 `json:"forecast_width_h,omitempty"`
	// Of is the commit of the queue in this run; "" for early runs, which do not record the commit.
	Of string `json:"of,omitempty"`
}

func (c cell) String() string {
	return fmt.Sprintf("%s, tasks of %d, load %s, %d GPUs, %d outliers", c.Trace, c.TaskGPUs, percent(c.Load), c.GPUs, c.Outliers)
}

// percent writes a load.
func percent(load float64) string {
	if load == 0 {
		return "as it is"
	}
	return fmt.Sprintf("%.0f %%", 100*load)
}

const (
	nodeGPUs = 8
	// The workloads of the PAL artifact have a cluster of their own.
	siaGPUs, siaNodeGPUs = 64, 4
	// outlierOf is the number of GPUs per outlier, in cells with outliers.
	outlierOf = 64
	// leastGPUs is the size of the smallest cluster. Smaller clusters say little about packing.
	leastGPUs = 4 * nodeGPUs
	// quickJobs is how many jobs of each virtual cluster run with -quick.
	quickJobs = 1500
	// restartS is what a stopped or moved gang loses, in seconds.
	restartS = 60
)

// cells returns the cells of a trace; with quick, only a few short cells.
func cells(s source, quick bool) []*result {
	node, loads, outliers := nodeGPUs, []float64{0.6, 0.85, 1.1}, []bool{true, false}
	if s.part == sia {
		node, loads = siaNodeGPUs, []float64{0}
	}
	tasks := []int{1, node}
	if quick {
		tasks, outliers = tasks[1:], outliers[:1]
		if s.part == whole && len(s.trace.Jobs) > quickJobs {
			return nil
		}
		s.trace.Jobs = s.trace.Jobs[:min(quickJobs, len(s.trace.Jobs))]
	}
	var cs []*result
	for _, gpus := range tasks {
		for _, load := range loads {
			for _, out := range outliers {
				c := &result{cell: cell{Trace: s.trace.Name, Part: s.part, TaskGPUs: gpus, NodeGPUs: node, Load: load, Jobs: len(s.trace.Jobs)},
					jobs: inTasks(s.trace.Jobs, gpus)}
				if c.GPUs = siaGPUs; load > 0 {
					c.fit()
				}
				if out {
					c.Outliers = max(1, c.GPUs/outlierOf)
				}
				cs = append(cs, c)
			}
		}
	}
	return cs
}

// inTasks divides each job into tasks, as Nomad's users write gangs. A task has at most gpus GPUs,
// all on one node. All tasks have the same size if the job's GPUs divide evenly into tasks of at
// least half of gpus; otherwise all tasks have gpus GPUs, except the last, which has the rest. If
// gpus is 1, every GPU can be on any node.
func inTasks(jobs []trace.Job, gpus int) []trace.Job {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		j := &jobs[i]
		j.MemberGPUs, j.Groups = min(j.GPUs, gpus), nil
		for task := j.MemberGPUs; 2*task >= gpus; task-- {
			if j.GPUs%task == 0 {
				j.MemberGPUs = task
				break
			}
		}
	}
	return jobs
}

// fit chooses the number of nodes for the load. The load is the GPU time of the jobs, divided by
// the GPU time of the cluster between the first and the last submission. Because nodes are whole
// and the cluster has a minimum size, fit corrects the load by scaling the submission times.
func (c *result) fit() {
	work, widest := 0.0, 0
	for _, j := range c.jobs {
		work += j.WorkS() * float64(j.GPUs)
		widest = max(widest, j.GPUs)
	}
	span := c.jobs[len(c.jobs)-1].SubmitS - c.jobs[0].SubmitS
	nodes := max(int(math.Round(work/(span*c.Load*nodeGPUs))), (widest+nodeGPUs-1)/nodeGPUs, leastGPUs/nodeGPUs)
	c.GPUs = nodes * nodeGPUs
	scale := work / (float64(c.GPUs) * c.Load) / span
	for i := range c.jobs {
		c.jobs[i].SubmitS *= scale
	}
}

// named is a policy in the tables.
type named struct {
	name string
	ours bool
	// exact: the policy knows the run times.
	exact bool
	run   func(sim.Config) (sim.Outcome, error)
}

// policies returns the agent's queue in several variants, and the baselines, except two that are
// far worse than the others: strict FIFO, and plain Nomad without a rendezvous timeout.
func policies() []named {
	agent := model.DefaultConfig()
	rules := agent.Queue
	rules.Placement = queue.Placement(agent.Placement)
	unbounded := rules
	unbounded.MaxWait, unbounded.Patience = sim.Unbounded, 0
	var ps []named
	for _, exact := range []bool{false, true} {
		for _, preempt := range []bool{false, true} {
			name := "ours"
			if preempt {
				name += ", preempting"
			}
			if exact {
				name += ", exact times"
			}
			for _, bound := range []bool{true, false} {
				q := rules
				if !bound {
					q, name = unbounded, name+", no bound"
				}
				ps = append(ps, named{name, true, exact, func(c sim.Config) (sim.Outcome, error) {
					c.Queue, c.Preemptible = q, preempt
					if exact {
						c.Estimate = sim.Exact
					}
					return c.Run()
				}})
			}
		}
	}
	for _, p := range baselines.All() {
		if !slices.Contains([]string{"nomad", "nomad-spread", "fifo"}, p.Name) {
			ps = append(ps, named{p.Name, false, slices.Contains([]string{"easy", "srtf", limit}, p.Name), p.Run})
		}
	}
	return ps
}

func (c *result) run(p named) (run, error) {
	cluster, err := c.cluster()
	if err != nil {
		return run{}, err
	}
	cfg, asks := sim.Config{Jobs: c.jobs, Cluster: cluster, RestartS: restartS, Seed: c.seed}, &forecasts{}
	if slices.Contains(asked(), p.name) {
		asks = forecastsOf(&cfg)
	}
	out, err := p.run(cfg)
	if err != nil {
		return run{}, err
	}
	done := slices.DeleteFunc(out.Jobs, func(j sim.JobResult) bool { return j.Finish < 0 })
	f := sim.FiguresOf(done)
	r := run{Policy: p.name, AvgJCT: round(f.AvgJCT), Makespan: round(f.Makespan), Useful: round(out.Useful), Restarts: out.Preemptions, Stuck: out.Stuck}
	if asks.made > 0 {
		r.Forecasts, r.Hits, r.Width = asks.made, round(asks.hit()), round(asks.width())
	}
	stretches := make([]float64, len(done))
	for i, j := range done {
		stretches[i] = baselines.Stretch(j)
	}
	slices.Sort(stretches)
	if n := len(stretches); n > 0 {
		r.P99 = round(stretches[min(n-1, n*99/100)])
	}
	return r, nil
}

// asked returns the policies whose predicted starts are evaluated.
func asked() []string { return []string{"ours", "ours, preempting", "ours, preempting, exact times"} }

// seed is the seed of the published results.
const seed = 42

// cluster draws GPUs as the simulator does by default, and calibrates them as the
// agent does.
func (c *result) cluster() (*pal.Cluster, error) {
	p, err := sim.DrawGPUs(population.Spec{Cluster: "longhorn", Nodes: c.GPUs / c.NodeGPUs, GPUsPerNode: c.NodeGPUs,
		Outliers: population.Exactly(c.Outliers)}, c.seed)
	if err != nil {
		return nil, err
	}
	agent := model.DefaultConfig()
	nodes, err := p.PalNodes(agent.Calibration.Bin)
	if err != nil {
		return nil, err
	}
	return pal.NewCluster(nodes, agent.Locality)
}

func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }
