// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import "github.com/nomad-pal/nomad-pal/pal/queue"

// Pace is the new speed of a running job when jobs start or leave on its GPUs, relative to its speed
// alone. See [Config.Repace].
type Pace struct {
	Job  int
	Rate float64
}

// recall sets what neighbours cost job i when it enters the queue, from earlier runs of jobs with
// the same name.
func (e *engine) recall(i int) {
	g := &e.jobs[i].gang
	if g.Sharing == nil {
		return
	}
	with := *g.Sharing
	with.Slower, _ = queue.SlowerBeside(g.Class, e.queue.RunsBeside(e.Jobs[i].Name, g.GPUs()))
	g.Sharing = &with
}

// pace is the state of a run when its speed changes: the time worked, the remaining work, and the
// new cost.
type pace struct{ worked, left, cost float64 }

// leftAfter returns the work that remains after the run has worked for the given number of seconds.
func (j *simJob) leftAfter(worked float64) float64 {
	p := j.pace[0]
	for _, q := range j.pace[1:] {
		if q.worked <= worked {
			p = q
		}
	}
	return max(0, p.left-(worked-p.worked)/p.cost)
}

// repace changes the speeds of jobs because job i starts or leaves.
func (e *engine) repace(i int, starts bool) {
	if e.Repace == nil {
		return
	}
	for _, p := range e.Repace(i, e.jobs[i].placement, starts) {
		j := &e.jobs[p.Job]
		last, cost := &j.pace[len(j.pace)-1], j.cost/p.Rate
		if j.stopping || j.done || cost == last.cost {
			continue
		}
		worked := max(0, (e.now - j.since).Seconds())
		next := pace{worked, j.leftAfter(worked), cost}
		if e.CheckpointS > 0 && worked > last.worked { // keep the history, because a stop can go back to an earlier checkpoint
			j.pace = append(j.pace, next)
		} else {
			*last = next
		}
		e.pushEnd(p.Job, max(e.now, j.since), next.left*cost)
	}
}
