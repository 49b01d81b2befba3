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
	o.Nodes = maps.Clone(s.Nodes)
	o.Allocs = maps.Clone(s.Allocs)
	o.Jobs = maps.Clone(s.Jobs)
	o.Unread = maps.Clone(s.Unread)
	o.ByJob = maps.Clone(s.ByJob)
	s.mine = nil
	o.mine = nil
	o.bad = maps.Clone(s.bad)
	o.orphans = maps.Clone(s.orphans)
	o.staleVersions = maps.Clone(s.staleVersions)
	o.away = maps.Clone(s.away)
	o.back = maps.Clone(s.back)
	o.kills = maps.Clone(s.kills)
	o.assumed = maps.Clone(s.assumed)
	o.earlier = maps.Clone(s.earlier)
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
	o.trimmed = maps.Clone(s.trimmed)
	o.own = maps.Clone(s.own)
	o.odd = maps.Clone(s.odd)
	o.plain = nil
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
