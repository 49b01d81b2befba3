// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"
)

// expect foretells when waiting gangs start, by how long similar gangs waited
// ([forecasts.foretellStart]). Only gangs at the given positions get such a forecast.
//
// Until enough waits are known, it plays the queue forward by counting GPUs. It does so twice: once
// with everything ending as soon as foretold and small gangs passing large ones, once with
// everything ending as late and nobody passing. That needs a run time for every gang ahead. GPUs of
// gangs whose end nobody knows are left out: a service may never give them back. Counting GPUs
// tells nothing about gangs that wait for a quota, an array or a window. A gang that waits until
// services are stopped, or until other jobs of its user end, has no expected start.
func (p *asker) expect(queue []*entry, ws []Wait, of []int) {
	if len(p.forecasts.waits) >= fewestWaits {
		ahead, waits := p.aheadOfAll(), p.forecasts.byLength(p.now)
		if p.opt.Backfill == BackfillNone { // those ahead count, too
			of = positions(len(queue))
		}
		for _, i := range of {
			if e := queue[i]; e.state == waiting && ws[i].likeOthers() {
				r := p.forecasts.foretellStart(p.now, e, ahead[e], p.soonest(e), waits)
				later := max(0, ws[i].windowEnds()-r.from)
				ws[i].From, ws[i].To = r.from+later, r.to+later
			}
		}
		p.inStrictOrder(ws)
		return
	}
	defer p.inStrictOrder(ws)
	early, late := p.timeline(false), p.timeline(true)
	order, nextEnd := p.now, time.Duration(0)
	if len(early.steps) > 1 {
		nextEnd = early.steps[1].at
	}
	for i, e := range queue {
		if e.state != waiting || !forGPUs(ws[i].Reason) || ws[i].spares { // something other than GPUs keeps it waiting
			continue
		}
		run, longest, ok := p.foretell(e)
		soonest := p.now
		if r := ws[i].Reason; r == ReasonScattered || r == ReasonRefused || r == ReasonGPUs && e.gpus <= p.c.FreeGPUs() { // there are enough free GPUs, but not the right ones
			if nextEnd == 0 {
				return // its start is unknown, and so are those of the gangs behind it
			}
			soonest, order = nextEnd, max(order, nextEnd)
		}
		from, enough := early.start(soonest, e.gpus, run)
		to, enoughLate := late.start(order, e.gpus, e.bounded(p.now, longest))
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

// soonest returns when enough GPUs for the gang are expected to come free at the earliest, or now if
// that is not known. It only counts GPUs, in the order in which running gangs are expected to end,
// and each ends as soon as foretold. So it looks at few gangs, however many run.
func (p *planner) soonest(e *entry) time.Duration {
	at, free := p.now, p.c.FreeGPUs()+len(p.hidden)
	for _, v := range p.pending {
		free += v.gpus
	}
	for _, v := range p.byEnd {
		if free >= e.gpus {
			break
		}
		if ends, ok := p.letsGo(v); ok {
			free, at = free+v.gpus, max(at, ends)
		}
	}
	if free < e.gpus {
		return p.now
	}
	return at
}

// letsGo returns when a running gang may free GPUs at the earliest; ok is false if never. That
// is now if it may be stopped, can give members back, or may end at any moment.
func (p *planner) letsGo(v *entry) (at time.Duration, ok bool) {
	if p.stoppable(v) || v.hasLent() || v.state != running {
		return p.now, true
	}
	least, _, known := p.foretell(v)
	if !known || v.job.Endless {
		return p.now, !v.job.Endless
	}
	return p.now + stretched(v.bounded(p.now, least), v.cost(v.placement)), true
}

// windowEnds is the time when the window ends that keeps the gang from starting; 0 if none does.
func (w *Wait) windowEnds() time.Duration {
	if w.Reason != ReasonWindow {
		return 0
	}
	return w.Until
}

// likeOthers reports whether waits of other gangs tell how long this one lasts.
func (w *Wait) likeOthers() bool {
	switch w.Reason {
	case ReasonTooLarge, ReasonLimit, ReasonServices:
		return false
	case ReasonQuota:
		return w.User == "" // of his limit, his own jobs decide
	}
	return !w.spares
}

// inStrictOrder ensures that no gang is expected to start before one ahead of it. It is for queues
// in which nobody passes the head.
func (p *asker) inStrictOrder(ws []Wait) {
	if p.opt.Backfill != BackfillNone {
		return
	}
	var from, to time.Duration
	for i := range ws {
		if w := &ws[i]; w.To > 0 && holdsUp(w.Reason) {
			from, to = max(from, w.From), max(to, w.To)
			w.From, w.To = from, to
		}
	}
}

// timeline is a step function of free GPUs over time, ascending in time.
type timeline struct{ steps []step }

// step is how many GPUs are free from a time until the next step.
type step struct {
	at   time.Duration
	free int
}

// timeline returns when how many GPUs come free, if running gangs end as soon (or as late) as
// foretold. Gangs whose end can only be guessed keep theirs.
func (p *asker) timeline(late bool) *timeline {
	t := &timeline{steps: []step{{p.now, p.c.FreeGPUs()}}}
	var ends []step
	for _, e := range p.running {
		left, longest, ok := p.foretell(e)
		if !ok || e.job.Endless {
			continue
		}
		if late {
			left = longest
		}
		ends = append(ends, step{p.now + stretched(e.bounded(p.now, left), e.cost(e.placement)), e.gpus})
	}
	slices.SortFunc(ends, func(a, b step) int { return int(a.at - b.at) })
	for _, s := range ends {
		t.steps = append(t.steps, step{s.at, t.steps[len(t.steps)-1].free + s.free})
	}
	return t
}

// start returns the first time from which on n GPUs stay free for run, and books them; ok is false
// if so many never come free. It only counts GPUs; their location does not matter here.
func (t *timeline) start(from time.Duration, n int, run time.Duration) (at time.Duration, ok bool) {
	at = from
	for i, s := range t.steps {
		if s.at >= at+run {
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
	t.book(at, at+run, n)
	return at, true
}

// book takes n GPUs from…to.
func (t *timeline) book(from, to time.Duration, n int) {
	t.cut(from)
	t.cut(to)
	for i := range t.steps {
		if s := &t.steps[i]; s.at >= from && s.at < to {
			s.free -= n
		}
	}
}

// cut splits a step at the time.
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
