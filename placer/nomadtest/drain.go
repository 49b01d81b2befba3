// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Drain drains a node immediately: it stops all allocations on the node.
func (s *Server) Drain(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.force(id, s.setDrain(id, api.DrainSpec{Deadline: -1}))
}

// DrainWithin drains a node. DrainWithin moves members of services to other nodes. In each group,
// DrainWithin moves as many members at a time as the migrate block allows. DrainWithin lets members
// of batch jobs run until they end. At the deadline, DrainWithin stops the remaining members. A
// deadline of 0 means that there is no deadline.
func (s *Server) DrainWithin(id string, deadline time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.setDrain(id, api.DrainSpec{Deadline: deadline})
	if deadline > 0 {
		s.afterJitter(deadline, "deadline of the drain of "+id, func() {
			if s.drains(id, d) {
				s.force(id, d)
			}
		})
	}
	s.drainStep(id, d)
}

func (s *Server) setDrain(id string, spec api.DrainSpec) *api.DrainStrategy {
	d := &api.DrainStrategy{DrainSpec: spec}
	if spec.Deadline > 0 {
		d.ForceDeadline = s.now().Add(spec.Deadline)
	}
	s.must(s.editNode(id, "NodeDrain", func(n *api.Node) {
		n.Drain, n.DrainStrategy, n.SchedulingEligibility = true, d, api.NodeSchedulingIneligible
	}))
	return d
}

// drains reports whether this drain of the node is still active. A later drain of the same node
// does not count.
func (s *Server) drains(id string, d *api.DrainStrategy) bool {
	n := s.nodes[id]
	return n != nil && n.Drain && n.DrainStrategy == d
}

// force stops all allocations on a node, which ends the drain.
func (s *Server) force(id string, d *api.DrainStrategy) {
	s.move(id, func(*alloc) bool { return true })
	s.afterJitter(time.Second, "drain of "+id+" is complete", func() { s.drained(id, d) })
}

func (s *Server) drained(id string, d *api.DrainStrategy) {
	if s.drains(id, d) {
		s.must(s.editNode(id, "NodeDrain", func(n *api.Node) { n.Drain, n.DrainStrategy = false, nil }))
	}
}

// move tells Nomad to move members to other nodes.
func (s *Server) move(id string, which func(*alloc) bool) {
	touched := map[Key]bool{}
	for _, a := range s.sortedAllocs() {
		if a.node == id && !a.terminal() && !a.migrate && which(a) {
			a.migrate, a.drained = true, true
			touched[a.key] = true
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(touched), Key.Compare) {
		s.evaluate(k, "node-drain")
	}
}

// drainStep moves as many members as allowed, every second until the node is empty.
func (s *Server) drainStep(id string, d *api.DrainStrategy) {
	if !s.drains(id, d) {
		return
	}
	s.move(id, func(a *alloc) bool { return value(a.job.Type) == api.JobTypeService && s.mayMove(a) })
	if !slices.ContainsFunc(s.sortedAllocs(), func(a *alloc) bool { return a.node == id && !a.terminal() }) {
		s.drained(id, d)
		return
	}
	s.afterJitter(time.Second, "more of the drain of "+id, func() { s.drainStep(id, d) })
}

// mayMove reports whether a member may be moved now, because enough other members of its group have
// run for long enough (scenario "drained member by member").
func (s *Server) mayMove(a *alloc) bool {
	tg, healthy := a.taskGroup(), 0
	parallel, after := 1, 10*time.Second // Nomad's defaults
	if m := tg.Migrate; m != nil {
		parallel, after = cmp.Or(value(m.MaxParallel), parallel), cmp.Or(value(m.MinHealthyTime), after)
	}
	for _, o := range s.sortedAllocs() {
		if o.key == a.key && o.group == a.group && !o.terminal() && !o.migrate && o.client == api.AllocClientStatusRunning && s.now().Sub(o.began) >= after {
			healthy++
		}
	}
	return healthy > value(tg.Count)-parallel
}
