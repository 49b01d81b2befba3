// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// mostMembers is the maximum number of missing or retried members that are described.
const mostMembers = 3

// addTried explains how often Nomad has retried members, and what happened to missing members. d is
// nil, or a deployment that is active or has failed: then Nomad retries no members.
func (e *draft) addTried(s *Snapshot, st gang.Observed, d *api.Deployment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.m.Jobs[st.Key]; t != nil && (st.Nomad == palapi.Running || st.Nomad == palapi.Starting) {
		e.Members, e.Retry = tried(s.m, t, d != nil)
		if d != nil && !nomad.Deploying(d) && !t.NeedsAll() && e.Retry == "" && len(e.Members) > 0 && st.Nomad == palapi.Starting {
			e.Retry = palapi.RetryRevert
		}
	}
}

// tried describes how often and why Nomad has retried members, and what happened to missing
// members. For members that do not need each other, tried also returns how to get missing members
// back. deploys means that a deployment is active or has failed, so that Nomad retries no members.
func tried(m *model.Model, t *model.Tracked, deploys bool) (said []reason.Reason, retry palapi.Retry) {
	before := map[string]*cluster.Alloc{}
	for _, a := range m.State.AllocsOf(t.Key) {
		before[a.Next] = a
	}
	var away, again []reason.Reason
	for _, a := range slices.SortedFunc(maps.Values(lastAllocs(m.State, t.Key, t.Job)), byNumber) {
		switch {
		case a.Member():
			if r := triedAgain(m, t.Job, a, before); !r.IsZero() {
				again = append(again, r)
			}
		case t.Nomad == palapi.Starting && !a.FinishedIn(t.Job) && wanted(t.Job, a):
			r, by := missing(m, t, a, !deploys && triesLeft(t.Job, a, before))
			if !r.IsZero() {
				away = append(away, r)
			}
			retry = cmp.Or(retry, by)
		}
	}
	return slices.Concat(few(away, reason.MoreMissing), few(again, reason.MoreTried)), retry
}

// few returns the first few reasons, and a reason that counts the rest.
func few(said []reason.Reason, more reason.Kind) []reason.Reason {
	if n := len(said) - mostMembers; n > 0 {
		return append(said[:mostMembers:mostMembers], reason.Reason{Kind: more, Total: n})
	}
	return said
}

// ofMember returns a reason about a member of a group.
func ofMember(kind reason.Kind, a *cluster.Alloc) reason.Reason {
	return reason.Reason{Kind: kind, Member: a.Group + a.Name[max(0, strings.LastIndexByte(a.Name, '[')):]}
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

// triedAgain describes how often Nomad, since the job was last registered, has retried a member
// that runs again. If Nomad has not retried the member, triedAgain returns no reason.
func triedAgain(m *model.Model, job *api.Job, a *cluster.Alloc, before map[string]*cluster.Alloc) (r reason.Reason) {
	times := 0
	var lastFailed *cluster.Alloc
	for was := before[a.ID]; was != nil && was.Failed() && was.PlacedFor(job) && times < len(before); was = before[was.ID] {
		if times++; lastFailed == nil {
			lastFailed = was
		}
	}
	if times > 0 {
		r = ofMember(reason.MemberPlacedAgain, a)
		r.Tries, r.Until, r.Cause = times, time.Unix(0, a.CreateTime).UTC(), m.Diagnose(lastFailed).Reason
	}
	if restarts := a.Restarts(); restarts > 0 {
		again := ofMember(reason.MemberRestarted, a)
		again.Tries = int(restarts)
		r = r.And(again)
	}
	return r
}

// missing describes what happened to a missing member, and how to get it back. retries reports
// whether Nomad itself will retry the member. If Nomad has already scheduled the retry, a.Later is
// set.
func missing(m *model.Model, t *model.Tracked, a *cluster.Alloc, retries bool) (r reason.Reason, by palapi.Retry) {
	alone, service := !t.NeedsAll(), *t.Job.Type == api.JobTypeService && !t.NeedsAll()
	r = ofMember(reason.MemberMissing, a)
	r.Until = a.End().UTC()
	switch {
	case a.Failed():
		f := m.Diagnose(a)
		r.Cause, r.Node = f.Reason, f.Node
		switch {
		case a.Client == api.AllocClientStatusLost:
			return r, ""
		case a.Later:
			return r.And(reason.Reason{Kind: reason.RetriedLater}), ""
		case !alone || a.Next != "" || a.Desired != api.AllocDesiredStatusRun:
			return r, ""
		case retries:
			return r.And(reason.Reason{Kind: reason.RetriedLater}), ""
		case reschedules(t.Job, a.Group):
			return r.And(reason.Reason{Kind: reason.NotRetriedNow}), map[bool]palapi.Retry{true: palapi.RetryEvaluate, false: palapi.RetryForce}[service]
		}
		return r.And(reason.Reason{Kind: reason.NotRetried}), map[bool]palapi.Retry{true: palapi.RetryChange, false: palapi.RetryAgain}[service]
	case a.PreemptedByNomad(t.Job):
		r.Kind = reason.MissingPreempted
		return r, map[bool]palapi.Retry{true: palapi.RetryRun}[service]
	case !a.Live() && a.Desired != api.AllocDesiredStatusRun:
		r.Kind = reason.MissingStopped
		return r, ""
	}
	return reason.Reason{}, ""
}

// reschedules reports whether Nomad can reschedule members of the group at all.
func reschedules(job *api.Job, group string) bool {
	g := job.LookupTaskGroup(group)
	if g == nil || g.ReschedulePolicy == nil {
		return true // Nomad's default
	}
	p := g.ReschedulePolicy
	return p.Unlimited != nil && *p.Unlimited || p.Attempts != nil && *p.Attempts > 0
}

// triesLeft reports whether the reschedule block of a failed member's group allows one more try.
// Nomad counts the tries within the interval before the failure.
func triesLeft(job *api.Job, a *cluster.Alloc, before map[string]*cluster.Alloc) bool {
	g := job.LookupTaskGroup(a.Group)
	if g == nil || g.ReschedulePolicy == nil {
		return false
	}
	p, tried := g.ReschedulePolicy, 0
	if p.Unlimited != nil && *p.Unlimited {
		return true
	}
	if p.Attempts == nil || p.Interval == nil {
		return false
	}
	failed := a.End()
	for next, was := a, before[a.ID]; was != nil && tried < *p.Attempts; next, was = was, before[was.ID] {
		if was.Failed() && failed.Sub(time.Unix(0, next.CreateTime)) < *p.Interval {
			tried++
		}
	}
	return tried < *p.Attempts
}
