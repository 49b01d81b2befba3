// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"maps"
	"slices"
)

// Clone returns a copy that makes the same decisions as q. Another goroutine can use the copy. No
// other goroutine may use q during the call, because Clone writes to the entries of q.
func (q *Queue) Clone() *Queue {
	o, opt := *q, *q.opt
	o.opt, o.foresight.opt, o.tenancy.opt, o.gangKinds.opt = &opt, &opt, &opt, &opt
	c := cloner{from: make([]*entry, 0, len(q.entries)), to: make([]entry, len(q.entries)),
		gone: map[*entry]*entry{}, claims: map[*claim]*claim{}, levels: map[*level]*level{}}
	o.entries = make(map[string]*entry, len(q.entries))
	for id, e := range q.entries {
		e.copied = len(c.from)
		c.from = append(c.from, e)
		o.entries[id] = &c.to[e.copied]
	}
	if q.turn != nil {
		t := *q.turn
		t.head = c.of(t.head)
		o.turn = &t
	}
	o.tenancy = c.tenancy(o.tenancy)
	o.levels = c.levelsOf(q.levels)
	o.claims = make([]*claim, len(q.claims))
	for i, cl := range q.claims {
		o.claims[i] = c.claim(cl)
	}
	o.buckets, o.live = c.buckets(q)
	o.forecasts.open = slices.Clone(q.forecasts.open)
	for i, e := range c.from {
		c.entry(&c.to[i], e, &o)
	}
	o.ages.es, o.overdue.es = c.all(q.ages.es), c.all(q.overdue.es)
	o.running, o.byEnd, o.elastics = c.all(q.running), c.all(q.byEnd), c.all(q.elastics)
	o.pending = c.all(q.pending)
	o.named = make(map[string][]*entry, len(q.named))
	for name, es := range q.named {
		o.named[name] = c.all(es)
	}
	o.runTimes, o.submissions = c.runTimes(q.runTimes), maps.Clone(q.submissions)
	o.learned, o.chances = maps.Clone(q.learned), nil
	o.kinds, o.windows.alone = copied(q.kinds), map[beside]bool{}
	return &o
}

// cloner records which copy belongs to which part of a Queue.
type cloner struct {
	from   []*entry
	to     []entry // copies of from, in the same order
	gone   map[*entry]*entry
	claims map[*claim]*claim
	levels map[*level]*level
	bucket map[*bucket]*bucket
}

// of returns the copy of an entry, or nil for nil. The entry's gang may have left the Queue while
// an earlier decision still refers to it.
func (c *cloner) of(e *entry) *entry {
	switch {
	case e == nil:
		return nil
	case e.copied < len(c.from) && c.from[e.copied] == e:
		return &c.to[e.copied]
	case c.gone[e] == nil:
		c.gone[e] = &entry{job: e.job, state: e.state, seq: e.seq}
	}
	return c.gone[e]
}

func (c *cloner) all(es []*entry) []*entry {
	if len(es) == 0 {
		return nil
	}
	out := make([]*entry, len(es))
	for i, e := range es {
		out[i] = c.of(e)
	}
	return out
}

// entry makes the entry `to` a copy of the entry e.
func (c *cloner) entry(to, e *entry, q *Queue) {
	*to = *e
	to.of = q.namespaces[e.job.Tenant]
	to.bucket, to.level, to.kind = c.bucket[e.bucket], c.levels[e.level], nil
	to.claim, to.stopsFor = c.claim(e.claim), c.claim(e.stopsFor)
	if e.elastic != nil {
		el := *e.elastic
		to.elastic = &el
	}
}

func (c *cloner) claim(cl *claim) *claim {
	if cl == nil || c.claims[cl] != nil {
		return c.claims[cl]
	}
	o := *cl
	c.claims[cl] = &o
	o.by, o.victims = c.of(cl.by), c.all(cl.victims)
	return &o
}

func (c *cloner) levelsOf(ls levels) levels {
	o := ls
	o.of, o.due.es, o.safe = make([]*level, len(ls.of)), c.all(ls.due.es), c.all(ls.safe)
	for i, l := range ls.of {
		o.of[i] = &level{l.level, l.gpus, c.all(l.es)}
		c.levels[l] = o.of[i]
	}
	return o
}

// buckets returns copies of all buckets.
func (c *cloner) buckets(q *Queue) (all map[signature]*bucket, live []*bucket) {
	all, c.bucket = make(map[signature]*bucket, len(q.buckets)), make(map[*bucket]*bucket, len(q.buckets))
	for sig, b := range q.buckets {
		o := *b
		o.es = slices.Clone(b.es)
		for i := range o.es {
			o.es[i].e = c.of(o.es[i].e)
		}
		o.failed, o.from = c.attempt(b.failed), c.of(b.from)
		all[sig], c.bucket[b] = &o, &o
	}
	live = make([]*bucket, len(q.live))
	for i, b := range q.live {
		live[i] = c.bucket[b]
	}
	return all, live
}

// attempt returns a copy of a failed attempt.
func (c *cloner) attempt(a attempt) attempt {
	a.head, a.first = c.of(a.head), c.of(a.first)
	return a
}

func (c *cloner) tenancy(t tenancy) tenancy {
	o := t
	o.tree.byName, o.arrays = copied(t.tree.byName), maps.Clone(t.arrays)
	of := func(n *tenant) *tenant { return o.tree.byName[n.name] }
	for _, n := range o.tree.byName {
		n.turn, n.chain, n.users = tenantTurn{}, slices.Clone(n.chain), maps.Clone(n.users)
		for i := range n.chain {
			n.chain[i] = of(n.chain[i])
		}
		if n.parent != nil {
			n.parent = of(n.parent)
		}
	}
	o.namespaces = copied(t.namespaces)
	for _, n := range o.namespaces {
		n.tenant = of(n.tenant)
	}
	return o
}

func (c *cloner) runTimes(of map[string]*runTimes) map[string]*runTimes {
	out := copied(of)
	for _, h := range out {
		h.fresh, h.byModel = nil, nil
	}
	return out
}

// copied returns a map with a copy of each value.
func copied[K comparable, V any](m map[K]*V) map[K]*V {
	out, of := make(map[K]*V, len(m)), make([]V, 0, len(m))
	for k, v := range m {
		of = append(of, *v)
		out[k] = &of[len(of)-1]
	}
	return out
}
