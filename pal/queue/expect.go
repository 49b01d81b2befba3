// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// expect sets From and To of ws: the range in which each gang of the queue is expected to start.
// When enough waits are known, it uses the waits of similar gangs ([forecasts.predictStart]).
//
// Until enough waits are known, expect simulates the queue twice. The simulations only count GPUs.
// In the early simulation, every gang ends at the start of the range predicted for its end, and
// small gangs can overtake large ones. In the late simulation, every gang ends at the end of this
// range, and no gang overtakes another. A gang that cannot use every GPU, or that has members with
// several GPUs, also waits until it fits (see openings). The simulation ends after the first gang
// whose run time is unknown. The simulation does not use GPUs of running gangs whose end is
// unknown, because a service may never release them. In the simulation, a gang that waits for a
// window has no expected start.
//
// With both methods, a gang that waits until services are stopped has no expected start. A gang for
// which other gangs are being stopped or shrunk has no expected start either: it starts once their
// members have ended, which takes little time. A gang that waits for a limit starts when enough of
// the gangs that count towards the limit have ended ([asker.underLimits]).
func (p *asker) expect(queue []*entry, ws []Wait) {
	limits := p.underLimits(queue, ws)
	if waits := p.forecasts.byLength(p.now); len(waits) > 0 {
		ahead, soonest := p.aheadOfAll(), oncePerKind(p.Queue, p.soonest)
		for i, e := range queue {
			limit := limits[i]
			switch {
			case e.state != waiting, e.claim != nil:
			case limit.to > 0: // more exact than a prediction from the waits of other gangs
				from := max(limit.from, soonest(e))
				ws[i].From, ws[i].To = from, max(from, limit.to)
			case ws[i].likeOthers():
				r := p.forecasts.predictStart(p.now, e, ahead[e], soonest(e), waits)
				later := max(0, ws[i].windowEnds()-r.from)
				ws[i].From, ws[i].To = r.from+later, r.to+later
			}
		}
		p.inLine(queue, ws, true)
		return
	}
	defer p.inLine(queue, ws, false)
	opens := p.openings()
	order, early, late := p.now, p.timeline(opens.early), p.timeline(opens.late)
	for i, e := range queue {
		if limit, ok := limits[i]; ok {
			ws[i].From, ws[i].To = p.afterLimit(e, limit, early, late)
		}
		if e.state != waiting || !forGPUs(ws[i].Reason) || ws[i].spares || e.claim != nil {
			// The gang does not wait for free GPUs.
			continue
		}
		run, longest, ok := p.remainingRange(e)
		soonest, latest, fits := opens.of(e, ws[i].Reason)
		if !fits {
			return // the starts of this gang and of those behind it are unknown
		}
		from, enough := early.start(soonest, e.gpus, run)
		to, enoughLate := late.start(max(order, latest), e.gpus, e.bounded(p.now, longest))
		if !enough || !enoughLate {
			return
		}
		ws[i].From, ws[i].To = from, max(from, to)
		if !ok {
			return
		}
		order = to
	}
}

// openings predicts when gangs fit that need more than enough free GPUs. Some gangs are picky: they
// cannot use every GPU, or not beside every neighbour. Other gangs have members with several GPUs,
// which must be on one node. For each of these gangs, openings finds the end of a running gang
// after which the gang fits. In the late simulation, two picky gangs of one kind never wait for the
// end of the same gang.
type openings struct {
	p           *asker
	early, late []ending
	kind        func(*entry) *openingOfKind
	tries       int
}

// openingOfKind contains the predictions of openings for one kind of gang.
type openingOfKind struct {
	soonest, latest time.Duration // when the first gang of the kind fits
	used            int           // number of endings at the beginning of late that earlier gangs of the kind used
	never           bool
}

// openings returns predictions that are based on the gangs that run now.
func (p *asker) openings() *openings {
	r := &openings{p: p, early: p.knownEnds(false), late: p.knownEnds(true)}
	kinds := 0
	r.kind = oncePerKind(p.Queue, func(e *entry) *openingOfKind {
		if kinds++; kinds > mostOpenings {
			return &openingOfKind{soonest: p.now, latest: p.now}
		}
		n, fits := p.fitsAfter(e, r.early)
		late, fitsLate := p.fitsAfter(e, r.late)
		if !fits || !fitsLate {
			return &openingOfKind{never: true}
		}
		soonest := endOf(r.early, n, p.now)
		return &openingOfKind{soonest: soonest, latest: max(soonest, endOf(r.late, late, p.now))}
	})
	return r
}

// mostOpenings is the maximum number of picky gangs for which one call of expect searches. The
// gangs behind them have no expected start. It is also the maximum number of kinds of gangs for
// which expect searches. For gangs of further kinds, expect only counts GPUs.
const mostOpenings = 100

