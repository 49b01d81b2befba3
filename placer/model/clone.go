// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"maps"
	"slices"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Clone returns a copy of the model that later changes of the model do not affect. Callers may
// query the copy, and may try out changes on it. The copy shares with m the values that are never
// changed in place, such as Nomad's objects.
func (m *Model) Clone() *Model {
	c := *m
	c.State = m.State.Clone()
	c.View, c.Queue = m.View.Clone(c.State, c.runsOf), m.Queue.Clone()
	if c.Windows.view == m.View {
		c.Windows.view = c.View
	}
	tracked := make([]Tracked, len(m.Jobs))
	c.Jobs, c.order = make(map[cluster.JobKey]*Tracked, len(m.Jobs)), make([]*Tracked, len(m.Jobs))
	for i, t := range m.Sorted() {
		tracked[i] = *t
		copied := &tracked[i]
		copied.Detach()
		copied.unfit = maps.Clone(t.unfit)
		c.Jobs[t.Key], c.order[i] = copied, copied
	}
	c.Failures, c.Quarantine = slices.Clone(m.Failures), maps.Clone(m.Quarantine)
	c.Dependencies.Known = maps.Clone(m.Dependencies.Known)
	c.unanswered, c.IsolatedJobs = maps.Clone(m.unanswered), maps.Clone(m.IsolatedJobs)
	c.best = bestCosts{} // its map changes in place
	c.EndJob()
	return &c
}
