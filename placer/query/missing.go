// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// mostMembers is the maximum number of missing members that are described.
const mostMembers = 3

// addMissing explains what happened to the missing members of a job.
func (s *Snapshot) addMissing(e *draft, k cluster.JobKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.m.Jobs[k]
	if t != nil && t.Nomad == palapi.Starting {
		e.Members = missing(s.m, t)
		e.Retry = len(e.Members) > 0 && !t.NeedsAll()
	}
}

// missing describes what happened to the missing members of a job.
func missing(m *model.Model, t *model.Tracked) (said []reason.Reason) {
	for _, a := range slices.SortedFunc(maps.Values(lastAllocs(m.State, t.Key, t.Job)), byNumber) {
		if a.Member() || a.FinishedIn(t.Job) || !wanted(t.Job, a) {
			continue
		}
		r := reason.Reason{Kind: reason.MemberMissing, Member: a.Group + a.Name[max(0, strings.LastIndexByte(a.Name, '[')):], Until: a.End().UTC()}
		switch {
		case a.Failed():
			f := m.Diagnose(a)
			r.Cause, r.Node = f.Reason, f.Node
		case a.PreemptedByNomad(t.Job):
			r.Cause = "Nomad preempted the member"
		case !a.Live() && a.Desired != api.AllocDesiredStatusRun:
			r.Cause = "the member was stopped (node drain?)"
		default:
			continue
		}
		said = append(said, r)
	}
	n := len(said) - mostMembers
	if n > 0 {
		said = append(said[:mostMembers], reason.Reason{Kind: reason.MoreMissing, Total: n})
	}
	return said
}

// byNumber sorts members by group and number.
func byNumber(a, b *cluster.Alloc) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(cluster.MemberNumber(a.Name), cluster.MemberNumber(b.Name)), cmp.Compare(a.Name, b.Name))
}

// wanted reports whether the job should have a member with this number.
func wanted(job *api.Job, a *cluster.Alloc) bool {
	g := job.LookupTaskGroup(a.Group)
	return g != nil && cluster.MemberNumber(a.Name) < rewrite.Members(g)
}
