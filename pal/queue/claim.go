// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// claim is a waiting gang's right to GPUs that other gangs are freeing for it. A claim lasts until
// all victims have stopped. Until all victims have stopped, no other gang gets these GPUs.
type claim struct {
	by        *entry
	placement pal.Placement
	victims   []*entry      // gangs that are still being stopped or shrunk for it
	granted   bool          // the gang is overdue, and got the claim in its turn
	saved     time.Duration // the longest wait that stopping one victim has saved so far; see countStop
	gpus      float64       // GPUs that count as promised to its tenants; see promise
	held      []int         // GPUs of the placement that are free now, and that this pass has marked as taken
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
func (q *Queue) enter(c *claim) {
	q.claims = append(q.claims, c)
	c.by.claim = c
	for _, v := range c.victims {
		v.stopsFor = c
	}
	c.gpus = c.by.amount(c.by.least())
	q.promise(c, 1)
	q.rebucket(c.by)
}

// drop ends a claim. The claim's victims still stop, and another gang can get their GPUs: see
// takeOver.
func (q *Queue) drop(c *claim) {
	q.version++
	q.claims = without(q.claims, c)
	c.by.claim = nil
	for _, v := range c.victims {
		if v.stopsFor = nil; v.state == stopping {
			q.leaving = append(q.leaving, v)
		}
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

// settleClaims starts each gang whose claim has no victims left. For each other claim, it holds the
// GPUs that are already free. If all victims have stopped but a GPU of the placement is not
// available, settleClaims drops the claim.
func (p *pass) settleClaims() {
	for _, c := range slices.Clone(p.Queue.claims) {
		c.held = nil
		switch {
		case len(c.victims) > 0:
			c.held = p.holdToEnd(c.placement)
		case p.allFree(c.placement):
			c.by.granted = c.granted
			p.start(c.by, pal.Found{Placement: c.placement})
		default:
			p.drop(c)
		}
	}
}

// elsewhere looks for GPUs on which a gang with a claim can start now, because stopping its victims
// can take long. The function `look` can use the free GPUs and the GPUs that are held for the gang.
func (p *pass) elsewhere(c *claim, look func() (pal.Found, bool)) (f pal.Found, ok bool) {
	defer p.unmark(c.held)()
	p.promise(c, -1)
	defer p.promise(c, 1)
	if p.overQuota(c.by) {
		return f, false
	}
	return look()
}

// letGo releases the GPUs that this pass holds for a claim.
func (p *pass) letGo(c *claim) {
	if len(c.held) == 0 {
		return
	}
	p.unmark(c.held)
	p.unlist(c.held)
	held := setOf(c.held)
	p.held = slices.DeleteFunc(p.held, func(u int) bool { return held[u] })
}

// retries stores, in the field tries of each bucket, the gangs with a claim for which enough GPUs
// are free or held. Gangs that got their claim in a turn are omitted: see serveClaims.
func (p *pass) retries() {
	for _, b := range p.live {
		b.tries = b.tries[:0]
	}
	free := p.c.FreeGPUs() + len(p.hidden)
	if free == 0 {
		return
	}
	for _, c := range p.Queue.claims {
		if e := c.by; !c.granted && free+len(c.held) >= e.least() {
			e.bucket.tries = append(e.bucket.tries, e)
		}
	}
	for _, b := range p.live {
		slices.SortFunc(b.tries, func(a, b *entry) int { return a.key.compare(b.key) })
	}
}

// retry starts a gang with a claim if it fits now.
func (p *pass) retry(b *bucket, e *entry) {
	b.tries = b.tries[1:]
	if len(e.claim.held) > 0 {
		p.foreseeHead(e)
	}
	f, ok := p.elsewhere(e.claim, func() (f pal.Found, ok bool) {
		if f, ok = p.fits(b, e); !ok {
			return f, false
		}
		f, by := p.sparing(e, f)
		return f, by == nil && !p.holdsOut(e, f.Placement)
	})
	if !ok {
		return
	}
	p.start(e, f)
	if p.turn != nil { // some of the held GPUs may belong to the turn
		p.show()
		p.hide()
	}
}
