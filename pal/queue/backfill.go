// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// planner computes the reservation of the head and the GPUs that are kept for a turn, and finds the
// gangs that can be stopped for another gang.
type planner struct {
	finder
	head    *entry // the first gang that did not fit; nil: none
	reserve *reservation
}

// reservation contains the time and the GPUs of the head's expected start. As in EASY (Lifka 1995),
// only the head has a reservation.
type reservation struct {
	head      *entry
	stops     int           // gangs of worse (greater) levels than this can be stopped for the head
	at        time.Duration // since the caller's epoch
	placement pal.Placement
	known     bool         // false: the head would not fit even after the end of all gangs that end
	stale     bool         // gangs have started since the placement was chosen, so another one may be better now
	kept      map[int]bool // GPUs that are kept for the turn of another gang
}

// backfill returns a placement for the gang that delays neither the turn nor the head.
func (p *planner) backfill(e *entry) (pal.Found, bool) {
	f, ok := p.besideHead(e)
	if !ok || !p.delaysTurn(e, f) {
		return f, ok
	}
	_, free := p.hold(p.turn.placement.GPUs())
	defer free()
	return p.besideHead(e)
}

// besideHead returns a placement for the gang that does not delay the head. A gang does not delay
// the head if it ends before the head's start, or if it uses none of the head's GPUs.
func (p *planner) besideHead(e *entry) (pal.Found, bool) {
	f, ok := p.find(e)
	if !ok || p.head == nil || !p.delays(e, f) {
		return f, ok
	}
	if f, ok := p.beside(p.reserve, e); ok {
		return f, true
	}
	p.slack = e.does(p.reserve.at-p.now, f)
	return pal.Found{}, false
}

// mayDelay reports whether the Queue must check that this gang does not delay the head. With
// BackfillBestEffort, no check is necessary. For a preemptible gang, a check is necessary only if
// the head has a higher priority. The package comment explains why.
func (p *planner) mayDelay(e *entry) bool {
	return p.opt.Backfill != BackfillBestEffort && (!p.stoppable(e) || p.head != nil && p.behind(e) > p.behind(p.head))
}

// delays reports whether a gang that starts now on this placement could delay the head. If the
// head's start cannot be predicted, the result is false.
func (p *planner) delays(e *entry, f pal.Found) bool {
	if !p.mayDelay(e) {
		return false
	}
	r := p.headReserve()
	return r.known && !p.endsBy(e, f, r.at) && !p.stoppableBy(e, r.at)
}

// endsBy reports whether a gang that starts on this placement now is expected to have ended by the
// given time.
func (p *finder) endsBy(e *entry, f pal.Found, at time.Duration) bool {
	return !e.job.Endless && p.now+e.takes(e.expect, f) <= at
}

// foreseeHead updates the head's reservation. Call foreseeHead before the what-if frees GPUs for
// the gang e. Otherwise, the head's reservation could include these GPUs.
func (p *planner) foreseeHead(e *entry) {
	if p.head != nil && p.mayDelay(e) {
		p.reserved()
	}
}

// headReserve returns the head's reservation, which can be stale. The first call computes the
// reservation.
func (p *planner) headReserve() *reservation {
	if p.reserve == nil {
		p.reserve = p.reserveFor(p.head, p.level(p.head, p.now))
	}
	return p.reserve
}

// reserved returns the head's reservation. If gangs have started since the reserved GPUs were
// chosen, the GPUs are chosen again.
func (p *planner) reserved() *reservation {
	r := p.headReserve()
	if r.stale && r.known {
		p.replan(r)
	}
	return r
}

// beside returns a placement for the gang that uses none of the reserved GPUs. If the search fails
// and the reservation is stale, beside updates the reservation and searches again.
func (p *planner) beside(r *reservation, e *entry) (pal.Found, bool) {
	find := func() (pal.Found, bool) {
		_, free := p.hold(r.placement.GPUs())
		defer free()
		return p.find(e)
	}
	f, ok := find()
	if ok || !r.stale {
		return f, ok
	}
	p.replan(r)
	return find()
}