// of returns when a gang that waits for this reason fits in the early and in the late simulation;
// ok is false if that is unknown. If the gang only needs enough free GPUs, the result is the
// present time. Within a kind, callers must call `of` in the order of the queue.
func (r *openings) of(e *entry, why reason.Kind) (soonest, latest time.Duration, ok bool) {
	several := func(s pal.MemberSet) bool { return s.GPUs > 1 }
	switch {
	case why == reason.Scattered || why == reason.Refused || why == reason.GPUs && (e.gpus <= r.p.c.FreeGPUs() || r.p.picky(e)):
		return r.next(e)
	case why == reason.GPUs && slices.ContainsFunc(e.job.Gang.MemberSets, several):
		k := r.kind(e)
		return k.soonest, k.latest, !k.never
	}
	return r.p.now, r.p.now, true
}

// next returns when the gang fits in the early and in the late simulation; ok is false if that is
// unknown.
func (r *openings) next(e *entry) (soonest, latest time.Duration, ok bool) {
	k := r.kind(e)
	if r.tries++; k.never || r.tries > mostOpenings {
		return 0, 0, false
	}
	n, fits := r.p.fitsAfter(e, r.late[k.used:])
	if k.never = !fits; !fits {
		return 0, 0, false
	}
	k.used += max(1, n)
	return k.soonest, max(k.soonest, endOf(r.late, min(k.used, len(r.late)), r.p.now)), true
}

// endOf returns the time of the n-th end, counted from 1, or the present time if n is 0.
func endOf(ends []ending, n int, now time.Duration) time.Duration {
	if n == 0 {
		return now
	}
	return ends[n-1].at
}

// fitsAfter returns the smallest number n for which the gang fits after the first n of the given
// ends. ok is false if the gang does not fit even after all ends.
func (p *planner) fitsAfter(e *entry, ends []ending) (n int, ok bool) {
	var gone []func()
	defer func() { undoAll(gone) }()
	fits := func(n int) bool {
		for len(gone) < n {
			gone = append(gone, p.leave(ends[len(gone)]))
		}
		undoAll(gone[n:])
		gone = gone[:n]
		_, ok := p.place(e)
		return ok
	}
	if fits(0) {
		return 0, true
	}
	low, high := 0, 1
	for ; high < len(ends) && !fits(high); high *= 2 {
		low = high
	}
	if high = min(high, len(ends)); low == high || !fits(high) {
		return 0, false
	}
	return low + 1 + sort.Search(high-low-1, func(i int) bool { return fits(low + 1 + i) }), true
}

// picky reports whether the gang needs certain GPUs, and not only enough free GPUs. A gang is picky
// if it shares GPUs, or cannot use every GPU of the cluster.
func (p *finder) picky(e *entry) bool {
	return e.job.Gang.Sharing != nil || p.kindOf(e).picky.of(func() bool {
		return slices.ContainsFunc(e.job.Gang.MemberSets, func(s pal.MemberSet) bool { return slices.Contains(s.Eligible, false) })
	})
}

// afterLimit predicts the start of a gang whose limit lets it start within the span `limit`. Once
// the limit lets the gang start, it starts as soon as enough GPUs are free. If the start is
// unknown, afterLimit returns 0, 0.
func (p *asker) afterLimit(e *entry, limit span, early, late *timeline) (from, to time.Duration) {
	run, longest, _ := p.remainingRange(e)
	from, enough := early.first(limit.from, e.gpus, run)
	to, enoughLate := late.first(limit.to, e.gpus, e.bounded(p.now, longest))
	if !enough || !enoughLate {
		return 0, 0
	}
	return from, max(from, to)
}

// soonest returns the earliest time at which enough GPUs for the gang are expected to be free. If
// that time is unknown, soonest returns the present time. Each running gang is assumed to end at
// the start of its predicted range. Unless the gang shares GPUs, soonest only counts GPUs.
func (p *planner) soonest(e *entry) time.Duration {
	free, has := p.c.FreeGPUs(), func(v *entry) int { return v.gpus }
	if p.picky(e) {
		if e.job.Gang.Sharing != nil {
			return p.soonestOpening(e)
		}
		free, has = pal.FreeFor(p.c, e.job.Gang), func(v *entry) int { return p.usable(e, v.placement) }
	}
	at := p.now
	for _, v := range p.pending {
		free += has(v)
	}
	for _, v := range p.byEnd {
		if free >= e.gpus {
			break
		}
		if ends, ok := p.letsGo(v); ok {
			free, at = free+has(v), max(at, ends)
		}
	}
	if free < e.gpus {
		return p.now
	}
	return at
}

