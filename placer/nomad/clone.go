// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"maps"
	"slices"
)

// Clone is a State of its own that shows what this one shows now. The objects of Nomad are
// shared: they are replaced, and never changed. It is to be asked, not to follow events.
func (s *State) Clone() *State {
	o := *s
	o.Nodes, o.Allocs, o.Jobs, o.Unread = maps.Clone(s.Nodes), maps.Clone(s.Allocs), maps.Clone(s.Jobs), maps.Clone(s.Unread)
	o.byJob, s.mine, o.mine = maps.Clone(s.byJob), nil, nil
	o.bad, o.orphans, o.staleVersions, o.away = maps.Clone(s.bad), maps.Clone(s.orphans), maps.Clone(s.staleVersions), maps.Clone(s.away)
	o.back, o.kills, o.assumed, o.earlier = maps.Clone(s.back), maps.Clone(s.kills), maps.Clone(s.assumed), maps.Clone(s.earlier)
	o.purged = make(map[string]*purged, len(s.purged))
	for id, p := range s.purged {
		c := *p
		o.purged[id] = &c
	}
	o.completing = make(map[JobKey]*completing, len(s.completing))
	for k, e := range s.completing {
		c := *e
		o.completing[k] = &c
	}
	o.trimmed, o.own, o.odd, o.plain = maps.Clone(s.trimmed), maps.Clone(s.own), maps.Clone(s.odd), nil
	o.owners = s.owners.clone()
	o.touched, o.before = nil, s.before+len(s.touched)
	return &o
}

// allocsToChange are the job's allocations, by id, in a map that no clone has.
func (s *State) allocsToChange(k JobKey) map[string]*Alloc {
	if !s.mine[k] {
		if s.mine == nil {
			s.mine = map[JobKey]bool{}
		}
		of := make(map[string]*Alloc, len(s.byJob[k])+1)
		maps.Copy(of, s.byJob[k])
		s.byJob[k], s.mine[k] = of, true
	}
	return s.byJob[k]
}

func (o *owners) clone() owners {
	c := *o
	c.naming, c.shared = maps.Clone(o.naming), maps.Clone(o.shared)
	return c
}

// Clone is a View of its own of a state that shows what this one's does: what changes of one does
// not change of the other.
func (v *View) Clone(of *State) *View {
	o := *v
	o.state, o.Cluster = of, v.Cluster.Clone()
	o.nodes, o.devices, o.owner, o.free = slices.Clone(v.nodes), slices.Clone(v.devices), slices.Clone(v.owner), slices.Clone(v.free)
	o.holds, o.wants, o.rivals = maps.Clone(v.holds), maps.Clone(v.wants), maps.Clone(v.rivals)
	o.moved, o.shifted = slices.Clone(v.moved), slices.Clone(v.shifted)
	o.eligibility, o.lasting, o.avoiding = maps.Clone(v.eligibility), maps.Clone(v.lasting), maps.Clone(v.avoiding)
	o.givenBins = maps.Clone(v.givenBins)
	for key, e := range o.eligibility {
		e.values = maps.Clone(e.values)
		o.eligibility[key] = e
	}
	return &o
}
