// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Cluster returns the cluster as the placer would see these GPUs.
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

// Prediction is the simulator's result for a run.
type Prediction struct {
	AvgJCTS   float64 `json:"avg_jct_s"`
	MakespanS float64 `json:"makespan_s"`
	// JCTS has the job completion times (s), by job.
	JCTS map[string]float64 `json:"jct_by_job_s,omitempty"`
	// Preemptions counts the restarts, which are all runs of a job except the first.
	Preemptions int `json:"preemptions,omitempty"`
	// Jittered has, in ascending order, the average JCTs (s) of simulations in which submissions
	// are slightly delayed and starts take slightly longer. The averages are over the jobs that
	// finished in the run, and show how much depends on chance.
	Jittered []float64 `json:"jittered_avg_jct_s,omitempty"`
}

// AvgJCTOf returns the simulated average JCT over the jobs that finished in the run, to compare
// with the run's own average. If a result file has no times by job, the average is over all jobs.
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

// Predict simulates a run under the placer. c has the durations of starting, stopping and
// restarting on the cluster.
func Predict(jobs []Job, g *GPUs, penalty float64, o queue.Options, c sim.Config) (p Prediction, err error) {
	if c.Cluster, err = g.Cluster(penalty); err != nil {
		return Prediction{}, err
	}
	c.Jobs, c.Queue = g.traced(jobs), o
	c.Preemptible = slices.ContainsFunc(jobs, func(j Job) bool { return j.Preempt })
	out, err := c.Run()
	if err != nil {
		return Prediction{}, fmt.Errorf("simulating the replay: %w", err)
	}
	if out.Stuck > 0 {
		return Prediction{}, fmt.Errorf("simulating the replay: %d of %d jobs never finish", out.Stuck, len(jobs))
	}
	p = Prediction{MakespanS: out.MakespanS, Preemptions: out.Preemptions, JCTS: map[string]float64{}}
	for _, j := range out.Jobs {
		p.AvgJCTS += j.JCT() / float64(len(out.Jobs))
		p.JCTS[j.ID] = j.JCT()
	}
	return p, nil
}

// traced converts jobs into a trace for the simulator.
func (g *GPUs) traced(jobs []Job) []trace.Job {
	var out []trace.Job
	for _, j := range jobs {
		out = append(out, trace.Job{ID: j.ID, Name: j.ID, Class: j.Class, GPUs: j.GPUs(), MemberGPUs: j.GPUsEach,
			SubmitS: j.Submit.Seconds(), Iterations: 1, IterTimeS: j.Work().Seconds(), Speeds: g.speedsOf(j)})
	}
	return out
}

// speedsOf returns a job's speed on each GPU model, by the name of the model's device; nil on a
// cluster of one model.
func (g *GPUs) speedsOf(j Job) pal.Speeds {
	models := g.Models()
	if len(models) < 2 {
		return nil
	}
	speeds := pal.Speeds{}
	for _, m := range models {
		speeds["nvidia/gpu/"+m] = g.SpeedOf(m, j.Class)
		for _, a := range g.Apps {
			if a.Name == j.App {
				speeds["nvidia/gpu/"+m] = a.Speeds.On(m)
			}
		}
	}
	return speeds
}

// jitters is the number of simulations of a run with jitter. jitter is the longest delay of a
// submission.
const (
	jitters = 20
	jitter  = 500 * time.Millisecond
)

// PredictRun simulates a measured run, with the same jobs submitted at the same times. Each start
// takes as long as the run's average start, plus the run's extra time if another gang has just held
// the GPUs (see [Result.ending]). Then PredictRun simulates the run several more times. In these
// simulations, submissions are up to half a second later, and each start takes as long as a random
// start of the run. If the measured average is within the range of these simulations, the
// simulator's error is chance.
func PredictRun(r *Result, g *GPUs, penalty float64, o queue.Options, times sim.Config) (Prediction, error) {
	jobs := r.submitted()
	starts := r.starting()
	usual := mean(starts)
	times.StartS, times.EndS = func() float64 { return usual }, r.ending()
	p, err := Predict(jobs, g, penalty, o, times)
	if err != nil || len(starts) == 0 {
		return p, err
	}
	for seed := range uint64(jitters) {
		chance := rand.New(rand.NewPCG(seed, r.Seed))
		late := slices.Clone(jobs)
		for i := range late {
			late[i].Submit += time.Duration(chance.Int64N(int64(jitter)))
			late[i].Submit = max(late[i].Submit, late[max(i-1, 0)].Submit)
		}
		times.StartS = func() float64 { return starts[chance.IntN(len(starts))] }
		q, err := Predict(late, g, penalty, o, times)
		if err != nil {
			return p, err
		}
		p.Jittered = append(p.Jittered, q.AvgJCTOf(r))
	}
	slices.Sort(p.Jittered)
	return p, nil
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x / float64(len(xs))
	}
	return sum
}

// submitted returns the jobs with the times at which they were submitted.
func (r *Result) submitted() []Job {
	var jobs []Job
	for _, j := range r.Jobs {
		if !j.SubmittedAt.IsZero() {
			j.Submit = j.SubmittedAt.Sub(r.Jobs[0].SubmittedAt)
			jobs = append(jobs, j.Job)
		}
	}
	return jobs
}
