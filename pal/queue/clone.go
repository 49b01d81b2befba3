// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"maps"
	"slices"
)

// Clone returns a copy that makes the same decisions as q. Another goroutine can use the copy.
func (q *Queue) Clone() *Queue {
	o, opt := *q, *q.opt
	o.opt, o.foresight.opt = &opt, &opt
	o.tenancy = q.tenancy.clone(&opt)
	copies := make([]entry, len(q.all))
	o.entries = make(map[string]*entry, len(q.all))
	o.all = make([]*entry, len(q.all))
	o.line = make([]*entry, 0, len(q.line))
	for i, e := range q.all {
		c := &copies[i]
		*c = *e
		c.of = o.namespace(e.job.Tenant)
		if e.promised != nil {
			p := *e.promised
			c.promised = &p
		}
		o.entries[e.job.ID], o.all[i] = c, c
	}
	for _, e := range q.line {
		o.line = append(o.line, o.entries[e.job.ID])
	}
	if q.turn != nil {
		t := *q.turn
		t.head = o.entries[t.head.job.ID]
		o.turn = &t
	}
	o.forecasts.open = slices.Clone(q.forecasts.open)
	o.runTimes, o.submissions = copied(q.runTimes), maps.Clone(q.submissions)
	for _, h := range o.runTimes {
		h.fresh, h.byModel = nil, nil
	}
	o.learned, o.chances = maps.Clone(q.learned), nil
	o.found, o.spare = map[search]answer{}, nil
	return &o
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
