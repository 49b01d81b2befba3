// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// reservation is when and where the head is expected to start.
type reservation struct {
	at        time.Duration
	placement pal.Placement
	known     bool // false: not even all running gangs' end makes room
}

// backfill looks for a placement that does not delay the head: one that ends
// before the head's GPUs are free, or that lies elsewhere; with Passing, any.
// Nothing passes an overdue head.
func (p *pass) backfill(e *entry) (pal.Found, bool) {
	if p.head.overdue {
		return pal.Found{}, false
	}
	if p.opt.Passing {
		return p.find(e)
	}
	if p.reserve == nil {
		p.reserve = p.reserveFor(p.head)
	}
	if !p.reserve.known {
		return pal.Found{}, false
	}
	f, ok := p.find(e)
	if ok && p.now+time.Duration(float64(p.remaining(e, p.now))*f.Cost()) <= p.reserve.at {
		return f, true
	}
	_, free := p.hold(p.reserve.placement)
	defer free()
	return p.find(e)
}

// byEnd sorts running gangs by when they are expected to end.
func byEnd(a, b *entry) int {
	if c := cmp.Compare(a.expectedEnd, b.expectedEnd); c != 0 {
		return c
	}
	return cmp.Compare(a.seq, b.seq)
}

// reserveFor foresees where the head starts: running gangs end one after the
// other as expected (overdue ones now) until it fits.
func (p *pass) reserveFor(head *entry) *reservation {
	ends := p.byEnd
	r, done := &reservation{}, 0
	var back []func()
	defer func() {
		for _, b := range back {
			b()
		}
	}()
	next := 1
	for done < len(ends) {
		for ; done < len(ends) && (p.c.FreeGPUs() < head.gpus || next > 0); done++ {
			back = append(back, p.vacate(ends[done]))
			next--
		}
		if pl, ok := p.place(head); ok {
			return &reservation{at: max(p.now, ends[done-1].expectedEnd), placement: pl, known: true}
		}
		next = 1 + done // fragmented: try again with twice as many gone
	}
	return r
}
