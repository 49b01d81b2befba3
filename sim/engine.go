// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Config is one run of the product's queue, driven by events.
type Config struct {
	Jobs    []trace.Job
	Cluster *pal.Cluster
	Queue   queue.Options
	// RestartS is the run time, in seconds, that a gang loses each time it is preempted or moved.
	RestartS float64
	// If Preemptible is set, gangs may be stopped and moved; if Migratable is set, gangs may be
	// moved. The queue's options must also allow stops or moves.
	Preemptible, Migratable bool
	// CheckpointS is the time between the checkpoints of a gang, in seconds; the queue knows this
	// time. A gang that is stopped loses its work since the last checkpoint. If CheckpointS is 0,
	// gangs lose no work.
	CheckpointS float64
	// RestartCostS is the restart cost that the queue assumes; 0 means RestartS.
	RestartCostS float64
	// StartS returns how long, at each start, a gang holds its GPUs before it works, in addition to
	// RestartS; nil means 0.
	StartS func() float64
	// StopS is how long a preempted gang holds its GPUs after its work has stopped.
	StopS float64
	// EndS is how long a gang holds its GPUs after it has done its work.
	EndS float64
	// Gang makes the gang of a job; nil means [GangOf].
	Gang func(trace.Job) pal.Gang
	// Slower returns the factor by which job i takes longer on the placement than the placement's
	// cost predicts. Slower is for jobs whose speeds the queue does not know; nil means there are
	// no such jobs.
	Slower func(i int, p pal.Placement) float64
	// Estimate is the queue's estimate of a job's work; nil means there are no estimates.
	Estimate func(i int, j trace.Job) time.Duration
	Seed     uint64
	// RoundS delays all events to the next multiple of RoundS seconds, as in the PAL artifact; 0
	// means no delay.
	RoundS float64
	// More returns one further job. After the end of the trace, the engine calls More for the next
	// arrival until all jobs of the trace have finished, as the artifact does. Results do not
	// contain these further jobs. If More is nil, there are no further jobs.
	More func() trace.Job
	// Decided is called after each decision, so that it can query the queue; may be nil.
	Decided func(now time.Duration, q *queue.Queue)
	// Observe is called for every start, preemption and end of a job; may be nil. kind is
	// "start", "resume", "preempt" or "finish". A move or a change of size is a "resume".
	Observe func(now time.Duration, job int, kind string, p pal.Placement)
}

// simJob is the engine's state of one job.
type simJob struct {
	gang      pal.Gang
	left      float64 // seconds of work at cost 1, at the start of its current run
	placement pal.Placement
	gpus      int           // of the placement
	since     time.Duration // when work begins: the start plus start and restart costs
	started   time.Duration // start of the current run
	cost      float64
	first     time.Duration
	finish    time.Duration
	waiting   time.Duration // start of the job's present wait
	waited    time.Duration
	lostS     float64 // GPU seconds that the job held without kept work
	ranS      float64 // GPU seconds that the job held
	runs      int
	resizes   int
	event     int64 // number of the event that ends the run or frees the GPUs; earlier events are stale
	running   bool
	stopping  bool // preempted: the event frees its GPUs
	done      bool // the job has done its work: the event frees its GPUs
	halted    time.Duration
}

type engine struct {
	Config
	queue    *queue.Queue
	jobs     []simJob
	index    map[string]int
	now      time.Duration
	next     int // index of the next arrival
	events   events
	tracked  int // number of jobs of the trace
	finished int // number of tracked jobs that have finished
	wakeAt   time.Duration
	use      usage
	err      error // set if the run cannot go on: see pushEnd
}

// Run simulates until every job has finished, or until nothing more can happen; Outcome.Stuck then
// counts the unfinished jobs.
func (c Config) Run() (Outcome, error) {
	e, err := c.engine()
	if err != nil {
		return Outcome{}, err
	}
	for e.finished < e.tracked {
		at, ok := e.nextTime()
		if !ok {
			break
		}
		e.advance(at)
		e.decide()
		if e.err != nil {
			return Outcome{}, e.err
		}
	}
	return e.outcome(), nil
}

func (c Config) engine() (*engine, error) {
	q, err := queue.New(c.Queue)
	if err != nil {
		return nil, err
	}
	if c.Gang == nil {
		c.Gang = GangOf
	}
	e := &engine{Config: c, queue: q, tracked: len(c.Jobs), index: make(map[string]int, len(c.Jobs))}
	e.jobs = make([]simJob, 0, len(c.Jobs))
	for _, j := range c.Jobs {
		if err := e.add(j); err != nil {
			return nil, err
		}
	}
	e.use = newUsage(c.Cluster.NumGPUs())
	return e, nil
}

