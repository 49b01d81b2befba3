// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/artifact"
	"github.com/nomad-pal/nomad-pal/research/pyrandom"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/population"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// scenario is a set of workloads on a kind of cluster.
type scenario struct {
	name, set string // evaluation or tuning
	traces    []trace.Trace
	seed      uint32
	cap       pal.PMScore // higher scores are reduced to cap; 0: no cap
	load      float64
	across    float64
	whole     bool    // draw whole GPUs from published quantiles instead of single measurements
	wrong     float64 // maximum error factor of users' estimates; 0: no estimates
}

// result has the figures of one variant in one scenario, as geometric means over the workloads.
// Each figure is a ratio to PAL under strict FIFO, on the same workload, cluster, load and penalty.
// PAL runs as in the artifact, which places all jobs again every round at no cost.
type result struct {
	Scenario string    `json:"scenario"`
	Set      string    `json:"set"`
	Variant  string    `json:"variant"`
	Preempts bool      `json:"preempts"`
	AvgJCT   float64   `json:"avg_jct"`
	Worst    float64   `json:"worst_avg_jct"` // the highest ratio of a workload
	Makespan float64   `json:"makespan"`
	Longest  float64   `json:"longest_jct"`
	Stuck    int       `json:"never_finished,omitempty"` // number of jobs, in all workloads; they count in the figures of PAL, but not in those of this policy
	ByTrace  []float64 `json:"avg_jct_by_workload"`

	scenario scenario
	variant  variant
}

// inputs has the evaluation workloads, and the measurements to draw GPUs from.
type inputs struct {
	eval, tuning []trace.Trace
	rows         artifact.Rows
}

func readInputs(dir string) (*inputs, error) {
	in := &inputs{}
	for w := 1; w <= 4; w++ {
		t, err := workload.ReadSia(filepath.Join(dir, fmt.Sprintf("sia_workload_%d.csv", w)))
		if err != nil {
			return nil, err
		}
		in.eval = append(in.eval, t)
	}
	for seed := uint64(101); seed <= 124; seed++ {
		in.tuning = append(in.tuning, trace.SiaPhilly(seed, trace.Shape{Jobs: 160}))
	}
	var err error
	in.rows, err = artifact.Longhorn(dir).Read()
	return in, err
}

// noOutliers is the cap on scores in populations without outliers.
const noOutliers = 1.15

func (in *inputs) scenarios() []scenario {
	base := scenario{name: "base", set: "evaluation", traces: in.eval, seed: 42, load: 1, across: pal.DefaultPenalty}
	ss := []scenario{base}
	add := func(name string, change func(*scenario)) {
		s := base
		s.name = name
		change(&s)
		ss = append(ss, s)
	}
	add("tuning workloads", func(s *scenario) { s.set, s.traces, s.seed = "tuning", in.tuning, 0 })
	for seed := range uint32(10) {
		add(fmt.Sprintf("GPUs of seed %d", seed), func(s *scenario) { s.seed = seed })
		add(fmt.Sprintf("GPUs of seed %d without outliers", seed), func(s *scenario) { s.seed, s.cap = seed, noOutliers })
	}
	for seed := range uint32(5) {
		add(fmt.Sprintf("whole GPUs of seed %d", seed), func(s *scenario) { s.seed, s.whole = seed, true })
	}
	for _, load := range []float64{0.5, 0.75, 1.25, 1.5} {
		add(fmt.Sprintf("load %g", load), func(s *scenario) { s.load = load })
	}
	for _, across := range []float64{1, 1.2, 1.4, 2, 2.5, 3} {
		add(fmt.Sprintf("locality penalty %g", across), func(s *scenario) { s.across = across })
	}
	for _, wrong := range []float64{1, 2, 5, 10} {
		add(fmt.Sprintf("estimates off by up to %g", wrong), func(s *scenario) { s.wrong = wrong })
	}
	return ss
}

