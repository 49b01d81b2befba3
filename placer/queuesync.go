// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

func (c Config) queueOptions() queue.Options {
	o := c.Queue
	o.Placement = c.policy()
	o.Starts = startsPerCycle
	return o
}

// startsPerCycle bounds a cycle: what happens meanwhile must not wait until
// thousands of gangs are committed.
const startsPerCycle = 256

// syncQueue has each gang tell the queue what happened to it since the last cycle, and the
// view on which GPUs it is.
func (p *Placer) syncQueue(ctx context.Context) {
	for _, k := range p.view.Shifted() {
		if t := p.jobs[k]; t != nil {
			t.quiet = false // the queue is to know where it runs
		}
	}
	for _, t := range p.sorted() {
		if t.quiet {
			continue
		}
		p.beginJob(t.Key)
		p.step(ctx, t, gang.Sync{Unread: t.passedOver, After: t.after != "", Eligible: t.eligible})
		if id := t.Key.String(); t.Placed && !slices.Equal(p.queue.On(id), p.view.Holds(t.Key)) {
			p.queue.Holds(since(p.now), id, p.at(t))
		}
		t.quiet = t.Quiet()
	}
	p.endJob()
}

// at is where a gang runs.
func (p *Placer) at(t *tracked) pal.Placement {
	return p.view.Running(t.Request, p.view.Holds(t.Key))
}

// reconsider tells the queue which nodes may serve whom, after some came or went
// and the requests were read again.
func (p *Placer) reconsider() {
	p.queue.Reconsider(func(id string, g pal.Gang) pal.Gang {
		t := p.byID(id)
		if t == nil || t.Refused != nil || len(t.Request.Gang.MemberSets) != len(g.MemberSets) {
			return g
		}
		now := t.Request.Gang
		now.MemberSets = slices.Clone(now.MemberSets)
		for i := range now.MemberSets { // members that have finished since still count
			now.MemberSets[i].Members = g.MemberSets[i].Members
		}
		return now
	})
}

// rebase tells the queue the numbers of a new cluster.
func (p *Placer) rebase() {
	for _, t := range p.jobs {
		t.Target = nil // in numbers that mean nothing any more: it waits in the queue
	}
	p.queue.Rebase(func(id string, g pal.Gang, pl pal.Placement) (pal.Gang, pal.Placement) {
		unknown := pal.Placement{Penalty: 1, PMScore: 1}
		t := p.byID(id)
		if t == nil || p.state.Jobs[t.Key] == nil {
			return g, unknown
		}
		r, err := p.requestOf(gang.Observe(p.state, p.state.Jobs[t.Key]))
		if err != nil {
			return g, unknown
		}
		return r.Full(), p.view.Running(r, p.view.Holds(t.Key))
	})
}
