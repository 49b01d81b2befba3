// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Change describes an edit, made or planned, of a gang's job.
type Change struct {
	Job Job // the edited job
	// Own lists the GPUs that the gang gives up for the edit. The cluster that is passed to RoomFor
	// must show these GPUs as free.
	Own []int
}

// RoomFor returns a placement for a gang after the edit of its job. If the edited gang must wait, ok
// is false, and w contains the reason. A running gang does not wait for better GPUs.
//
// The gang gets its own GPUs (Own), unless it requests additional GPUs and the head's reservation
// includes its own GPUs. For GPUs that are not its own, the gang waits behind all waiting gangs, as
// if it were submitted now. The gang gets GPUs of the head's reservation only if it ends before the
// head needs them. RoomFor decides nothing, and leaves the cluster unchanged.
func (q *Queue) RoomFor(now time.Duration, c *pal.Cluster, ch Change) (f pal.Found, w Wait, ok bool) {
	p := asking(q, now, c)
	defer p.putBack()
	j := ch.Job
	p.changed, p.own = q.entries[j.ID], ch.Own
	_, free := p.hold(ch.Own)
	p.giveOthers()
	free()
	p.own = nil
	for _, cl := range q.claims { // their placements can contain GPUs of ch.Own
		p.holdToEnd(cl.placement)
	}
	e := &entry{job: j, of: q.namespace(j.Tenant), gpus: j.Gang.GPUs(), slower: 1, before: j.Attained, doneBefore: j.Done, waitingSince: now, declined: -1}
	waits := p.changed != nil && p.changed.state == waiting
	if waits {
		e.waitingSince, e.declined = p.changed.waitingSince, p.changed.declined
	}
	e.anyNeighbour = p.changed != nil && p.changed.state >= running // its other members run already, so RefuseBad does not apply
	q.sign(e)
	e.expect = q.remaining(e, now)
	f, w.Reason = p.roomFor(e, ch, &w)
	if waits && w.Reason == reason.Next {
		if until, declines := p.waitsForBetterGPUs(e, f.Placement); declines {
			w.Reason, w.Until = reason.Locality, until
		}
	}
	w.Job, w.GPUs, w.Free = j.ID, e.gpus, pal.FreeFor(c, j.Gang)
	w.FreeOthers = c.FreeGPUs() - w.Free
	w.count(e, w.GPUs)
	if w.Reason == reason.Reserved { // ch.Own counts as free here, but is not reserved for another gang
		w.Free -= p.freeOf(j.Gang, ch.Own)
	}
	if w.Reason == reason.Limit {
		w.say(w.Reason, p.tree, e.tooLarge())
	}
	if w.Reason == reason.InWindow {
		w.barredBy(p.barring(e), now)
	}
	if p.head != nil {
		w.Ahead = p.head.job.ID
	}
	return f, w, w.Reason == reason.Next
}

// freeOf returns how many of the given GPUs are free and usable by the gang.
func (p *asker) freeOf(g pal.Gang, gpus []int) (n int) {
	for _, u := range gpus {
		if p.c.Available(u) && g.MayUse(p.c.GroupOf(u)) {
			n++
		}
	}
	return n
}

// giveOthers starts, in the what-if, all waiting gangs that could start now. The first waiting gang
// that does not fit becomes the head.
func (p *asker) giveOthers() {
	p.holdPromised()
	if p.turn != nil && p.turn.head != p.changed {
		p.holdToEnd(p.turn.placement)
	}
	for _, e := range p.inOrder() {
		if e == p.changed && e.state == waiting { // if the edited gang waits, it keeps its place: gangs behind it come later
			return
		}
		if e.state == starting || e.claim != nil || p.hasTurn(e) {
			continue
		}
		p.toLeast(e)
		switch r, _ := p.reason(e, nil, p.c.FreeGPUs()); {
		case r == reason.Next:
			pl, _ := p.placeNow(e)
			p.take(e.job.Gang, pl)
			clear(p.found)
		case r == reason.Reserved: // a service that waits until a gang behind it has run
		case holdsUp(r):
			if p.head = e; p.opt.Backfill == BackfillReserved { // predict it here, while RoomFor marks the edited gang's own GPUs as taken
				p.reserve = p.reserveFor(e, p.level(e, p.now))
			}
			return
		}
	}
}

// roomFor returns a placement for an edited running gang, and the reason [reason.Next]. The
// placement uses only GPUs that giveOthers has left free. If there is no placement, it returns
// another reason.
func (p *asker) roomFor(e *entry, ch Change, w *Wait) (f pal.Found, r reason.Kind) {
	if had := p.changed; had != nil && had.state >= running { // count the edited gang once, not before and after the edit
		had.of.tenant.count(had.job.User, -had.counted)
		defer had.of.tenant.count(had.job.User, had.counted)
	}
	switch {
	case e.tooLarge() != nil:
		return f, reason.Limit
	case e.limiting(e.gpus) != nil:
		w.say(reason.Quota, p.tree, e.limiting(e.gpus))
		return f, reason.Quota
	case p.barring(e) != nil:
		return f, reason.InWindow
	case e.gpus > pal.FreeFor(p.c, e.job.Gang):
		return f, reason.GPUs
	}
	f, ok := p.find(e)
	switch {
	case !ok:
		return f, reason.Scattered
	case p.head == nil || p.opt.Backfill != BackfillNone && !p.delays(e, f):
		f, by := p.sparing(e, f)
		if by != nil {
			return f, reason.Reserved
		}
		return f, reason.Next
	}
	kept := p.freeNow()
	if p.opt.Backfill != BackfillNone {
		kept = p.reserve.placement.GPUs()
	}
	if e.gpus <= len(ch.Own) {
		kept = slices.DeleteFunc(kept, func(u int) bool { return slices.Contains(ch.Own, u) })
	}
	_, free := p.hold(kept)
	defer free()
	if f, ok = p.find(e); !ok {
		return f, reason.Reserved
	}
	return f, reason.Next
}
