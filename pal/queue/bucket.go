// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// heap is a binary heap of entries that know their position, so that any of
// them can leave.
type heap struct {
	less func(a, b *entry) bool
	pos  func(e *entry) *int
	es   []*entry
}

func (h *heap) push(e *entry) {
	h.es = append(h.es, e)
	h.up(len(h.es) - 1)
}

func (h *heap) remove(e *entry) {
	i, last := *h.pos(e), len(h.es)-1
	if i != last {
		h.es[i] = h.es[last]
		*h.pos(h.es[i]) = i
	}
	h.es[last] = nil
	h.es = h.es[:last]
	if i != last {
		h.down(h.up(i))
	}
}

// fix moves an entry to its place after its key has changed.
func (h *heap) fix(e *entry) { h.down(h.up(*h.pos(e))) }

func (h *heap) up(i int) int {
	e := h.es[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(e, h.es[parent]) {
			break
		}
		h.es[i] = h.es[parent]
		*h.pos(h.es[i]) = i
		i = parent
	}
	h.es[i] = e
	*h.pos(e) = i
	return i
}

func (h *heap) down(i int) {
	e := h.es[i]
	for {
		child := 2*i + 1
		if child >= len(h.es) {
			break
		}
		if child+1 < len(h.es) && h.less(h.es[child+1], h.es[child]) {
			child++
		}
		if !h.less(h.es[child], e) {
			break
		}
		h.es[i] = h.es[child]
		*h.pos(h.es[i]) = i
		i = child
	}
	h.es[i] = e
	*h.pos(e) = i
}

// signature is what two waiting gangs share if one fits exactly where the
// other does, at the same cost, under the same rules: where the first of them
// does not fit, or waits for closer GPUs, the others need not be tried.
type signature struct {
	class   pal.AppClass
	maxTier pal.Tier
	shapes  string
	tenant  string
	// Whether the gang may be stopped or moved decides what it may do.
	preemptible, migratable bool
	localityWait            time.Duration
	admitted                uint64 // windows whose GPUs it may use
	array                   string
}

// shapesOf writes a gang's shapes; device groups that are eligible or preferred
// count as equal where the caller shares the slice.
func shapesOf(g pal.Gang) string {
	var b strings.Builder
	for _, s := range g.Shapes {
		var eligible *bool
		if len(s.Eligible) > 0 {
			eligible = &s.Eligible[0]
		}
		fmt.Fprintf(&b, "%d×%d %v %p", s.Members, s.GPUs, s.Need, eligible)
		for _, set := range s.Prefer {
			fmt.Fprintf(&b, ">%p", &set[0])
		}
		b.WriteByte(';')
	}
	return b.String()
}

// bucket holds the waiting gangs of one signature.
type bucket struct {
	heap
	sig         signature
	gpus        int
	livePos     int
	failed      attempt       // the last that failed
	failedUntil time.Duration // by when it would have had to end
	done        uint64        // the pass that is done with it
	from        *entry        // where that pass goes on, if it is passes
	passes      uint64
	slack       time.Duration // how long those may run on that it tries then
}

// attempt is what decides whether the first gang of a bucket fits.
type attempt struct {
	version uint64 // of the Line
	head    *entry
	turn    *turn
	// Of the bucket, and how many gangs have started, if there is a head or a turn.
	first  *entry
	starts uint64
}

// kind is the signature by which gangs fit or not, whoever's they are.
func (e *entry) kind() signature {
	k := e.sig
	k.tenant, k.localityWait, k.preemptible, k.migratable, k.admitted, k.array = "", 0, false, false, 0, ""
	return k
}

// sign works out the gang's signature.
func (l *Line) sign(e *entry) {
	e.sig = signature{class: e.job.Gang.Class, maxTier: e.job.Gang.MaxTier, shapes: l.shapes(e.job.Gang), localityWait: e.job.LocalityWait,
		preemptible: e.job.Preemptible, migratable: e.job.Migratable, admitted: l.admitted(e.job), array: e.job.array()}
	if l.opt.FairShare || len(l.opt.Tenants) > 0 {
		e.sig.tenant = e.job.Tenant
	}
}

// enqueue puts a waiting entry into its bucket.
func (l *Line) enqueue(e *entry) {
	e.state = waiting
	l.sign(e)
	sig := e.sig
	b := l.buckets[sig]
	if b == nil {
		b = &bucket{sig: sig, gpus: e.gpus, livePos: -1}
		b.less = func(a, c *entry) bool { return a.key.compare(c.key) < 0 }
		b.pos = func(e *entry) *int { return &e.pos }
		l.buckets[sig] = b
	}
	e.bucket, e.expect = b, l.remaining(e, e.waitingSince)
	l.expectUrgency(e)
	e.key = l.keyOf(e)
	b.push(e)
	l.date(e)
	l.name(e)
	if b.livePos < 0 {
		b.livePos = len(l.live)
		l.live = append(l.live, b)
	}
	if e.overdue {
		l.overdue.push(e)
	} else {
		l.ages.push(e)
	}
}

// shapes is shapesOf without its cost for the common gang of one-GPU members.
func (l *Line) shapes(g pal.Gang) string {
	if len(g.Shapes) == 1 && g.Shapes[0].Eligible == nil && g.Shapes[0].Prefer == nil && g.Shapes[0].Need == (pal.Resources{}) && g.Shapes[0].GPUs == 1 {
		for len(l.singles) <= g.Shapes[0].Members {
			l.singles = append(l.singles, fmt.Sprint(len(l.singles)))
		}
		return l.singles[g.Shapes[0].Members]
	}
	return shapesOf(g)
}

// dequeue takes a waiting entry out of its bucket.
func (l *Line) dequeue(e *entry) {
	b := e.bucket
	b.remove(e)
	l.undate(e)
	e.urgency = urgency{}
	l.unname(e)
	e.bucket = nil
	if e.overdue {
		l.overdue.remove(e)
	} else {
		l.ages.remove(e)
	}
	if len(b.es) == 0 {
		last := l.live[len(l.live)-1]
		l.live[b.livePos], last.livePos = last, b.livePos
		l.live = l.live[:len(l.live)-1]
		delete(l.buckets, b.sig)
	}
}

// age marks the gangs that have waited longer than MaxWait in all.
func (l *Line) age(now time.Duration) {
	for len(l.ages.es) > 0 && l.ages.es[0].waitingSince-l.ages.es[0].waited+l.opt.MaxWait <= now {
		e := l.ages.es[0]
		l.ages.remove(e)
		e.overdue = true
		l.overdue.push(e)
	}
}

// resort puts the waiting gangs whose names have taught something at their new
// places.
func (l *Line) resort() {
	for name := range l.learned {
		for _, e := range l.named[name] {
			e.expect = l.remaining(e, e.waitingSince)
			l.expectUrgency(e)
			e.key = l.keyOf(e)
			e.bucket.fix(e)
		}
	}
	clear(l.learned)
}

// name and unname keep the list of waiting gangs by name.
func (l *Line) name(e *entry) {
	if e.job.Name == "" {
		return
	}
	e.namePos = len(l.named[e.job.Name])
	l.named[e.job.Name] = append(l.named[e.job.Name], e)
}

func (l *Line) unname(e *entry) {
	es := l.named[e.job.Name]
	if len(es) == 0 {
		return
	}
	last := es[len(es)-1]
	es[e.namePos], last.namePos = last, e.namePos
	es[len(es)-1] = nil
	l.named[e.job.Name] = es[:len(es)-1]
}
