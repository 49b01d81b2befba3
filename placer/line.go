// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

func (c Config) lineOptions() queue.Options {
	o := c.Queue
	o.Placement = c.policy()
	return o
}

// lineJob is the job as the queue sees it.
func (t *tracked) lineJob() queue.Job {
	h := t.request.Hints
	return queue.Job{
		ID: t.Key.String(), Name: *t.Job.Name, Tenant: t.Key.Namespace, Gang: t.request.Gang,
		Priority: *t.Job.Priority, Submitted: since(t.submitted()), Estimate: h.Duration,
		Preemptible: h.Preempt && !t.Astray, Migratable: h.Migrate && !t.Astray,
	}
}

// submitted is when the author registered the job: our own registering, which
// leaves pins behind, does not count.
func (t *tracked) submitted() time.Time {
	if t.record != nil && len(t.Pins.Groups) > 0 {
		return t.record.Submitted
	}
	return time.Unix(0, *t.Job.SubmitTime)
}

// syncLine tells the line what happened since the last cycle.
func (p *Placer) syncLine(now time.Time) {
	for _, t := range p.sorted() {
		id := t.Key.String()
		switch {
		case t.refused != nil || now.Before(t.retryAt):
			if t.queued && !t.running {
				p.line.Removed(since(now), id)
				t.queued = false
			}
		case t.Phase == Waiting && !t.queued:
			p.submit(t)
		case t.Phase == Waiting && t.running:
			p.line.Stopped(since(now), id)
			t.running, t.stopping = false, false
		case t.Phase == Waiting && t.edited:
			p.line.Removed(since(now), id)
			p.submit(t)
		case t.Phase == Starting || t.Phase == Running:
			p.seenRunning(t, now)
		}
		t.edited = false
	}
}

func (p *Placer) submit(t *tracked) {
	j := t.lineJob()
	if err := p.line.Submit(j.Submitted, j); err != nil {
		t.refused = err
		return
	}
	t.queued, t.running = true, false
}

// seenRunning makes sure that the line knows that the job runs, and on what.
func (p *Placer) seenRunning(t *tracked, now time.Time) {
	held := p.view.Holds(t.Key)
	if len(held) == 0 {
		return
	}
	pl := p.view.Running(t.request, held)
	switch {
	case !t.queued:
		started := t.startedAt(now)
		if err := p.line.Restore(t.lineJob(), pl, since(started)); err != nil {
			return
		}
	case !t.running || t.holds != len(held):
		p.line.Started(since(now), t.Key.String(), pl)
	default:
		return
	}
	t.queued, t.running, t.holds = true, true, len(held)
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

// rebase tells the line the numbers of a new cluster.
func (p *Placer) rebase() {
	p.line.Rebase(func(id string, g pal.Gang, pl pal.Placement) (pal.Gang, pal.Placement) {
		for _, t := range p.jobs {
			if t.Key.String() != id {
				continue
			}
			job := p.state.Jobs[t.Key]
			if job == nil {
				break
			}
			r, err := p.view.Request(job)
			if err != nil {
				break
			}
			return r.Gang, p.view.Running(r, p.view.Holds(t.Key))
		}
		return g, pal.Placement{Penalty: 1, PMScore: 1}
	})
}
