// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"maps"
)

// Clone returns a copy of the State for queries. The copy shares Nomad's objects with s, which is
// safe because these objects are replaced and never changed. The copy must not get events.
func (s *State) Clone() *State {
	o := *s
	o.Nodes, o.Allocs, o.Jobs, o.Unread = maps.Clone(s.Nodes), maps.Clone(s.Allocs), maps.Clone(s.Jobs), maps.Clone(s.Unread)
	o.ByJob, s.mine, o.mine = maps.Clone(s.ByJob), nil, nil
	o.bad, o.orphans, o.staleVersions, o.away = maps.Clone(s.bad), maps.Clone(s.orphans), maps.Clone(s.staleVersions), maps.Clone(s.away)
	o.back, o.kills, o.assumed, o.earlier = maps.Clone(s.back), maps.Clone(s.kills), maps.Clone(s.assumed), maps.Clone(s.earlier)
	o.stops = maps.Clone(s.stops)
	o.purged = make(map[string]*purged, len(s.purged))
	for id, p := range s.purged {
		c := *p
		o.purged[id] = &c
	}
	o.ending = make(map[JobKey]*ending, len(s.ending))
	for k, e := range s.ending {
		c := *e
		o.ending[k] = &c
	}
	o.trimmed, o.own, o.odd, o.plain = maps.Clone(s.trimmed), maps.Clone(s.own), maps.Clone(s.odd), nil
	o.owners = s.owners.clone()
	o.jobs, o.before = nil, s.before+len(s.jobs)
	return &o
}

// allocsToChange returns the job's allocations, by id, in a map that no clone shares.
func (s *State) allocsToChange(k JobKey) map[string]*Alloc {
	if !s.mine[k] {
		if s.mine == nil {
			s.mine = map[JobKey]bool{}
		}
		of := make(map[string]*Alloc, len(s.ByJob[k])+1)
		maps.Copy(of, s.ByJob[k])
		s.ByJob[k], s.mine[k] = of, true
	}
	return s.ByJob[k]
}

func (o *owners) clone() owners {
	c := *o
	c.naming, c.shared = maps.Clone(o.naming), maps.Clone(o.shared)
	return c
}
