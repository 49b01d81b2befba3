// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A job enters the queue when each job in its pal_after has succeeded, and not before its pal_begin.
// The named jobs need not have GPUs, so the placer asks Nomad about them. The model remembers how
// they ended as long as a tracked job names them, because Nomad forgets ended jobs after some hours.

// Await decides whether a waiting job may enter the queue, according to what is known of the jobs in
// pal_after. If the job must wait, Await sets After to the reason. Await sets Eligible to the time when the job's wait for others and for its pal_begin ended.
func (t *Tracked) Await(known map[cluster.JobKey]Dependency, now time.Time) {
	t.After, t.Eligible = nil, time.Time{}
	if !t.waitsForOthers() {
		return
	}
	begins := t.AwaitBegin(now)
	var after reason.Reason
	for _, b := range t.Predecessors() {
		of := known[b]
		why := of.Unmet()
		switch {
		case why.IsZero() && of.Ended.After(t.Eligible):
			t.Eligible = of.Ended
		case after.IsZero():
			after = ComesAfter(b, why)
		case why.Kind == reason.AheadMissing: // always name a missing job, because its name may be misspelled
			after = after.And(ComesAfter(b, why))
		}
	}
	after = after.And(begins)
	if !after.IsZero() {
		t.After = &after
	}
}

// ComesAfter returns the reason why a job waits for another. why is the other job's state
// ([Dependency.Unmet]). If why is no reason, ComesAfter returns no reason.
func ComesAfter(other cluster.JobKey, why reason.Reason) reason.Reason {
	if why.IsZero() {
		return why
	}
	return reason.Reason{Kind: reason.ComesAfter, Jobs: []string{other.String()}}.Over(why)
}

// waitsForOthers reports whether the job's pal_after and pal_begin still apply. They no longer apply
// to a job that has already run, unless its author edits it.
func (t *Tracked) waitsForOthers() bool {
	return t.Nomad == palapi.Waiting && t.Refused == nil && len(t.Pins.Groups) == 0
}

// AwaitBegin sets Eligible to the time in the job's pal_begin, and returns a reason if this time is in
// the future.
func (t *Tracked) AwaitBegin(now time.Time) reason.Reason {
	at, ok := t.Request.Hints.Begin.For(t.Submitted())
	if ok {
		t.Eligible = at
	}
	if !ok || !at.After(now) {
		return reason.Reason{}
	}
	return reason.Reason{Kind: reason.Begins, Until: at}
}

// Predecessors returns the jobs in the job's pal_after.
func (t *Tracked) Predecessors() (all []cluster.JobKey) {
	for _, id := range rewrite.Predecessors(t.Request.Hints.After) {
		all = append(all, cluster.JobKey{Namespace: t.Key.Namespace, ID: id})
	}
	return all
}

// dependencyCache holds data about the jobs that other jobs name in pal_after.
type dependencyCache struct {
	Known map[cluster.JobKey]Dependency
	// Listens is true after the event stream has begun to report changes.
	Listens bool
}

// DueDependencies returns the jobs that the placer must read from Nomad now, because waiting jobs
// name them. The job that has been due for the longest time comes first. DueDependencies reads the
// state of tracked jobs from the model, and forgets jobs that no tracked job names.
func (m *Model) DueDependencies(now time.Time) (due []cluster.JobKey) {
	known := map[cluster.JobKey]Dependency{}
	waited := map[cluster.JobKey]bool{}
	for _, t := range m.Sorted() {
		for _, b := range t.Predecessors() {
			known[b] = m.Dependencies.Known[b]
			waited[b] = waited[b] || t.waitsForOthers()
		}
	}
	m.Dependencies.Known = known
	for b := range waited {
		other := m.Jobs[b]
		switch {
		case other != nil:
			known[b] = other.AsDependency(known[b])
		case waited[b] && !now.Before(known[b].Due):
			due = append(due, b)
		}
	}
	slices.SortFunc(due, func(a, b cluster.JobKey) int {
		return cmp.Or(known[a].Due.Compare(known[b].Due), a.Compare(b))
	})
	return due
}

// Dependency holds data about a job that another job names in pal_after.
type Dependency struct {
	// Due is the time at which the placer must read the job from Nomad again. Zero means at once.
	Due time.Time
	// Heard is the index of the last change of the job that an event reported, or zero if no event
	// reported a change. Nomad sends an event before it makes the change (seen on 1.11.3). Until
	// Nomad returns the job with at least this index, Nomad's answers are outdated. An answer that
	// Nomad has no such job is outdated, too, unless Purged is true.
	Heard  uint64
	Purged bool
	// Ended is the time when the job succeeded, or zero if it has not. Why then describes the job's
	// state.
	Ended time.Time
	Why   reason.Reason
}

// Unmet returns why a job that comes after d must wait, or no reason if d has succeeded.
func (d Dependency) Unmet() reason.Reason {
	if !d.Ended.IsZero() {
		return reason.Reason{}
	}
	return d.Why.Or(reason.Reason{Kind: reason.AheadChecked})
}

// AsDependency returns the state of a tracked job for which other jobs wait. was is the last known
// state.
func (t *Tracked) AsDependency(was Dependency) Dependency {
	return Dependency{Why: t.ahead(), Heard: was.Heard, Purged: was.Purged}
}

// ahead returns the state of a tracked job that has not ended.
func (t *Tracked) ahead() reason.Reason {
	switch {
	case !t.GaveUp().IsZero():
		return reason.Reason{Kind: reason.AheadFailed}
	case t.Refused != nil:
		return reason.Reason{Kind: reason.AheadRejected}
	case *t.Job.Type != api.JobTypeBatch:
		return reason.Reason{Kind: reason.AheadEndless, Cause: *t.Job.Type}
	case t.Nomad == palapi.Running || t.Nomad == palapi.Starting:
		return reason.Reason{Kind: reason.AheadRuns}
	}
	return reason.Reason{Kind: reason.AheadWaits}
}

// Hear applies an event. Hear reports whether the event concerns a job in pal_after that was
// registered, stopped or purged, or has ended.
func (f *dependencyCache) Hear(e cluster.Event) bool {
	job := e.Payload.Job
	of, ok := f.Known[e.About()]
	if !ok || job == nil || e.Progress() && !cluster.Dead(job) {
		return false
	}
	of.Due = time.Time{}
	of.Heard = e.Index
	of.Purged = e.Purged()
	if !of.Purged && job.ModifyIndex != nil {
		of.Heard = *job.ModifyIndex
	}
	f.Known[e.About()] = of
	return true
}

// Outdated reports whether Nomad's answer is older than an event about the job. job is nil if Nomad
// has no such job.
func (d Dependency) Outdated(job *api.Job) bool {
	if job == nil {
		return d.Heard > 0 && !d.Purged
	}
	return *job.ModifyIndex < d.Heard
}

// Doubt marks all dependencies so that they are read again, because the placer may have missed
// events.
func (f *dependencyCache) Doubt() {
	f.Listens = true
	for k, of := range f.Known {
		of.Due = time.Time{}
		f.Known[k] = of
	}
}
