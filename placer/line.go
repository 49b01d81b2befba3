// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

func (c Config) lineOptions() queue.Options {
	o := c.Queue
	o.Placement = c.policy()
	o.Starts = startsPerCycle
	return o
}

// startsPerCycle bounds a cycle: what happens meanwhile must not wait until
// thousands of gangs are committed.
const startsPerCycle = 256

// lineJob is the job as the queue sees it.
func (p *Placer) lineJob(t *tracked) queue.Job {
	h := t.request.Hints
	name := *t.Job.Name
	if nomad.Child(t.Job) {
		name = *t.Job.ParentID // runs of one template are alike
	}
	var attained, done, waited time.Duration
	if r := t.ran(); r != nil && r.Attained > 0 {
		attained, done, waited = r.Attained, r.Done, r.Waited
	}
	near := h.Wait
	if near == 0 && (*t.Job.Type != api.JobTypeBatch || spreads(t.request.Gang)) {
		// A service is there to serve, and members that are to be apart come no
		// closer: neither waits for better GPUs unless told to.
		near = 1
	}
	// Names are those of a namespace: jobs that others call the same teach nothing of
	// these.
	return queue.Job{
		ID: t.Key.String(), Name: t.Key.Namespace + "/" + name, Tenant: t.Key.Namespace, Gang: t.request.Gang,
		Priority: *t.Job.Priority, Submitted: since(t.submitted()), Estimate: h.Duration, Limit: rewrite.Limit(t.Job),
		Preemptible: h.Preempt && !t.Astray, Migratable: h.Migrate && !t.Astray,
		Attained: attained, Done: done, Waited: waited, RestartCost: p.cfg.RestartCost, NearWait: near,
	}
}

// spreads says whether some of the gang is to be apart.
func spreads(g pal.Gang) bool {
	return slices.ContainsFunc(g.Shapes, func(s pal.Shape) bool { return len(s.Spreads) > 0 })
}

// submitted is when the author registered the job: our own registering, which
// leaves pins behind, does not count.
func (t *tracked) submitted() time.Time {
	if t.record != nil && len(t.Pins.Groups) > 0 {
		return t.record.Submitted
	}
	if t.place.index == *t.Job.JobModifyIndex && !t.place.since.IsZero() { // both indexes of a job that Nomad does not have are 0
		return t.place.since
	}
	return time.Unix(0, *t.Job.SubmitTime)
}

// ran is the record with what the gang has run and waited so far, nil where it
// never was placed.
func (t *tracked) ran() *Record {
	if len(t.Pins.Groups) > 0 {
		return t.record
	}
	if t.place.index == *t.Job.JobModifyIndex {
		return t.place.record
	}
	return nil
}

// waitsSince is when the gang began to wait, this time.
func (t *tracked) waitsSince() time.Time {
	if r := t.ran(); r != nil && r.Attained > 0 && !r.Stopped.IsZero() {
		return r.Stopped
	}
	return t.submitted()
}

// syncLine tells the line what happened since the last cycle. Afterwards every
// GPU that the line believes a gang to run on is held by that gang in the view:
// the line relies on it.
func (p *Placer) syncLine(now time.Time) {
	for _, t := range p.sorted() {
		if t.quiet {
			continue
		}
		p.on(t.Key)
		if t.Phase == Waiting && t.stopping && !p.dying(t) {
			p.hasStopped(t)
		}
		switch {
		case t.refused != nil || t.gaveUp() != nil || t.Phase == Waiting && !t.stopping && (now.Before(t.retryAt) || t.passedOver):
			if t.queued {
				p.line.Removed(since(now), t.Key.String())
				t.queued, t.running = false, false
			}
		case t.Phase == Waiting && !t.queued:
			p.submit(t)
		case t.Phase == Waiting && t.running && t.move == nil && !p.dying(t):
			if p.stopped(t, now); t.running {
				continue // what its author has changed meanwhile is taken in afterwards
			}
			if t.edited {
				p.resubmit(t, now)
			}
		case t.Phase == Waiting && t.edited:
			p.resubmit(t, now)
		case t.Phase == Starting || t.Phase == Running:
			p.seenRunning(t, now)
		}
		t.edited = false
		t.quiet = t.runsOn()
	}
	p.off()
}