// usable returns how many GPUs of a placement the gang can use.
func (p *planner) usable(e *entry, pl pal.Placement) (n int) {
	for _, m := range pl.Members {
		if e.job.Gang.MayUse(m.Group) {
			n += len(m.GPUs)
		}
	}
	return n
}

// soonestOpening predicts the same time as soonest, but it searches for placements instead of
// counting GPUs.
func (p *planner) soonestOpening(e *entry) time.Duration {
	ends := make([]ending, 0, len(p.byEnd))
	for _, v := range p.byEnd {
		if at, ok := p.letsGo(v); ok {
			ends = append(ends, ending{entry: v, at: at})
		}
	}
	sortEndings(ends)
	n, _ := p.fitsAfter(e, ends)
	return endOf(ends, n, p.now)
}

// letsGo returns the earliest time at which a gang can free its GPUs. ok is false if the gang never
// frees them. The result is the present time if the gang can be stopped, is already stopping or
// moving, can give members back, or has an unknown end.
func (p *planner) letsGo(v *entry) (at time.Duration, ok bool) {
	if p.stoppable(v) || v.hasLent() || v.state != running {
		return p.now, true
	}
	least, _, known := p.remainingRange(v)
	if !known || v.job.Endless {
		return p.now, !v.job.Endless
	}
	return v.endsAt(p.now, least), true
}

// windowEnds returns the end of the window that keeps the gang from starting, or 0 if there is no
// such window.
func (w *Wait) windowEnds() time.Duration {
	if w.Reason != reason.InWindow {
		return 0
	}
	return w.Until
}

// likeOthers reports whether the waits of other gangs can predict how long this gang waits.
func (w *Wait) likeOthers() bool {
	switch w.Reason {
	case reason.TooLarge, reason.Limit, reason.Services:
		return false
	case reason.Quota:
		return w.User == "" // a wait for a user's limit depends on that user's jobs
	}
	return !w.spares
}

// inLine corrects the predicted ranges: if a gang ahead fits wherever this gang fits, this gang is
// not expected to start first. A gang ahead fits wherever this gang fits if it is of the same kind
// and no larger. Under strict order, every gang ahead counts. Ranges that are learned from the waits
// of earlier gangs do not depend on the gangs that wait now. If such a range is used and the gang
// cannot run at the same time as the gangs ahead in its line, the gang is expected to start when
// enough of the gangs ahead have ended.
func (p *asker) inLine(queue []*entry, ws []Wait, learned bool) {
	lines, lineOf := map[signature]*line{}, p.lines()
	for i := range ws {
		w := &ws[i]
		if w.To == 0 || !holdsUp(w.Reason) {
			continue
		}
		sig, gpus := lineOf(queue[i])
		l := lines[sig]
		if l == nil {
			l = &line{spans: map[int]span{}}
			lines[sig] = l
			if learned && i < mostOpenings {
				l.room = &timeline{[]step{{p.now, p.largestRoom(queue[i])}}}
			}
		}
		passes := false // it may pass a larger gang
		for n, ahead := range l.spans {
			if n <= gpus {
				w.From, w.To = max(w.From, ahead.from), max(w.To, ahead.to)
			}
			passes = passes || n > gpus
		}
		if l.room != nil && i < mostOpenings {
			p.takeTurn(queue[i], w, l.room, passes)
		}
		l.spans[gpus] = span{w.From, w.To}
	}
}

// largestRoom returns how many GPUs the gangs of a gang's line can use at a time.
func (p *asker) largestRoom(e *entry) (n int) {
	if p.opt.Backfill == BackfillNone {
		return p.c.NumGPUs()
	}
	for _, of := range p.c.Usable(e.job.Gang) {
		n += of
	}
	return n
}

// line has the expected starts of the gangs of one line, by their number of GPUs.
type line struct {
	spans map[int]span
	room  *timeline // GPUs that the line can use, without those of its earlier gangs; nil: not needed
}

// takeTurn moves the expected start of a gang to the first time when it can run beside the gangs
// ahead in its line, unless it can pass one of them. Then takeTurn books the gang's GPUs.
func (p *asker) takeTurn(e *entry, w *Wait, room *timeline, passes bool) {
	run, _, known := p.remainingRange(e)
	if at, ok := room.first(w.From, e.gpus, run); ok && !passes {
		w.From, w.To = at, w.To+at-w.From
	}
	if known && !p.stoppable(e) {
		room.book(w.From, later(w.From, run), e.gpus)
	}
}

