// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"
)

// expect foretells when waiting gangs start: by how long others like them waited
// ([forecasts.foretellStart]). Until enough is known of that, the queue is played forward
// by counting GPUs, once as if everything ended as soon as foretold and gangs behind a
// large one passed it, and once as if everything ended as late and nobody passed. Only where the run time of everybody ahead can be foretold, and without the GPUs
// of running gangs whose end nobody knows: a service may never give them back. Counting GPUs
// tells nothing of gangs that a quota, an array or a window keeps waiting.
// What others' waits teach is told of the gangs at the given positions only.
func (p *asker) expect(queue []*entry, ws []Wait, of []int) {
	if len(p.forecasts.waits) >= fewestWaits {
		ahead, waits := p.aheadOfAll(), p.forecasts.byLength(p.now)
		if p.opt.Backfill == BackfillNone { // those ahead count, too
			of = positions(len(queue))
		}
		for _, i := range of {
			if e := queue[i]; e.state == waiting && ws[i].Reason != ReasonTooLarge && ws[i].Reason != ReasonLimit && !ws[i].spares {
				r := p.forecasts.foretellStart(p.now, e, ahead[e], waits)
				ws[i].From, ws[i].To = r.from, r.to
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
		if e.state != waiting || !forGPUs(ws[i].Reason) || ws[i].spares { // more than GPUs is in its way
			continue
		}
		run, longest, ok := p.foretell(e)
		soonest := p.now
		if ws[i].Reason == ReasonScattered || ws[i].Reason == ReasonGPUs && e.gpus <= p.c.FreeGPUs() { // those that are free now will not do, though they are enough
			if nextEnd == 0 {
				return // nobody knows when: nor of those behind
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

// inStrictOrder has no gang expected to start before one ahead of it, where nobody passes the head.
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

// timeline is how many GPUs are free from when on, ascending in time.
type timeline struct{ steps []step }

// step is how many GPUs are free from a time until the next step's.
type step struct {
	at   time.Duration
	free int
}

// timeline is how many GPUs come free when, if what runs ends as soon as foretold, or as late.
// Gangs whose end can only be guessed keep theirs.
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

// start is the first time from which on n GPUs stay free for run, and books
// them; ok is false if so many never come free. It only counts GPUs: where they lie does
// not matter here.
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

// cut makes a step begin at the time.
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
