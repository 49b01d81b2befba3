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
// have stopped. A pass keeps the free GPUs of the claim when the walk reaches its gang, so the gangs
// ahead of it in the queue can take them.
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
		slower = e.job.Slower(len(pl.Members), e.full.MemberSets[0].Members)
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
	if b := c.by.bucket; b != nil {
		b.tries = without(b.tries, c.by)
	}
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

// serveClaims settles the claims of overdue gangs that got them in their turn, because turns come
// before the queue. GPUs that are kept for the next turn are not used.
func (p *pass) serveClaims() {
	for _, c := range slices.Clone(p.Queue.claims) {
		if !c.granted || p.full() {
			continue
		}
		free := func() {}
		if p.turn != nil {
			_, free = p.hold(p.turn.placement.GPUs())
		}
		f, ok := p.fitsNow(c, func() (pal.Found, bool) { return p.asManyAsFit(c.by, p.find) })
		free()
		p.settle(c, f, ok)
	}
}

// settle starts the gang of a claim on GPUs that are free now, if it fits. If it does not fit, the
// free GPUs of the claim are kept for it until all victims have stopped.
func (p *pass) settle(c *claim, f pal.Found, fits bool) {
	switch {
	case fits:
		c.by.granted = c.granted
		p.start(c.by, f)
	case len(c.victims) > 0:
		if len(p.hidden) > 0 { // a turn can keep GPUs of the claim
			p.show()
			defer p.hide()
		}
		p.holdToEnd(c.placement)
	default:
		p.drop(c)
	}
}

// retry tries to start a gang with a claim when the walk reaches it.
func (p *pass) retry(b *bucket, e *entry) {
	b.tries = b.tries[1:]
	f, ok := p.fitsNow(e.claim, func() (f pal.Found, ok bool) {
		if f, ok = p.fits(b, e); !ok {
			return f, false
		}
		f, by := p.sparing(e, f)
		return f, by == nil
	})
	p.settle(e.claim, f, ok)
}

// fitsNow calls `look`, unless the claim's gang would exceed a quota. The GPUs of the claim do not
// count during the call, because the gang does not need both.
func (p *pass) fitsNow(c *claim, look func() (pal.Found, bool)) (f pal.Found, ok bool) {
	p.promise(c, -1)
	defer p.promise(c, 1)
	if p.overQuota(c.by) {
		return f, false
	}
	return look()
}

// lineUp stores, in the field tries of each bucket, the gangs with claims that the walk has to try.
func (p *pass) lineUp() {
	for _, b := range p.live {
		b.tries = b.tries[:0]
	}
	for _, c := range p.Queue.claims {
		if !c.granted {
			c.by.bucket.tries = append(c.by.bucket.tries, c.by)
		}
	}
	for _, b := range p.live {
		slices.SortFunc(b.tries, func(a, b *entry) int { return a.key.compare(b.key) })
	}
}

// holdRest keeps the GPUs of claims whose gangs the walk has not reached.
func (p *pass) holdRest() {
	for _, b := range p.live {
		for _, e := range b.tries {
			p.holdToEnd(e.claim.placement)
		}
	}
}

// displace drops the claims on GPUs of the placement, except the given one.
func (p *pass) displace(pl pal.Placement, except *claim) {
	if len(p.Queue.claims) == 0 {
		return
	}
	wanted := setOf(pl.GPUs())
	for _, c := range slices.Clone(p.Queue.claims) {
		if c != except && touches(c.placement, wanted) {
			p.drop(c)
		}
	}
}