// lines returns a function that returns the line of a gang (as a signature), and the gang's number
// of GPUs. If two gangs are in one line, the smaller gang fits wherever the larger gang fits. Under
// strict order, all gangs are in one line and count as equally large.
func (p *asker) lines() func(*entry) (signature, int) {
	if p.opt.Backfill == BackfillNone {
		return func(*entry) (signature, int) { return signature{}, 0 }
	}
	shape := oncePerKind(p.Queue, func(e *entry) string {
		g := e.job.Gang
		if len(g.MemberSets) == 1 {
			one := g.MemberSets[0]
			one.Members = 1
			g.MemberSets = []pal.MemberSet{one}
		}
		return memberSets(g)
	})
	return func(e *entry) (signature, int) {
		sig := e.empty()
		sig.memberSets, sig.admitted = shape(e), e.sig.admitted
		return sig, e.gpus
	}
}

// timeline is the number of free GPUs over time, as a step function. The steps of a timeline are
// sorted by time.
type timeline struct{ steps []step }

// step is a time, and the number of GPUs that are free from this time until the next step.
type step struct {
	at   time.Duration
	free int
}

// timeline returns the number of free GPUs over time. The given gangs are assumed to end at the
// given times, and no other gang ends or starts.
func (p *asker) timeline(ends []ending) *timeline {
	t := &timeline{steps: []step{{p.now, p.c.FreeGPUs()}}}
	for _, e := range ends {
		n := e.gpus
		if e.marked != nil {
			n = len(e.marked)
		}
		t.steps = append(t.steps, step{e.at, t.steps[len(t.steps)-1].free + n})
	}
	return t
}

// knownEnds returns the expected ends of the running gangs, and of the gangs with claims, the
// earliest first. The expected end of a gang is the start of the range predicted for its end or, if
// `late` is set, the end of this range. Services, and gangs whose end can only be guessed, are
// omitted. Members that are being stopped end now. Unless `late` is set, elastic gangs give back
// members as early as they can.
func (p *asker) knownEnds(late bool) (ends []ending) {
	run := func(e *entry) (time.Duration, bool) {
		left, longest, ok := p.remainingRange(e)
		if late {
			left = longest
		}
		return left, ok && !e.job.Endless
	}
	promised := map[int]bool{}
	for _, c := range p.Queue.claims {
		gpus := c.placement.GPUs()
		maps.Copy(promised, setOf(gpus))
		if left, ok := run(c.by); ok && len(gpus) > 0 {
			ends = append(ends, ending{entry: c.by, at: later(p.now, left), marked: gpus})
		}
	}
	for _, e := range p.running {
		n := len(e.placement.Members)
		stays, at := n, p.now
		switch {
		case e.state == stopping:
			stays = len(e.target.Members)
		case e.hasLent() && !late:
			stays, at = e.job.Least, max(p.now, e.safeUntil)
		}
		rest := e
		if stays < n {
			gone := slices.DeleteFunc(e.with(stays, n).placement.GPUs(), func(u int) bool { return promised[u] })
			ends = append(ends, ending{entry: e, at: at, marked: gone})
			rest = e.with(0, stays)
			rest.gpus = len(rest.placement.GPUs())
		}
		if left, ok := run(e); ok && stays > 0 {
			ends = append(ends, ending{entry: rest, at: e.endsAt(p.now, left)})
		}
	}
	sortEndings(ends)
	return ends
}

// start finds the first time, not before `from`, at which n GPUs are free for the duration `run`.
// It books these GPUs. ok is false if there is no such time. The method only counts GPUs, and
// ignores where they are.
func (t *timeline) start(from time.Duration, n int, run time.Duration) (at time.Duration, ok bool) {
	if at, ok = t.first(from, n, run); ok {
		t.book(at, later(at, run), n)
	}
	return at, ok
}

// first finds the same time as start, but books no GPUs.
func (t *timeline) first(from time.Duration, n int, run time.Duration) (at time.Duration, ok bool) {
	at = from
	for i, s := range t.steps {
		if s.at >= later(at, run) {
			break
		}
		if s.free >= n {
			continue
		}
		if i+1 == len(t.steps) {
			return 0, false
		}
		at = max(at, t.steps[i+1].at)
	}
	return at, true
}

// book subtracts n GPUs from all steps between two times.
func (t *timeline) book(from, to time.Duration, n int) {
	t.cut(from)
	t.cut(to)
	for i := range t.steps {
		if s := &t.steps[i]; s.at >= from && s.at < to {
			s.free -= n
		}
	}
}

// cut splits the step that contains the time, so that a step begins at this time.
func (t *timeline) cut(at time.Duration) {
	for i := len(t.steps) - 1; i >= 0; i-- {
		if t.steps[i].at == at {
			return
		}
		if t.steps[i].at < at {
			t.steps = slices.Insert(t.steps, i+1, step{at, t.steps[i].free})
			return
		}
	}
}