// ending is the time at which a gang, or some of its members, free their GPUs for a head.
type ending struct {
	*entry
	at     time.Duration
	marked []int // set for a gang that will get its GPUs later: these GPUs; nil: those of its placement
	// gang is set if the head can stop the members of entry, or if the gang can give these members
	// back. The members leave at the time `at`. If quotas protect the members from the head, they
	// leave at the time `until`.
	gang  *entry
	until time.Duration
}

// touches reports whether at least one of the GPUs is in the set.
func (e ending) touches(set map[int]bool) bool {
	return slices.ContainsFunc(e.frees(), func(u int) bool { return set[u] })
}

// frees returns the GPUs that become free.
func (e ending) frees() []int {
	if e.marked == nil {
		return e.placement.GPUs()
	}
	return e.marked
}

// endings returns when GPUs come free for the head, the earliest time first. A gang frees GPUs when
// it is expected to end, when it is stopped for the head, or when it gives back members. The call
// also changes the what-if. Gangs that are being stopped, shrunk or moved free their GPUs at once,
// and the gangs that get these GPUs next take them. The GPUs that are kept for a turn are taken as
// well. The functions in `back` undo these changes.
func (p *planner) endings(r *reservation) (ends []ending, back []func()) {
	if p.opt.Preempt {
		p.levels.relevel(&p.foresight, p.now)
	}
	ends = make([]ending, 0, len(p.byEnd)+len(p.pending)+len(p.Queue.claims)+1)
	add := func(e *entry, at time.Duration, marked []int) {
		if p.ends(e) {
			ends = append(ends, ending{entry: e, at: at, marked: marked})
		}
	}
	for _, e := range p.byEnd {
		switch {
		case e.state == stopping:
			back = append(back, p.vacateMembers(e, len(e.target.Members), len(e.placement.Members)))
			add(e.with(0, len(e.target.Members)), e.expectedEnd, nil)
		case e.state == moving:
			back = append(back, p.vacate(e))
		default:
			stays := p.couldStay(r, e)
			if stays == len(e.placement.Members) {
				add(e, e.expectedEnd, nil)
			} else if stays > 0 {
				add(e.with(0, stays), e.expectedEnd, nil)
			}
			if stays < len(e.placement.Members) && p.ends(e) {
				ends = append(ends, ending{e.with(stays, len(e.placement.Members)), min(e.expectedEnd, max(p.now, e.safeUntil)), nil, e, e.expectedEnd})
			}
		}
	}
	gets := func(e *entry, at time.Duration, gpus []int) {
		_, free := p.hold(gpus)
		back = append(back, free)
		add(e, at, gpus)
	}
	for _, e := range p.pending { // including those of this pass
		if e.state == starting {
			add(e, e.expectedEnd, nil)
		} else {
			gets(e, e.expectedEnd, e.target.GPUs())
		}
	}
	for _, c := range p.Queue.claims {
		if len(c.placement.Members) == 0 {
			continue
		}
		gets(c.by, c.by.endOn(c.placement, p.now), c.placement.GPUs())
	}
	if t := p.turn; t != nil && t.by != r.head {
		r.kept = setOf(t.placement.GPUs())
		begins := max(p.now, t.begins)
		ends = p.clear(ends, r.kept, begins)
		gets(t.by, max(begins+time.Second, t.by.endOn(t.placement, begins)), t.placement.GPUs())
	}
	sortEndings(ends)
	return ends, back
}