// GangOf returns the gang of a job.
func GangOf(j trace.Job) pal.Gang {
	if j.Groups == nil && j.MemberGPUs <= 1 {
		g := pal.SingleGPUs(j.ID, j.Class, j.GPUs)
		g.Speeds = j.Speeds
		return g
	}
	g := pal.Gang{ID: j.ID, Class: j.Class, Speeds: j.Speeds}
	for _, group := range j.TaskGroups() {
		g.MemberSets = append(g.MemberSets, pal.MemberSet{Members: group.Members, GPUs: group.GPUs})
	}
	return g
}

// add adds the state of a job that will arrive.
func (e *engine) add(j trace.Job) error {
	if j.GPUs > e.Cluster.NumGPUs() {
		return fmt.Errorf("job %q needs %d GPUs, but the cluster has %d", j.ID, j.GPUs, e.Cluster.NumGPUs())
	}
	_, dup := e.index[j.ID]
	if dup {
		return fmt.Errorf("job %q is listed twice", j.ID)
	}
	e.index[j.ID] = len(e.jobs)
	e.jobs = append(e.jobs, simJob{gang: e.Gang(j), left: j.WorkS(), first: -1, finish: -1})
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// nextTime returns the time of the next event, arrival or wake-up.
func (e *engine) nextTime() (time.Duration, bool) {
	at, ok := e.events.nextAt()
	if e.next < len(e.jobs) {
		t := seconds(e.Jobs[e.next].SubmitS)
		if !ok || t < at {
			at, ok = t, true
		}
	}
	if e.wakeAt > e.now && (!ok || e.wakeAt < at) {
		at, ok = e.wakeAt, true
	}
	r := seconds(e.RoundS)
	if r > 0 {
		at = (at + r - 1) / r * r
	}
	return at, ok
}

// advance moves the clock to the given time, and processes the events and arrivals up to this time.
func (e *engine) advance(at time.Duration) {
	e.use.add(e.now, at)
	e.now = at
	for {
		ev, ok := e.events.popUntil(at)
		if !ok {
			break
		}
		j := &e.jobs[ev.job]
		switch {
		case !j.running || j.event != ev.seq:
		case j.stopping:
			e.preempted(ev.job)
		case !j.done && e.EndS > 0:
			e.linger(ev.job)
		default:
			e.end(ev.job)
		}
	}
	for e.next < len(e.jobs) && seconds(e.Jobs[e.next].SubmitS) <= at {
		e.enqueue(e.next)
		e.next++
		if e.next == len(e.jobs) && e.More != nil {
			e.Jobs = append(e.Jobs[:e.next:e.next], e.More())
			if err := e.add(e.Jobs[e.next]); err != nil {
				panic(err) // not possible: a job of the trace under a new id
			}
		}
	}
}

func (e *engine) enqueue(i int) {
	j := e.Jobs[i]
	preemptible := e.Preemptible || j.Preemptible
	q := queue.Job{ID: j.ID, Name: j.Name, Tenant: j.Tenant, Gang: e.jobs[i].gang, Submitted: e.now, Priority: j.Priority,
		Preemptible: preemptible, Migratable: preemptible || e.Migratable, RestartCost: seconds(cmp.Or(e.RestartCostS, e.RestartS)), Checkpoint: seconds(e.CheckpointS)}
	if e.Estimate != nil {
		q.Estimate = e.Estimate(i, j)
	}
	q.Least = j.LeastMembers
	e.jobs[i].waiting = e.now
	if err := e.queue.Submit(e.now, q); err != nil {
		panic(err) // not possible: ids, sizes and classes were checked
	}
	e.use.wait(1)
}

// decide carries out the queue's actions, and asks the queue again if an action can have freed
// GPUs.
func (e *engine) decide() {
	for {
		actions := e.queue.Decide(e.now, e.Cluster)
		if len(actions) == 0 {
			break
		}
		again := false
		for _, a := range actions {
			i := e.index[a.Job]
			if e.jobs[i].done {
				continue // its work is done, so its GPUs come free anyway
			}
			switch a.Kind {
			case queue.Start:
				e.start(i, a.Placement)
			case queue.Preempt:
				if e.StopS > 0 {
					e.halt(i)
					break
				}
				e.preempted(i)
				again = true
			case queue.Migrate:
				e.stop(i, "")
				e.start(i, a.Placement)
				again = true
			case queue.Resize:
				e.stop(i, "")
				e.jobs[i].resizes++
				e.start(i, a.Placement)
				again = true
			}
		}
		if !again {
			break
		}
	}
	e.queue.LookAround(e.now, e.Cluster)
	if e.Decided != nil {
		e.Decided(e.now, e.queue)
	}
	e.wakeAt = 0
	if at, ok := e.queue.Wake(e.now); ok {
		e.wakeAt = at
	}
}

// start runs job i on the placement.
func (e *engine) start(i int, p pal.Placement) {
	j := &e.jobs[i]
	e.Cluster.Take(j.gang, p)
	kind := "start"
	j.running = true
	j.placement, j.gpus = p, len(p.GPUs())
	j.cost = p.Cost() * e.slower(i, p)
	j.since, j.started = e.now, e.now
	if j.first < 0 {
		j.first = e.now
	}
	if e.StartS != nil {
		j.since += seconds(e.StartS())
	}
	if j.runs++; j.runs > 1 {
		kind = "resume"
		j.since += seconds(e.RestartS)
	}
	j.waited += e.now - j.waiting
	e.queue.Started(e.now, e.Jobs[i].ID, p)
	e.use.wait(-1)
	e.use.hold(j.gpus)
	e.pushEnd(i, j.since, j.left*j.cost)
	e.observe(i, kind, p)
}

// pushEnd schedules the end of job i, s seconds after begin.
func (e *engine) pushEnd(i int, begin time.Duration, s float64) {
	at, err := endOf(begin, s, e.Jobs[i].ID)
	e.err = cmp.Or(e.err, err)
	e.jobs[i].event = e.events.push(event{at: at, job: i})
}

// slower returns the factor by which job i takes longer than its placement predicts. Config.Slower
// and missing members of an elastic gang are the causes.
func (e *engine) slower(i int, p pal.Placement) float64 {
	slower, members := 1.0, len(p.Members)
	if e.Slower != nil {
		slower = e.Slower(i, p)
	}
	if e.Jobs[i].LeastMembers == 0 {
		return slower
	}
	return slower * queue.Slower(members, e.jobs[i].gang.MemberSets[0].Members)
}

func (e *engine) observe(i int, kind string, p pal.Placement) {
	if e.Observe != nil && kind != "" {
		e.Observe(e.now, i, kind, p)
	}
}

// halt stops the work of job i, which keeps its GPUs for another StopS.
func (e *engine) halt(i int) {
	j := &e.jobs[i]
	j.stopping, j.halted = true, e.now
	j.event = e.events.push(event{at: e.now + seconds(e.StopS), job: i})
}

// linger ends the work of job i, which keeps its GPUs for another EndS.
func (e *engine) linger(i int) {
	j := &e.jobs[i]
	j.done = true
	j.finish, j.halted = e.now, e.now
	j.event = e.events.push(event{at: e.now + seconds(e.EndS), job: i})
}

// preempted stops job i and puts it back into the queue.
func (e *engine) preempted(i int) {
	e.stop(i, "preempt")
	e.queue.Stopped(e.now, e.Jobs[i].ID)
}

// stop frees the GPUs of job i and records its work.
func (e *engine) stop(i int, kind string) {
	j := &e.jobs[i]
	e.Cluster.Release(j.gang, j.placement)
	gpus := float64(j.gpus)
	held := (e.now - j.started).Seconds()
	worked := e.now
	if j.stopping || j.done {
		worked, j.stopping = j.halted, false
	}
	useful, left := max(0, (worked-j.since).Seconds()), 0.0
	if kind != "finish" {
		useful = e.kept(useful)
		left = j.leftAfter(useful)
	}
	e.use.work(e.Jobs[i].GPUs, j.left-left)
	j.left = left
	j.lostS += (held - useful) * gpus
	j.ranS += held * gpus
	j.running, j.waiting = false, e.now
	e.use.hold(-j.gpus)
	e.use.wait(1)
	e.observe(i, kind, j.placement)
}

// kept returns how many of a stopped run's useful seconds are saved by its last checkpoint.
func (e *engine) kept(usefulS float64) float64 {
	if e.CheckpointS <= 0 {
		return usefulS
	}
	const rounding = 1e-6 // tolerance for a checkpoint that was just reached
	return min(usefulS, e.CheckpointS*math.Floor(usefulS/e.CheckpointS+rounding))
}

// leftAfter returns the work that remains after the run has worked for the given number of seconds.
func (j *simJob) leftAfter(worked float64) float64 { return max(0, j.left-worked/j.cost) }

// end finishes job i and frees its GPUs.
func (e *engine) end(i int) {
	e.stop(i, "finish")
	e.use.wait(-1)
	j := &e.jobs[i]
	if !j.done {
		j.finish = e.now
	}
	e.queue.Finished(e.now, e.Jobs[i].ID)
	if i < e.tracked {
		e.finished++
	}
}
