// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package artifact reimplements the simulator of the PAL artifact (hal-uw/blox-pal, tag
// artifact-v1.4). The package reproduces the simulator's rounds and filler jobs, Python's random
// numbers, and the order in which numpy sorts equal elements. So the published results can be
// checked job by job. For placement, the package uses the product's pal.Place.
package artifact

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/pyrandom"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Run is one run of the artifact's simulator.
type Run struct {
	Jobs     []trace.Job
	From, To int // the run ends when the jobs From…To have finished; 0, 0: the whole trace
	Cluster  *pal.Cluster
	Policy   string // pal, pm-first, packed-sticky, packed-nonsticky, random-sticky, random-nonsticky
	Order    string // fifo, las, srtf
	RoundS   float64
	LoadPerH float64 // arrival rate of the filler jobs after the trace
	Fillers  bool    // as the artifact does, submit the trace again as filler jobs until the tracked jobs have finished
	// Scores is the generator that drew the cluster; the random policies continue to draw from
	// it.
	Scores *pyrandom.Rand
	// Arrivals draws the arrival times of filler jobs.
	Arrivals *pyrandom.Rand
	OnEvent  func(Event) // may be nil
}

// Event is a start, move, suspension or end of a job.
type Event struct {
	TimeS float64
	Job   int // index in order of arrival
	Kind  string
	GPUs  []int // ascending; nil for suspend and finish
}

// Policies are the artifact's placement policies.
func Policies() []string {
	return []string{"pal", "pm-first", "packed-sticky", "packed-nonsticky", "random-sticky", "random-nonsticky"}
}

// Orders are the orders of the artifact's queue.
func Orders() []string { return []string{"fifo", "las", "srtf"} }

// roundJob is the simulator's state of one job.
type roundJob struct {
	trace.Job
	index      int
	gang       pal.Gang
	placement  pal.Placement
	executed   float64 // iterations done
	eff        float64 // seconds per iteration on its current GPUs
	attained   float64
	priority   int
	waitS      float64
	sinceRunS  float64
	firstStart float64
	finish     float64
	key        float64 // sort key of the order in this round
	running    bool
	had        []int // GPUs before this round
	launched   bool
	suspended  bool
}

// starveS is the wait, in seconds, after which the artifact puts a job first.
const starveS = 3_600_000

// waitRoundS is the round length that the artifact uses to compute initial waits, whatever the real
// length is (simulator_sia.py:313-317).
const waitRoundS = 360

type rounds struct {
	Run
	t        float64
	arrived  int
	last     float64 // time of the last submission
	next     *roundJob
	active   []*roundJob
	tracked  int
	suspends []*roundJob // jobs that lost their GPUs in this round
	launches []*roundJob
	lastRun  []*roundJob // jobs that ran after the last placement, in order of placement
	pol      pal.Policy
	busyS    float64
	jobs     []*roundJob
}

// Run simulates until every job of the trace has finished.
func (f Run) Run() (Result, error) {
	if f.To == 0 {
		f.To = len(f.Jobs) - 1
	}
	r := &rounds{Run: f, tracked: f.To - f.From + 1}
	if err := r.check(); err != nil {
		return Result{}, err
	}
	r.next = r.draw()
	for ; r.tracked > 0; r.t += r.RoundS {
		r.progress()
		r.arrive()
		r.schedule()
		r.place()
		r.exec()
	}
	return r.result(), nil
}

func (r *rounds) check() error {
	switch {
	case !slices.Contains(Policies(), r.Policy):
		return fmt.Errorf("the artifact does not have the policy %q; it has %v", r.Policy, Policies())
	case !slices.Contains(Orders(), r.Order):
		return fmt.Errorf("the artifact does not have the order %q; it has %v", r.Order, Orders())
	}
	for _, j := range r.Jobs {
		if j.GPUs > r.Cluster.NumGPUs() {
			return fmt.Errorf("job %q needs %d GPUs, but the cluster has %d", j.ID, j.GPUs, r.Cluster.NumGPUs())
		}
	}
	switch r.Policy {
	case "pal":
		r.pol.Name = pal.PAL
	case "pm-first":
		r.pol.Name = pal.PMFirst
	case "packed-sticky", "packed-nonsticky":
		r.pol.Name = pal.Packed
	default:
		r.pol = pal.Policy{Name: pal.Random, Sample: r.Scores.Sample}
	}
	return nil
}

