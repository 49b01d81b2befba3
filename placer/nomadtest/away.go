// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"
)

// This file simulates a group's disconnect block. The file simulates the behaviour that was seen on
// 1.11.3 (scenarios "away…").

func (a *alloc) disconnect() api.DisconnectStrategy {
	if g := a.taskGroup(); g != nil && g.Disconnect != nil {
		return *g.Disconnect
	}
	return api.DisconnectStrategy{}
}

// replaced reports whether Nomad may replace the allocation while the allocation is unknown.
func (a *alloc) replaced() bool {
	d := a.disconnect()
	return d.Replace == nil || *d.Replace
}

// expired reports whether the allocation has been unknown for longer than its disconnect block
// allows.
func (s *Server) expired(a *alloc) bool {
	return a.client == api.AllocClientStatusUnknown && s.now().Sub(a.unknownSince) >= value(a.disconnect().LostAfter)
}

// tasksRun reports whether the tasks of the allocation run, or Nomad must assume that they run.
func (a *alloc) tasksRun() bool {
	return a.client == api.AllocClientStatusRunning || a.client == api.AllocClientStatusUnknown
}

// mayBeBack reports whether Nomad waits for a node that is away because an allocation on the node
// has a disconnect block.
func (s *Server) mayBeBack(id string) bool {
	for _, a := range s.allocs {
		if a.node == id && a.desired == api.AllocDesiredStatusRun && value(a.disconnect().LostAfter) > 0 && !s.expired(a) {
			return true
		}
	}
	return false
}

// whereabouts says what the state of a node means for an allocation on the node.
type whereabouts int

const (
	isThere     whereabouts = iota // unchanged: the allocation runs, has ended, or is unknown
	isMigrating                    // it must be stopped and placed on another node
	isLost                         // it counts as lost
	isParting                      // its node is away, and Nomad has not marked it unknown yet
	isReturning                    // its node is back, and Nomad has not recorded the return yet
)

// whereabouts returns what the state of the node means for an allocation that should run.
func (p *plan) whereabouts(a *alloc) whereabouts {
	switch {
	case a.toReconnect && a.client == api.AllocClientStatusFailed:
		return isReturning
	case a.clientTerminal():
		return isThere
	case p.s.expired(a):
		return isLost
	}
	n := p.s.nodes[a.node]
	switch {
	case n != nil && n.Status == api.NodeStatusDisconnected:
		switch {
		case a.client == api.AllocClientStatusUnknown:
			return isThere
		case a.client == api.AllocClientStatusPending || value(a.disconnect().LostAfter) == 0:
			return isLost
		}
		return isParting
	case a.migrate:
		return isMigrating
	case n == nil:
		return isLost
	case n.Status == api.NodeStatusDown:
		switch {
		case a.replaced() || a.client == api.AllocClientStatusPending:
			return isLost
		case a.client == api.AllocClientStatusUnknown:
			return isThere
		}
		return isParting
	case a.toReconnect:
		return isReturning
	}
	return isThere
}

// loseStopped marks stopped allocations as lost if their node is down.
func (p *plan) loseStopped() {
	for _, a := range p.s.byJob[p.key] {
		n := p.s.nodes[a.node]
		if a.desired != api.AllocDesiredStatusRun && !a.clientTerminal() && a.client != api.AllocClientStatusUnknown && (n == nil || n.Status == api.NodeStatusDown) {
			p.stop[a] = api.AllocClientStatusLost
		}
	}
}

// stopAnyhow stops an allocation that must no longer run.
func (p *plan) stopAnyhow(a *alloc) {
	switch {
	case a.terminal():
	case p.whereabouts(a) == isLost && a.client != api.AllocClientStatusUnknown:
		p.stop[a] = api.AllocClientStatusLost
	default:
		p.stop[a] = ""
	}
}

// settleReturning decides which allocation keeps running: one that is back, or its replacement.
func (p *plan) settleReturning(g *api.TaskGroup, is *groupAllocs) {
	stop := map[*alloc]bool{}
	for _, a := range is.returning {
		switch {
		case a.client == api.AllocClientStatusFailed:
			p.stop[a], stop[a] = api.AllocClientStatusFailed, true
			continue
		case *a.job.Version < *p.job.Version || *a.job.CreateIndex < *p.job.CreateIndex:
			p.stop[a], stop[a] = "", true
			continue
		}
		for r := p.s.allocs[a.next]; r != nil; r = p.s.allocs[r.next] {
			switch {
			case r.desired != api.AllocDesiredStatusRun:
			case p.keepsReplacement(g, a, r):
				p.stop[a], stop[a] = "", true
			default:
				p.stop[r], stop[r] = "", true
			}
		}
	}
	for _, as := range []*[]*alloc{&is.keep, &is.migrate, &is.lost, &is.parting, &is.returning} {
		*as = slices.DeleteFunc(*as, func(a *alloc) bool { return stop[a] })
	}
	is.keep = append(is.keep, is.returning...)
	p.returned = append(p.returned, is.returning...)
}

