// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// claim is a waiting gang for which other gangs are being stopped. A claim lasts until all victims
// have stopped. Until then, its GPUs are kept for its gang.
type claim struct {
	by        *entry
	placement pal.Placement // empty after [Queue.Rebase]
	victims   []*entry      // gangs that are still being stopped or shrunk for it
	granted   bool          // the gang is overdue, and got the claim in its turn
	saved     time.Duration // the longest wait that stopping one victim has saved so far; see countStop
	gpus      float64       // GPUs that count as promised to its tenants; see promise
}

// reason returns why the claim's gang waits: Stopping if at least one victim is being stopped,
// otherwise Shrinking. The results `stop` and `shrink` list the IDs of the victims that are stopped
// and shrunk.
func (c *claim) reason() (r reason.Kind, stop, shrink []string) {
	for _, v := range c.victims {
		if len(v.target.Members) > 0 {
			shrink = append(shrink, v.job.ID)
		} else {
			stop = append(stop, v.job.ID)
		}
	}
	if len(stop) == 0 && len(shrink) > 0 {
		return reason.Shrinking, nil, shrink
	}
	return reason.Stopping, stop, shrink
}

// endOn returns when a waiting gang is expected to end if it starts on this placement at the given
// time.
func (e *entry) endOn(pl pal.Placement, at time.Duration) time.Duration {
	slower := 1.0
	if e.elastic != nil {
		slower = Slower(len(pl.Members), e.full.MemberSets[0].Members)
	}
	return later(at, stretched(e.expect, pl.Cost()*slower))
}

// enter adds a claim to the Queue.
func enter(q *Queue, c *claim) {
	q.claims = append(q.claims, c)
	c.by.claim = c
	for _, v := range c.victims {
		v.stopsFor = c
	}
	c.gpus = c.by.amount(c.by.least())
	q.promise(c, 1)
	q.rebucket(c.by)
}

// drop ends a claim. The claim's victims still stop.
func (q *Queue) drop(c *claim) {
	q.version++
	q.claims = without(q.claims, c)
	c.by.claim = nil
	for _, v := range c.victims {
		v.stopsFor = nil
	}
	q.promise(c, -1)
	q.rebucket(c.by)
}

// promise adds a claim's GPUs to the counts of its gang's tenants, user and array (sign 1), or
// subtracts them (-1).
func (ts *tenancy) promise(c *claim, sign int) {
	for t := c.by.of.tenant; t != nil; t = t.parent {
		t.promised += float64(sign) * c.gpus
	}
	c.by.of.tenant.countUser(c.by.job.User, float64(sign)*c.gpus, 0)
	ts.countJob(c.by, sign)
}

// without returns the list without the item `one`.
func without[T comparable](list []T, one T) []T {
	return slices.DeleteFunc(list, func(o T) bool { return o == one })
}

// serveClaims starts the gangs for which others have stopped. Until all victims of a claim have
// stopped, its free GPUs are kept for its gang. Claims come before the queue, so nobody takes GPUs for
// which a gang was stopped.
func (p *pass) serveClaims() {
	var ready []*claim
	var free []func()
	for _, c := range slices.Clone(p.Queue.claims) {
		_, back := p.hold(c.placement.GPUs())
		switch {
		case p.outOfService(c):
			back()
			p.drop(c)
		case len(c.victims) > 0 || p.full():
			back()
			p.holdToEnd(c.placement)
		default:
			ready, free = append(ready, c), append(free, back)
		}
	}
	if p.turn != nil {
		_, back := p.hold(p.turn.placement.GPUs())
		defer back()
	}
	for i, c := range ready {
		free[i]()
		if f, ok := p.fitsNow(c); ok {
			c.by.granted = c.granted
			p.start(c.by, f)
		} else {
			p.drop(c)
		}
	}
}

// outOfService reports whether a GPU of the claim is out of service, so its gang must look for others.
func (p *pass) outOfService(c *claim) bool {
	return slices.ContainsFunc(c.placement.GPUs(), func(u int) bool { return !p.c.Available(u) && !p.taken(u) })
}

// fitsNow returns a placement on which the gang of a claim can start. The GPUs of the claim do not
// count in the quotas, because the gang does not need both.
func (p *pass) fitsNow(c *claim) (f pal.Found, ok bool) {
	p.promise(c, -1)
	defer p.promise(c, 1)
	if p.overQuota(c.by) {
		return f, false
	}
	if f, ok = p.asManyAsFit(c.by, p.find); !ok {
		return f, false
	}
	f, by := p.sparing(c.by, f)
	return f, by == nil
}