// runsOn says whether the gang runs as it should, the line knows, and it is
// written down: most gangs are, at most times, and need no look.
func (t *tracked) runsOn() bool {
	return t.Phase == Running && !t.Astray && t.queued && t.running && t.move == nil && !t.replaced &&
		t.record != nil && !t.unsaved && !t.record.Confirmed.IsZero() && t.record.JobModifyIndex == *t.Job.JobModifyIndex &&
		(t.canariesDone == *t.Job.JobModifyIndex || !wantsCanaries(t.Standing))
}

// hasStopped takes in that all of a gang that was being stopped has stopped. The
// view does not know yet that its GPUs are free.
func (p *Placer) hasStopped(t *tracked) {
	if t.move != nil {
		p.moves = append(p.moves, t)
	}
	t.stopping, t.held = false, nil
	p.again = true
}

// stopped tells the line that a gang has stopped, once its GPUs are free in the
// view: else the line would find that what it was stopped for does not fit, and
// stop another one.
func (p *Placer) stopped(t *tracked, now time.Time) {
	if len(p.view.Holds(t.Key)) > 0 {
		return
	}
	p.line.Stopped(since(now), t.Key.String())
	t.running = false
}

// dying says whether allocations of the job still hold resources.
func (p *Placer) dying(t *tracked) bool {
	return slices.ContainsFunc(p.state.AllocsOf(t.Key), (*nomad.Alloc).Live)
}

// resubmit tells the line anew of a job that its author has changed.
func (p *Placer) resubmit(t *tracked, now time.Time) {
	p.line.Removed(since(now), t.Key.String())
	p.submit(t)
}

func (p *Placer) submit(t *tracked) {
	j := p.lineJob(t)
	if err := p.line.Submit(since(t.waitsSince()), j); err != nil {
		t.refused = err
		return
	}
	t.queued, t.running = true, false
}

// seenRunning makes sure that the line knows that the job runs, and on what.
func (p *Placer) seenRunning(t *tracked, now time.Time) {
	held := p.view.Holds(t.Key)
	if t.queued && t.running && slices.Equal(t.holds, held) {
		return
	}
	pl := p.view.Running(t.request, held)
	if t.queued {
		p.line.Started(since(now), t.Key.String(), pl)
	} else if err := p.line.Restore(p.lineJob(t), pl, since(t.startedAt(now))); err != nil {
		return
	}
	t.queued, t.running, t.holds = true, true, slices.Clone(held)
}

// startedAt is when the job's oldest member was made.
func (t *tracked) startedAt(now time.Time) time.Time {
	at := now
	for _, a := range t.Members {
		if c := time.Unix(0, a.CreateTime); c.Before(at) {
			at = c
		}
	}
	return at
}

// reconsider tells the line which nodes may serve whom, after some came or went
// and the requests were read anew.
func (p *Placer) reconsider() {
	p.line.Reconsider(func(id string, g pal.Gang) pal.Gang {
		t := p.byID(id)
		if t == nil || t.refused != nil || len(t.request.Gang.Shapes) != len(g.Shapes) {
			return g
		}
		now := t.request.Gang
		now.Shapes = slices.Clone(now.Shapes)
		for i := range now.Shapes { // members that have finished since still count
			now.Shapes[i].Members = g.Shapes[i].Members
		}
		return now
	})
}

// rebase tells the line the numbers of a new cluster.
func (p *Placer) rebase() {
	for _, t := range p.jobs {
		t.move = nil // in numbers that mean nothing any more: it waits in line
	}
	p.line.Rebase(func(id string, g pal.Gang, pl pal.Placement) (pal.Gang, pal.Placement) {
		unknown := pal.Placement{Penalty: 1, PMScore: 1}
		t := p.byID(id)
		if t == nil || p.state.Jobs[t.Key] == nil {
			return g, unknown
		}
		r, err := p.requestOf(StandingOf(p.state, p.state.Jobs[t.Key]))
		if err != nil {
			return g, unknown
		}
		t.holds = slices.Clone(p.view.Holds(t.Key))
		return r.Gang, p.view.Running(r, t.holds)
	})
}