// draw returns the next job to arrive: first the jobs of the trace, then the same jobs again as
// filler jobs.
func (r *rounds) draw() *roundJob {
	n := len(r.Jobs)
	if r.arrived >= n && !r.Fillers {
		return nil
	}
	j := &roundJob{Job: r.Jobs[r.arrived%n], index: r.arrived, priority: 999, firstStart: -1}
	if r.arrived >= n {
		j.SubmitS = r.last + math.Ceil(-math.Log(1-r.Arrivals.Float64())/r.LoadPerH*3600)
	}
	r.last = j.SubmitS
	r.arrived++
	j.gang = pal.SingleGPUs(j.ID, j.Class, j.GPUs)
	j.waitS = math.RoundToEven(j.SubmitS/waitRoundS+0.5)*waitRoundS - j.SubmitS
	return j
}

// progress is the artifact's step 1: it adds one round of work to the running jobs.
func (r *rounds) progress() {
	active := r.active[:0]
	for _, j := range r.active {
		if j.running {
			r.busyS += r.RoundS * float64(j.GPUs)
			j.executed += r.RoundS / j.eff
			j.attained += r.RoundS
			if j.executed >= j.Iterations {
				r.finish(j)
				continue
			}
		}
		active = append(active, j)
	}
	r.active = active
}

func (r *rounds) finish(j *roundJob) {
	r.Cluster.Release(j.gang, j.placement)
	j.running, j.finish = false, r.t
	r.emit(j, "finish", nil)
	if r.follows(j) {
		r.tracked--
	}
	r.lastRun = nil
}

func (r *rounds) follows(j *roundJob) bool { return j.index >= r.From && j.index <= r.To }

func (r *rounds) emit(j *roundJob, kind string, gpus []int) {
	if r.OnEvent != nil {
		r.OnEvent(Event{r.t, j.index, kind, gpus})
	}
}

func (r *rounds) arrive() {
	for r.next != nil && r.next.SubmitS <= r.t {
		r.active = append(r.active, r.next)
		r.jobs = append(r.jobs, r.next)
		r.next = r.draw()
	}
}

// schedule orders the active jobs; jobs with equal keys stay in order of arrival.
func (r *rounds) schedule() {
	for _, j := range r.active {
		switch r.Order {
		case "fifo":
			j.key = j.SubmitS
		case "las":
			j.key = j.attained
		case "srtf":
			j.key = j.IterTimeS*j.Iterations - j.attained
		}
	}
	slices.SortFunc(r.active, func(a, b *roundJob) int {
		if c := cmp.Compare(a.priority, b.priority); c != 0 {
			return c
		}
		if c := cmp.Compare(a.key, b.key); c != 0 {
			return c
		}
		return a.index - b.index
	})
}

// exec is step 7: suspensions, then launches, then waiting times.
func (r *rounds) exec() {
	for _, j := range r.suspends {
		if !j.launched {
			r.emit(j, "suspend", nil)
		}
	}
	for _, j := range r.launches {
		r.launch(j)
	}
	for _, j := range r.active {
		if j.suspended || j.launched || j.running {
			j.sinceRunS = 0
		} else {
			j.sinceRunS += r.RoundS
			j.waitS += r.RoundS
			if j.sinceRunS >= starveS {
				j.priority = 1
			}
		}
		j.suspended, j.launched, j.had = false, false, nil
	}
	r.launches, r.suspends = r.launches[:0], r.suspends[:0]
}

func (r *rounds) launch(j *roundJob) {
	gpus := j.placement.GPUs()
	slices.Sort(gpus)
	j.running = true
	j.eff = float64(j.placement.PMScore) * j.placement.Penalty * j.IterTimeS
	switch {
	case j.firstStart < 0:
		j.firstStart = r.t
		r.emit(j, "start", gpus)
	case j.had == nil:
		r.emit(j, "resume", gpus)
	case !slices.Equal(j.had, gpus):
		r.emit(j, "move", gpus)
	}
}