// sortEndings sorts endings by time, the earliest first.
func sortEndings(ends []ending) {
	slices.SortFunc(ends, func(a, b ending) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
}

// clear returns the endings, but lets gangs on GPUs that are kept for a turn end no later than
// `begins`, when the turn's gang starts. Quotas do not protect these gangs.
func (p *planner) clear(ends []ending, kept map[int]bool, begins time.Duration) []ending {
	for i, e := range ends {
		switch n := firstOn(e.placement, kept); {
		case !e.touches(kept):
		case e.at <= begins:
			ends[i].until = min(e.until, begins)
		case e.hasLent() && n >= e.job.Least:
			ends[i] = ending{entry: e.with(n, len(e.placement.Members)), at: begins}
			ends = append(ends, ending{entry: e.with(0, n), at: e.at})
		default:
			ends[i].at = begins
		}
	}
	return ends
}

// couldStay returns how many members of a running gang keep running because the head can neither
// stop them nor get them back. When the head starts, quotas can protect further members: see spare.
func (p *planner) couldStay(r *reservation, e *entry) int {
	_, over := p.quotas(r.head, e, nil)
	surely := r.stops == math.MinInt || over && p.tree.quotas
	switch {
	case e.state != running:
	case e.level != nil && (surely || e.level.level > r.stops):
		return 0
	case e != p.changed && e.hasLent() && (surely || p.level(e, p.now) >= r.stops):
		return e.job.Least
	}
	return len(e.placement.Members)
}

// spare finds the members that quotas protect from a head that starts at startTime, and puts these
// members back into the what-if. Only the first len(gone) endings are checked. The function gone[i]
// puts the members of ends[i] back. The function `back` removes these members from the what-if
// again.
func (p *planner) spare(r *reservation, ends []ending, gone []func()) (back func()) {
	if !p.tree.quotas && !p.tenantsFirst() || r.stops == math.MinInt {
		return func() {}
	}
	stay, parts := p.staying(r, ends[:len(gone)]), []func(){}
	differs := func(e ending) bool { return e.gang != nil && e.until > p.startTime() && stay(e) > 0 }
	for i, e := range slices.Backward(ends[:len(gone)]) {
		if differs(e) {
			gone[i]()
		}
	}
	for _, e := range ends[:len(gone)] {
		if !differs(e) {
			continue
		}
		if n := len(e.placement.Members); stay(e) < n {
			parts = append(parts, p.away(r, ending{entry: e.with(stay(e), n)}))
		}
	}
	return func() {
		undoAll(parts)
		for i, e := range ends[:len(gone)] {
			if differs(e) {
				gone[i] = p.away(r, e)
			}
		}
	}
}

// staying returns a function that counts the members of an ending that can keep running when the
// head starts at startTime.
func (p *planner) staying(r *reservation, ends []ending) func(ending) int {
	var back []func()
	for _, e := range ends {
		until := e.at
		if e.gang != nil {
			until = e.until
		}
		if until > p.startTime() || e.state == waiting {
			continue
		}
		gpus := p.c.Amount(e.frees()...)
		e.of.tenant.count(e.job.User, -gpus)
		back = append(back, func() { e.of.tenant.count(e.job.User, gpus) })
	}
	vs := p.together(r.head, r.stops)
	for v := vs.next(); v != nil; v = vs.next() {
		vs.keep[v] = 0
	}
	undoAll(back)
	return func(e ending) int {
		n, goes := vs.keep[e.gang]
		if !goes {
			return len(e.placement.Members)
		}
		return max(0, n-len(e.gang.placement.Members)+len(e.placement.Members))
	}
}

// away frees the GPUs of an ending in the what-if, except the GPUs that are kept for a turn. The
// function `back` marks these GPUs as taken again.
func (p *planner) away(r *reservation, e ending) (back func()) {
	left := p.leave(e)
	if r.kept == nil || e.entry == p.turn.by || !e.touches(r.kept) {
		return left
	}
	_, free := p.hold(slices.DeleteFunc(slices.Clone(e.frees()), func(u int) bool { return !r.kept[u] }))
	return func() {
		free()
		left()
	}
}

// leave frees the GPUs of an ending in the what-if, including GPUs that are kept for a turn.
func (p *planner) leave(e ending) (back func()) {
	if e.marked != nil {
		return p.unmark(e.marked)
	}
	return p.gone(e.entry)
}

// reserveFor returns a reservation with the predicted start of the head: when and on which GPUs. In
// the what-if, it ends the running gangs in the order of their expected ends until the head fits.
// Gangs whose level is worse than `stops` are stopped. Each further try ends twice as many gangs.
// Doubling needs few searches, but the predicted start can be too late.
func (p *planner) reserveFor(head *entry, stops int) *reservation {
	r, done := &reservation{head: head, stops: stops}, 0
	ends, back := p.endings(r)
	gone := make([]func(), 0, len(ends))
	undo := func() {
		undoAll(gone)
		undoAll(back)
		gone, back = nil, nil
	}
	defer func() { undo() }()
	next := 1
	if len(back) > 0 {
		next = 0 // gangs that are already leaving may free enough GPUs
	}
	for at := p.now; ; {
		for ; done < len(ends) && (p.c.FreeGPUs() < head.gpus || next > 0); done++ {
			gone = append(gone, p.away(r, ends[done]))
			at, next = max(p.now, ends[done].at), next-1
		}
		enough, fits := p.startsAt(r, at, ends, gone)
		if fits {
			r.at, r.known = at, true
			undo()
			p.replan(r)
			return r
		}
		if done == len(ends) {
			return r
		}
		if next = 1 + done; !enough { // too scattered: end twice as many; too few free because quotas protect gangs: a sixteenth more
			next = 1 + done/16
		}
	}
}

// startsAt reports whether enough GPUs for the head are free at the given time (enough), and
// whether the head fits on these GPUs (fits). The gangs of the first len(gone) endings have already
// left the what-if.
func (p *planner) startsAt(r *reservation, at time.Duration, ends []ending, gone []func()) (enough, fits bool) {
	defer p.startingAt(at)()
	defer p.spare(r, ends, gone)()
	if enough = p.c.FreeGPUs() >= r.head.gpus; enough {
		_, fits = p.place(r.head)
	}
	return enough, fits
}

// replan chooses the head's GPUs again, among the GPUs that are expected to be free at the head's
// start. Among equally good choices, it prefers GPUs that are in use now.
func (p *planner) replan(r *reservation) {
	r.stale = false
	defer p.startingAt(r.at)()
	free := p.freeNow()
	ends, back := p.endings(r)
	defer func() { undoAll(back) }()
	var gone []func()
	for _, e := range ends {
		if e.at > r.at {
			break
		}
		gone = append(gone, p.away(r, e))
	}
	defer func() { undoAll(gone) }()
	defer p.spare(r, ends, gone)()
	p.fewest(r, free)
}

// fewest sets the placement of the reservation. Among the placements with the least cost, fewest
// chooses one that uses as few of the free GPUs as possible. By bisection, fewest finds how many
// free GPUs it can hide from the search.
func (p *planner) fewest(r *reservation, free []int) {
	if len(free) > 0 {
		p.marked = append(p.marked, free)
		defer p.unlist(free)
	}
	hidden := 0 // number of GPUs at the beginning of free that are hidden
	show := func(n int) {
		for ; hidden > n; hidden-- {
			p.c.SetTaken(free[hidden-1], false)
		}
		for ; hidden < n; hidden++ {
			p.c.SetTaken(free[hidden], true)
		}
	}
	defer show(0)
	least := math.Inf(1)
	if pl, ok := p.place(r.head); ok {
		r.placement, least = pl, pl.Cost()
	}
	low, high := 0, max(0, min(len(free), p.c.FreeGPUs()+len(free)-r.head.gpus))
	for low <= high {
		mid := (low + high + 1) / 2
		show(mid)
		if pl, ok := p.place(r.head); ok && pl.Cost() <= least {
			r.placement, low = pl, mid+1
		} else {
			high = mid - 1
		}
	}
}
