// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Told reports whether the Queue knows anything about the job's run time: an estimate of its user,
// a limit, or earlier runs of its name.
func (fs *foresight) Told(j Job) bool {
	return j.Estimate > 0 || j.Limit > 0 || len(fs.samples(j.Name)) > 0
}

// RemainingQuantiles predicts how long a gang will still run at cost 1, as quantiles. The elements
// of `parts` are probabilities between 0 and 1. For an unknown gang, RemainingQuantiles returns
// nil.
func (q *Queue) RemainingQuantiles(now time.Duration, id string, parts ...float64) []time.Duration {
	e := q.entries[id]
	if e == nil {
		return nil
	}
	o, out := q.remainingRunTime(e, now), make([]time.Duration, len(parts))
	for i, part := range parts {
		out[i] = o.quantile(part)
	}
	return out
}

// Ask returns what a pass on a copy of the Queue would decide now if j replaced the waiting gang with
// the same ID: the GPUs on which j would start, or what it would wait for. A new gang waits since the
// given time.
func (q *Queue) Ask(now time.Duration, c *pal.Cluster, j Job, since time.Duration) (at pal.Placement, w Wait, starts bool) {
	o := q.Clone()
	e := o.entries[j.ID]
	if e != nil && e.state == waiting {
		o.dequeue(e)
		o.breakPromise(e)
		e.job, e.gpus = j, j.Gang.GPUs()
		e.full = pal.Gang{}
		if j.Least > 0 {
			e.full = j.Gang
		}
		o.enqueue(e)
	} else if o.Removed(now, j.ID); o.Submit(since, j) != nil {
		return at, w, false
	}
	p, queue := o.asked(now, c)
	i := slices.IndexFunc(queue, func(e *entry) bool { return e.job.ID == j.ID })
	for _, e := range p.started {
		if e == queue[i] {
			at, starts = e.placement, true
		}
	}
	return at, p.waits(queue, i+1)[i], starts
}

// RoomFor returns a placement for a running gang whose job was edited, or the reason why the edited
// gang must wait. The cluster must show the gang's own GPUs as free. The gang keeps them, unless it
// must give them up, or asks for more GPUs while they are reserved for the head. For other GPUs, it
// waits behind all waiting gangs, as if it were submitted now. It does not wait for better GPUs.
func (q *Queue) RoomFor(now time.Duration, c *pal.Cluster, j Job) (f pal.Found, w Wait, ok bool) {
	c = c.Clone()
	had, own := q.entries[j.ID], []int{}
	if had != nil { // for others, they are not free
		c.Take(had.job.Gang, among(had.placement, c.Available))
	}
	o := q.Clone()
	p, _ := o.asked(now, c)
	if p.head != nil {
		p.headReserve()
		w.Ahead = p.head.job.ID
	}
	if had != nil {
		promised := map[int]bool{}
		for _, e := range p.claims {
			maps.Copy(promised, setOf(e.promised.placement.GPUs()))
		}
		back := among(had.placement, func(u int) bool { return p.c.Taken(u) && !promised[u] })
		p.c.Release(had.job.Gang, back)
		c.Release(had.job.Gang, among(had.placement, c.Taken))
		p.ended, p.empty = nil, nil
		own = back.GPUs()
	}
	o.Removed(now, j.ID)
	e, err := o.newEntry(j)
	if err != nil {
		return f, w, false
	}
	e.wait.since, e.wait.declined = now, -1
	e.anyNeighbour = true // other members run already, so RefuseBad does not apply
	e.memo.expect = o.remaining(e, now)
	p.count(now)
	f, why := p.besideHead(e, own)
	ahead := w.Ahead
	ok = why == reason.Next
	w = p.why(e, why)
	w.Job, w.GPUs = j.ID, e.gpus
	w.Ahead = ahead
	switch w.Reason {
	case reason.Limit, reason.Quota:
		ok = false
	case reason.Reserved:
		for _, u := range own { // free here, but not reserved for another gang
			if j.Gang.MayUse(c.GroupOf(u)) {
				w.Free--
			}
		}
	}
	if ok {
		w.Reason = reason.Next
	}
	return f, w, ok
}

// besideHead returns a placement for an edited gang, and the reason [reason.Next], or another reason.
func (p *pass) besideHead(e *entry, own []int) (f pal.Found, why reason.Kind) {
	f, ok := p.find(e)
	switch {
	case !ok:
		return f, reason.GPUs
	case p.head == nil || p.opt.Backfill != BackfillNone && !p.delays(e, f):
		f, by := p.sparing(e, f)
		if by != nil {
			return f, reason.Spared
		}
		return f, reason.Next
	}
	kept := p.freeNow()
	if p.opt.Backfill != BackfillNone {
		kept = p.reserve.placement.GPUs()
	}
	if e.gpus <= len(own) {
		kept = slices.DeleteFunc(kept, func(u int) bool { return slices.Contains(own, u) })
	}
	p.besides(kept, func() { f, ok = p.find(e) })
	if !ok {
		return f, reason.Reserved
	}
	return f, reason.Next
}

// among returns the members of the placement for whose GPUs `is` returns true.
func among(pl pal.Placement, is func(gpu int) bool) pal.Placement {
	pl.Members = slices.DeleteFunc(slices.Clone(pl.Members), func(m pal.Member) bool {
		return slices.ContainsFunc(m.GPUs, func(u int) bool { return !is(u) })
	})
	return pl
}
