// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package baselines

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Clairvoyant is a run under a scheduler that cannot exist in reality: it knows how long each gang
// will run, and stops, starts and moves gangs at no cost. Clairvoyant runs as many gangs as fit,
// first the gangs with the least remaining GPU time (work at cost 1 × GPUs). Slow GPUs and distance
// cost as much as under other policies. GPUs do not fail. The average job completion time, with
// which other policies are compared, is not a proven bound, because finding the best order of gangs
// is NP-hard.
//
// Clairvoyant shares no code with pal/queue. To choose the GPUs of one gang, it uses the product's
// [pal.Place].
type Clairvoyant struct {
	Jobs    []trace.Job
	Cluster *pal.Cluster
}

// clairvoyantJob is the scheduler's state of one job.
type clairvoyantJob struct {
	gang      pal.Gang
	kind      *gangKind
	gpus      int
	left      float64 // seconds of work at cost 1 that remained at the time since
	need      float64 // latest result of remaining, by which compare sorts
	since     time.Duration
	running   bool
	repacked  bool // repack chose its current placement
	placement pal.Placement
	cost      float64
	first     time.Duration
	finish    time.Duration
	heldS     float64
	runs      int
}

// gangKind groups the gangs of one class and demand, which fit in the same places.
type gangKind struct {
	gpus    int
	waiting []int   // by remaining GPU time, then submission
	least   float64 // cost on the empty cluster; 0: not computed yet
}

type clairvoyantEngine struct {
	Clairvoyant
	jobs    []clairvoyantJob
	kinds   []*gangKind
	running []int
	now     time.Duration
	done    int
	next    int   // index of the next arrival
	freed   int   // number of GPUs freed since the last repack
	err     error // a run never ends
}

// Run simulates until every job has finished.
func (c Clairvoyant) Run() (sim.Outcome, error) {
	e := &clairvoyantEngine{Clairvoyant: c}
	kinds := map[string]*gangKind{}
	for _, j := range c.Jobs {
		g := sim.GangOf(j)
		shape := string(j.Class) + g.Demand()
		if _, ok := e.place(g); !ok {
			return sim.Outcome{}, fmt.Errorf("job %q does not fit the empty cluster: it needs %s", j.ID, j.TaskGroups())
		}
		if kinds[shape] == nil {
			kinds[shape] = &gangKind{gpus: j.GPUs}
			e.kinds = append(e.kinds, kinds[shape])
		}
		e.jobs = append(e.jobs, clairvoyantJob{gang: g, kind: kinds[shape], gpus: j.GPUs, left: j.WorkS(), first: -1, finish: -1})
	}
	for e.done < len(e.jobs) {
		at := e.nextTime()
		e.now = at
		e.finish()
		for e.next < len(c.Jobs) && seconds(c.Jobs[e.next].SubmitS) <= at {
			e.jobs[e.next].since = at
			e.enqueue(e.next)
			e.next++
		}
		if e.decide(); e.err != nil {
			return sim.Outcome{}, e.err
		}
	}
	return e.outcome(), nil
}

// end is the time when a running job ends.
func (e *clairvoyantEngine) end(i int) time.Duration {
	j := &e.jobs[i]
	return j.since + time.Duration(math.Ceil(j.left*j.cost*float64(time.Second)))
}

func (e *clairvoyantEngine) nextTime() time.Duration {
	at := time.Duration(math.MaxInt64)
	if e.next < len(e.Jobs) {
		at = seconds(e.Jobs[e.next].SubmitS)
	}
	for _, i := range e.running {
		at = min(at, e.end(i))
	}
	return at
}

// finish ends the jobs whose work is done.
func (e *clairvoyantEngine) finish() {
	e.running = slices.DeleteFunc(e.running, func(i int) bool {
		j := &e.jobs[i]
		if e.end(i) > e.now {
			return false
		}
		e.release(i)
		j.left, j.finish = 0, e.now
		e.done++
		return true
	})
}

// remaining is the GPU time that a job still needs.
func (e *clairvoyantEngine) remaining(i int) float64 {
	j := &e.jobs[i]
	left := j.left
	if j.running {
		left = max(0, left-(e.now-j.since).Seconds()/j.cost)
	}
	return left * float64(j.gpus)
}

