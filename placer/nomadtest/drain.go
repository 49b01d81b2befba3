// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"time"

	"github.com/hashicorp/nomad/api"
)

// DrainServices drains a node without a deadline: the members of services there are moved, of each group as
// many at a time as its migrate block says, and those of batch jobs run on until they end.
func (s *Server) DrainServices(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setDrain(id, &api.DrainStrategy{})
	s.moveServices(id)
}

// moveServices moves as many members as may be moved now, and looks again a second later.
func (s *Server) moveServices(id string) {
	if n := s.nodes[id]; n == nil || !n.Drain {
		return
	}
	for _, a := range s.sortedAllocs() {
		if a.node == id && !a.terminal() && !a.migrate && value(a.job.Type) == api.JobTypeService && s.mayMove(a) {
			a.migrate, a.drained = true, true
			s.evaluate(a.key, "node-drain")
		}
	}
	s.afterJitter(time.Second, "more of the drain of "+id, func() { s.moveServices(id) })
}

// mayMove says whether enough of the group's members run without that one.
func (s *Server) mayMove(a *alloc) bool {
	tg, running := a.taskGroup(), 0
	for _, o := range s.sortedAllocs() {
		if o.key == a.key && o.group == a.group && !o.terminal() && !o.migrate && o.client == api.AllocClientStatusRunning {
			running++
		}
	}
	parallel := 1
	if tg.Migrate != nil && tg.Migrate.MaxParallel != nil {
		parallel = *tg.Migrate.MaxParallel
	}
	return running > value(tg.Count)-parallel
}