func (in *inputs) cluster(s scenario, workload int) (*pal.Cluster, *pyrandom.Rand, error) {
	if s.whole {
		c, err := wholeGPUs(s)
		return c, pyrandom.New(s.seed), err
	}
	seed, limit := s.seed, s.cap
	if s.set == "tuning" { // each workload has its own GPUs, half of them without outliers
		seed = uint32(workload)
		if workload%2 == 1 {
			limit = noOutliers
		}
	}
	p, r, err := artifact.DrawRows(16, 4, in.rows, seed)
	if err != nil {
		return nil, nil, err
	}
	if limit > 0 {
		p = artifact.Capped(p, limit)
	}
	c, err := artifact.Cluster(p, pal.TwoTier(s.across))
	return c, r, err
}

// wholeGPUs draws GPUs as `nomad-pal simulate` does by default, and calibrates them as the
// artifact does.
func wholeGPUs(s scenario) (*pal.Cluster, error) {
	p, err := sim.DrawGPUs(population.Spec{Cluster: "longhorn", Nodes: 16, GPUsPerNode: 4, Outliers: population.AsMeasured()}, uint64(s.seed))
	if err != nil {
		return nil, err
	}
	return artifact.Cluster(p, pal.TwoTier(s.across))
}

func (s scenario) jobs(workload int) []trace.Job {
	jobs := append([]trace.Job(nil), s.traces[workload].Jobs...)
	for i := range jobs {
		jobs[i].SubmitS /= s.load
	}
	return jobs
}

// measure runs the variant and PAL over the scenario's workloads.
func (in *inputs) measure(r *result) error {
	n := float64(len(r.scenario.traces))
	for w := range r.scenario.traces {
		base, _, err := in.faithful(r.scenario, w, "pal")
		if err != nil {
			return err
		}
		f, stuck, err := in.figures(r, w)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", r.Scenario, r.Variant, err)
		}
		ratio := f.AvgJCT / base.AvgJCT
		r.AvgJCT += math.Log(ratio) / n
		r.Makespan += math.Log(f.Makespan/base.Makespan) / n
		r.Longest += math.Log(f.MaxJCT/base.MaxJCT) / n
		r.Worst, r.Stuck = max(r.Worst, ratio), r.Stuck+stuck
		r.ByTrace = append(r.ByTrace, round(ratio))
	}
	r.AvgJCT, r.Makespan, r.Longest = round(math.Exp(r.AvgJCT)), round(math.Exp(r.Makespan)), round(math.Exp(r.Longest))
	r.Worst = round(r.Worst)
	return nil
}

func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// restartS is what a stopped or moved gang loses, in seconds.
const restartS = 60

func (in *inputs) figures(r *result, workload int) (f sim.Figures, stuck int, err error) {
	c, _, err := in.cluster(r.scenario, workload)
	if err != nil {
		return f, 0, err
	}
	jobs, v := r.scenario.jobs(workload), r.variant
	var out sim.Outcome
	if v.nomad {
		out, err = sim.Nomad{Jobs: jobs, Cluster: c, RendezvousS: v.rendezvous.Seconds(), Seed: uint64(workload)}.Run()
	} else {
		out, err = sim.Config{Jobs: jobs, Cluster: c, Queue: v.queue, RestartS: restartS, Preemptible: v.preempt,
			Estimate: r.scenario.estimate()}.Run()
	}
	done := make([]sim.JobResult, 0, len(out.Jobs))
	for _, j := range out.Jobs {
		if j.Finish >= 0 {
			done = append(done, j)
		}
	}
	return sim.FiguresOf(done), out.Stuck, err
}

func (s scenario) estimate() func(int, trace.Job) time.Duration {
	if s.wrong == 0 {
		return nil
	}
	return func(i int, j trace.Job) time.Duration {
		u := rand.New(rand.NewPCG(7, uint64(i))).Float64()*2 - 1
		return time.Duration(j.WorkS() * math.Pow(s.wrong, u) * float64(time.Second))
	}
}