// compare orders jobs by their remaining GPU time, which choose has updated for running jobs.
func (e *clairvoyantEngine) compare(a, b int) int {
	if c := cmp.Compare(e.jobs[a].need, e.jobs[b].need); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

func (e *clairvoyantEngine) enqueue(i int) {
	j := &e.jobs[i]
	j.need = e.remaining(i)
	k := j.kind
	at, _ := slices.BinarySearchFunc(k.waiting, i, e.compare)
	k.waiting = slices.Insert(k.waiting, at, i)
}

// decide chooses the jobs to run, stops the others and starts the chosen ones. Moves cost nothing.
// If a gang does not fit, or its placement is bad, other jobs are placed again: first a few
// neighbours and, if this is not enough, all running jobs.
func (e *clairvoyantEngine) decide() {
	starts, stops := e.choose()
	for _, i := range stops {
		e.suspend(i)
	}
	rest := e.start(starts)
	for _, i := range e.badlyPlaced() {
		e.release(i)
		e.drop(i)
		rest = append(rest, i)
	}
	if len(rest) == 0 {
		return
	}
	if rest = e.repack(rest, e.neighbours(rest)); len(rest) > 0 {
		rest = e.repack(rest, slices.Clone(e.running))
	}
	for _, i := range rest {
		e.enqueue(i)
	}
	e.freed = 0
}

// If a gang's cost exceeds muchWorse times its lowest possible cost, other gangs move to make room
// for it.
const muchWorse = 1.2

// badlyPlaced returns the running gangs that cost much more than they would alone on the cluster.
// badlyPlaced leaves out a gang that repack has placed, unless enough GPUs for this gang came free
// since the last repack.
func (e *clairvoyantEngine) badlyPlaced() (gangs []int) {
	for _, i := range e.running {
		j := &e.jobs[i]
		if j.cost > muchWorse*e.leastCost(i) && (!j.repacked || e.freed >= j.gpus) {
			gangs = append(gangs, i)
		}
	}
	return gangs
}

// spare is the number of nodes to empty in addition to the nodes that the gangs need.
const spare = 2

// neighbours returns the running gangs to move so that the given gangs find whole nodes: those on
// the emptiest nodes, a few nodes more than needed.
func (e *clairvoyantEngine) neighbours(gangs []int) []int {
	used := make([]int, e.Cluster.Groups())
	alone := make([]int, len(e.running)) // device group on which the whole gang is; -1: several groups
	for n, i := range e.running {
		j := &e.jobs[i]
		alone[n] = e.Cluster.GroupOf(j.placement.Members[0].GPUs[0])
		for _, m := range j.placement.Members {
			if m.Group != alone[n] {
				alone[n] = -1
			}
			used[m.Group] += len(m.GPUs)
		}
	}
	for n, i := range e.running {
		if alone[n] < 0 { // a gang on several groups is not moved, so its GPUs stay taken
			for _, m := range e.jobs[i].placement.Members {
				used[m.Group] += e.Cluster.NumGPUs()
			}
		}
	}
	wanted := 0
	for _, i := range gangs {
		wanted += e.jobs[i].gpus
	}
	groups := make([]int, len(used))
	for g := range groups {
		groups[g] = g
	}
	slices.SortStableFunc(groups, func(a, b int) int { return cmp.Compare(used[a], used[b]) })
	_, each := e.Cluster.GroupGPUs(0)
	emptiest := groups[:min(len(groups), wanted/each+1+spare)]
	var moved []int
	for n, i := range e.running {
		if slices.Contains(emptiest, alone[n]) {
			moved = append(moved, i)
		}
	}
	return moved
}

// choose goes through all jobs by remaining GPU time. A job runs if enough GPUs remain, on
// whichever nodes. choose removes from the queue the jobs that start.
func (e *clairvoyantEngine) choose() (starts, stops []int) {
	for _, i := range e.running {
		e.jobs[i].need = e.remaining(i)
	}
	free := e.Cluster.FreeGPUs()
	if e.nobodyBetter(free) {
		return nil, nil
	}
	free = e.Cluster.NumGPUs()
	running := slices.Clone(e.running)
	slices.SortFunc(running, e.compare)
	for {
		best, of := -1, (*gangKind)(nil)
		for _, k := range e.kinds {
			if q := k.waiting; len(q) > 0 && k.gpus <= free && (best < 0 || e.compare(q[0], best) < 0) {
				best, of = q[0], k
			}
		}
		for len(running) > 0 && (best < 0 || e.compare(running[0], best) < 0) {
			if e.jobs[running[0]].gpus > free {
				stops = append(stops, running[0])
				running = running[1:]
				continue
			}
			best, of = running[0], nil
		}
		if best < 0 {
			return starts, stops
		}
		free -= e.jobs[best].gpus
		if of == nil {
			running = running[1:]
			continue
		}
		of.waiting = of.waiting[1:]
		starts = append(starts, best)
	}
}

// nobodyBetter reports whether no waiting job fits on the free GPUs and none goes before a running
// job.
func (e *clairvoyantEngine) nobodyBetter(free int) bool {
	worst := -1
	for _, i := range e.running {
		if worst < 0 || e.compare(i, worst) > 0 {
			worst = i
		}
	}
	for _, k := range e.kinds {
		if q := k.waiting; len(q) > 0 && (k.gpus <= free || worst >= 0 && e.compare(q[0], worst) < 0) {
			return false
		}
	}
	return true
}

// place avoids outliers if the gang fits on the other GPUs.
func (e *clairvoyantEngine) place(g pal.Gang) (pal.Placement, bool) {
	p := pal.Policy{Name: pal.PAL, OutlierThreshold: queue.DefaultOutlierThreshold}
	if pl, ok := pal.Place(e.Cluster, g, p); ok {
		return pl, true
	}
	p.OutlierThreshold = 0
	return pal.Place(e.Cluster, g, p)
}

// start starts jobs in order until a job does not fit; it returns this job and the rest.
func (e *clairvoyantEngine) start(jobs []int) (rest []int) {
	for n, i := range jobs {
		pl, ok := e.place(e.jobs[i].gang)
		if !ok {
			return jobs[n:]
		}
		e.resume(i, pl)
		e.running = append(e.running, i)
	}
	return nil
}

// repack places waiting gangs and some running gangs again, the widest first, and returns the gangs
// that still do not fit. repack is called if a gang does not fit although enough GPUs are free in
// total.
func (e *clairvoyantEngine) repack(gangs, running []int) (rest []int) {
	for _, i := range running {
		e.release(i)
		e.drop(i)
	}
	all := append(running, gangs...)
	slices.SortFunc(all, func(a, b int) int {
		return cmp.Or(cmp.Compare(e.jobs[b].gpus, e.jobs[a].gpus), cmp.Compare(a, b))
	})
	for _, i := range all {
		if len(e.start([]int{i})) > 0 {
			rest = append(rest, i)
			continue
		}
		e.jobs[i].repacked = true
	}
	return rest
}

// drop removes a job from the list of running jobs.
func (e *clairvoyantEngine) drop(i int) {
	at := slices.Index(e.running, i)
	e.running[at] = e.running[len(e.running)-1]
	e.running = e.running[:len(e.running)-1]
}

// leastCost is the cost of a gang on the best GPUs of the empty cluster.
func (e *clairvoyantEngine) leastCost(i int) float64 {
	k := e.jobs[i].kind
	if k.least == 0 {
		for _, r := range e.running {
			e.Cluster.Release(e.jobs[r].gang, e.jobs[r].placement)
		}
		pl, _ := e.place(e.jobs[i].gang)
		k.least = pl.Cost()
		for _, r := range e.running {
			e.Cluster.Take(e.jobs[r].gang, e.jobs[r].placement)
		}
	}
	return k.least
}

// suspend puts a running job back into the queue.
func (e *clairvoyantEngine) suspend(i int) {
	e.release(i)
	e.drop(i)
	e.enqueue(i)
}

// release frees a job's GPUs and records its work.
func (e *clairvoyantEngine) release(i int) {
	j := &e.jobs[i]
	e.Cluster.Release(j.gang, j.placement)
	j.left = e.remaining(i) / float64(j.gpus)
	j.heldS += (e.now - j.since).Seconds()
	j.running, j.since = false, e.now
	e.freed += j.gpus
}

// resume runs a job on the placement.
func (e *clairvoyantEngine) resume(i int, pl pal.Placement) {
	j := &e.jobs[i]
	e.Cluster.Take(j.gang, pl)
	j.running, j.repacked, j.placement, j.cost, j.since = true, false, pl, pl.Cost(), e.now
	if j.left*j.cost > century {
		e.err = fmt.Errorf("job %q would run for more than 100 years", e.Jobs[i].ID)
	}
	if j.first < 0 {
		j.first = e.now
	}
	j.runs++
}

// outcome has no samples.
func (e *clairvoyantEngine) outcome() sim.Outcome {
	o := sim.Outcome{}
	first, last, held, work := math.Inf(1), 0.0, 0.0, 0.0
	for i := range e.jobs {
		j, t := &e.jobs[i], e.Jobs[i]
		r := sim.JobResult{ID: t.ID, Class: t.Class, GPUs: t.GPUs, WorkS: t.WorkS(), Submit: t.SubmitS,
			Start: j.first.Seconds(), Finish: j.finish.Seconds(), Wait: (j.finish - seconds(t.SubmitS)).Seconds() - j.heldS,
			HeldS: j.heldS, Runs: j.runs, Tier: j.placement.Tier, Model: j.placement.Model}
		o.Jobs = append(o.Jobs, r)
		o.Preemptions += j.runs - 1
		first, last = min(first, r.Submit), max(last, r.Finish)
		held, work = held+j.heldS*float64(j.gpus), work+r.WorkS*float64(j.gpus)
	}
	if last > 0 {
		all := float64(e.Cluster.NumGPUs()) * last
		o.MakespanS, o.Utilization, o.Useful = last-first, held/all, work/all
	}
	return o
}

// century is the maximum run time of a job, in seconds.
const century = 100 * 365 * 86400

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