// keepsReplacement chooses between an allocation whose node has come back (a) and its replacement
// (by). keepsReplacement returns true if the replacement keeps running.
func (p *plan) keepsReplacement(g *api.TaskGroup, a, by *alloc) bool {
	if *by.job.Version > *a.job.Version || *by.job.CreateIndex > *a.job.CreateIndex {
		return true
	}
	better := by.score > a.score && (by.client == api.AllocClientStatusRunning || a.client != api.AllocClientStatusRunning)
	if g.Disconnect == nil || g.Disconnect.Reconcile == nil {
		return better
	}
	switch *g.Disconnect.Reconcile {
	case api.ReconcileOptionKeepOriginal:
		return false
	case api.ReconcileOptionKeepReplacement:
		return true
	case api.ReconcileOptionLongestRunning:
		if !a.began.IsZero() && !by.began.IsZero() {
			return !a.began.Before(by.began)
		}
		if a.began.IsZero() != by.began.IsZero() {
			return a.began.IsZero()
		}
	}
	return better
}

// score rates a placement. This function computes only the part of Nomad's score that depends on
// the load of the node. A higher load gives a better score, but load from members of the same job
// does not count.
func (p *plan) score(a *alloc) (score int) {
	for _, o := range p.s.allocs {
		if _, stopped := p.stop[o]; o.node != a.node || !o.holdsResources() || stopped {
			continue
		}
		if o.key == a.key {
			return -1
		}
		score++
	}
	return score
}

// settleParting handles the members whose node is away. The members are rescheduled after a while,
// unless their job forbids this.
func (p *plan) settleParting(is *groupAllocs) {
	p.parting = append(p.parting, is.parting...)
	for _, a := range is.parting {
		is.keep = append(is.keep, a)
		if at, ok := p.s.rescheduleAfter(a, p.s.now()); ok && !p.inDeployment(a) && a.replaced() && a.followUp == "" {
			p.rescheduleAt[a] = at
		}
	}
}

// applyParting records which members become unknown, and when they will count as lost.
func (s *Server) applyParting(p *plan) {
	after := map[time.Duration]string{}
	for _, a := range p.parting {
		d := value(a.disconnect().LostAfter)
		if after[d] == "" {
			after[d] = s.evaluateAfter(p.key, maxDisconnectTimeout, max(time.Millisecond, d)).ID
		}
		s.unknown++
		a.client, a.unknownSince, a.toReconnect, a.followUp = api.AllocClientStatusUnknown, s.now(), true, after[d]
		s.updateAlloc(a, "PlanResult")
	}
	for _, a := range p.returned {
		if n := s.nodes[a.node]; a.client == api.AllocClientStatusRunning && n != nil && n.Status == api.NodeStatusReady {
			a.toReconnect = false
			s.back++
			s.updateAlloc(a, "PlanResult")
		}
	}
}

const maxDisconnectTimeout = "max-disconnect-timeout"

// hearOfUnknown tells the client of a node that has come back that its allocations were unknown.
// The client reports even allocations that are being stopped at this time.
func (s *Server) hearOfUnknown(n *node) {
	for _, a := range s.sortedAllocs() {
		if a.node == n.ID && a.client == api.AllocClientStatusUnknown && a.desired == api.AllocDesiredStatusRun {
			a.untold = append(a.untold, &api.TaskEvent{Type: api.TaskClientReconnected, Time: s.now().UnixNano()})
		}
	}
}

// tellReconnected sends a client's report that an unknown allocation still runs.
func (s *Server) tellReconnected(a *alloc) {
	a.client = api.AllocClientStatusRunning
	s.nextIndex("allocs", "evals")
	s.forgetFollowUp(a)
	s.updateAlloc(a, "AllocationUpdated")
	s.evaluate(a.key, "reconnect")
}

// forgetFollowUp cancels the evaluation that was scheduled for a member whose node is now back.
func (s *Server) forgetFollowUp(a *alloc) {
	id := a.followUp
	if !a.toReconnect || id == "" {
		return
	}
	a.followUp = ""
	for _, o := range s.byJob[a.key] {
		if o.followUp == id && !o.terminal() {
			return
		}
	}
	if e := s.evalByID(a.key, id); e != nil && !terminalEval(e) {
		own := *e
		own.Status = api.EvalStatusCancelled
		s.putEval(a.key, own)
	}
}

// stopAlone lets the client of a node that is away stop allocations that have stop_on_client_after.
func (s *Server) stopAlone(id string) {
	n := s.nodes[id]
	for _, a := range s.sortedAllocs() {
		d, run, times := a.disconnect().StopOnClientAfter, a.run, n.times
		if a.node != id || n.dead || d == nil || !a.tasksRun() {
			continue
		}
		s.after(*d, "client is to end "+a.id+" without Nomad", func() {
			if n := s.nodes[id]; n == nil || n.times != times || a.run != run || !s.usesGPU(a) {
				return
			}
			s.taskEvent(a, &api.TaskEvent{Type: api.TaskKilling})
			s.afterJitter(s.killTime(a), "client ends "+a.id+" without Nomad", func() {
				if a.run == run && s.usesGPU(a) {
					exit := onSignal(a)
					s.taskEvent(a, &api.TaskEvent{Type: api.TaskTerminated, ExitCode: exit, Details: map[string]string{"exit_code": strconv.Itoa(exit)}})
					s.allocEnded(a, api.AllocClientStatusComplete)
				}
			})
		})
	}
}

// waitForClients returns how long Nomad waits for disconnected clients to stop lost members before
// it replaces these members.
func waitForClients(lost []*alloc) (wait time.Duration) {
	for _, a := range lost {
		if d := value(a.disconnect().StopOnClientAfter); d > 0 {
			kill := 5 * time.Second
			for _, t := range a.taskGroup().Tasks {
				kill = max(kill, value(t.KillTimeout))
			}
			wait = max(wait, d+kill)
		}
	}
	return wait
}
