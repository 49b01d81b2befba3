// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package model holds everything that the placer knows at one moment: Nomad's state, which job
// holds which GPU, the gangs and their queue, and the configuration. The package is pure: it makes
// no requests, reads no clock and logs nothing. The placer acts on a [Model]; package query answers
// questions from a Model.
//
// The package builds on Nomad's state (placer/cluster), the view of GPUs (placer/request), the life
// of one gang (placer/gang) and the queue (pal/queue).
//
// Snapshots are clones of the model, and other goroutines read them while the placer changes the
// original. So if a new field is changed in place, [Model.Clone] must copy it. A clone may share a
// field that is only replaced as a whole. [Model.Reset] must forget each field that is derived from
// Nomad's state, because the placer calls Reset after a panic.
package model

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Model is everything that the placer knows at one moment. See the package comment.
type Model struct {
	Cfg  Config
	Time time.Time // of the cycle, by the clock

	State        *cluster.State
	View         *request.View
	Queue        *queue.Queue
	Jobs         map[cluster.JobKey]*Tracked
	Failures     []palapi.Failure // of members, oldest first
	Quarantine   map[string]palapi.Quarantine
	Windows      windowsInForce
	Dependencies dependencyCache
	// Controls maps jobs to the orders that people gave about them, such as a hold. Controls is nil
	// until the orders are read.
	Controls     map[cluster.JobKey]gang.Control
	unanswered   map[cluster.JobKey][]unanswered // oldest first
	IsolatedJobs map[cluster.JobKey]IsolatedJob
	order        []*Tracked     // the jobs by key; rebuilt if it is not as long as Jobs
	working      cluster.JobKey // see BeginJob
	// Outages holds the failures of the infrastructure; see [DelayRetries].
	Outages outages

	Profile  *profile.Profile
	Imported []profile.Sample // measured elsewhere, see cluster.MergeSamples
	// BuiltFrom is the NodeGeneration of the state from which the last profile was built.
	BuiltFrom uint64
	best      bestCosts
}

// New returns the model of a new placer. The model contains only the configuration and the time.
func New(cfg Config, now time.Time) (*Model, error) {
	m := &Model{Cfg: cfg, Time: now, IsolatedJobs: map[cluster.JobKey]IsolatedJob{}, unanswered: map[cluster.JobKey][]unanswered{}, Dependencies: dependencyCache{Known: map[cluster.JobKey]Dependency{}}}
	return m, m.Reset()
}

// Reset forgets everything derived from Nomad's state.
func (m *Model) Reset() (err error) {
	m.Jobs = map[cluster.JobKey]*Tracked{}
	m.order = nil
	m.View = nil
	m.working = cluster.JobKey{}
	m.Outages = nil
	m.Queue, err = queue.New(m.Cfg.QueueOptions())
	return err
}

// Update applies an effect of a gang to the model. Update changes nothing outside the model.
func (m *Model) Update(t *Tracked, e gang.Effect) {
	id, now := t.Key.String(), gang.QueueTime(m.Time)
	switch e := e.(type) {
	case gang.Own:
		m.State.Own(t.Key, e.GPUs)
	case gang.Take:
		m.View.Take(e.Gang, e.Placement)
	case gang.Release:
		m.View.Release(e.Gang, e.Placement)
	case gang.Keep:
		m.View.Keep(e.Placement)
	case gang.Enqueue:
		if err := m.Queue.Submit(gang.QueueTime(e.Since), e.Job); err != nil {
			t.Refused, t.Queued = err, false
		}
	case gang.Dequeue:
		if e.Finished {
			m.Queue.Finished(now, id)
		} else {
			m.leaveQueue(t)
		}
	case gang.QueueStarted:
		m.Queue.Started(now, id, e.Placement)
	case gang.QueueRestored:
		e.Job.Booked = t.booked
		if t.outside {
			e.Job.Booked, t.outside = now, false // CountOutside has counted the usage until now
		}
		if err := m.Queue.Restore(e.Job, e.Placement, gang.QueueTime(e.Since)); err != nil {
			t.Queued, t.Placed = false, false
		} else if e.Ends {
			m.Queue.Stopping(id)
		}
	case gang.QueueStopped:
		m.Queue.Stopped(now, id)
	case gang.QueueRequeued:
		m.Queue.Requeue(now, id)
	case gang.QueueSettled:
		m.Queue.Settled(id)
	case gang.QueueKept:
		m.Queue.NotStopped(id)
	}
}

// leaveQueue takes a gang out of the queue. The gang may keep running outside the queue.
func (m *Model) leaveQueue(t *Tracked) {
	now, id := gang.QueueTime(m.Time), t.Key.String()
	if m.Queue.Counts(id) {
		t.booked = now
	}
	m.Queue.Removed(now, id)
}

// At returns the placement of the gang according to the ledger.
func (m *Model) At(t *Tracked) pal.Placement {
	return m.View.Running(t.Request, m.View.Holds(t.Key))
}

// CountOutside tells the queue what jobs hold that the queue does not count: jobs without the gate,
// jobs that Nomad lists but cannot return, and running jobs whose current jobspec the placer cannot
// serve. All of them use their tenant's GPUs.
func (m *Model) CountOutside() {
	held := map[queue.Payer]queue.Held{}
	eachHolder(m, func(k cluster.JobKey, by queue.Payer, gpus float64) {
		if m.Queue.Counts(k.String()) {
			return
		}
		t := m.Jobs[k]
		if t != nil {
			t.outside = true
		}
		h := held[by]
		held[by] = queue.Held{GPUs: h.GPUs + gpus, Jobs: h.Jobs + 1}
	})
	m.Queue.Outside(gang.QueueTime(m.Time), held)
}

// NamespaceHolds counts the GPUs that the jobs of a namespace hold.
type NamespaceHolds struct {
	GPUs    float64 // of all jobs
	Ungated float64 // of jobs without the gate
}

// HeldByNamespace returns what the jobs of each namespace hold.
func (m *Model) HeldByNamespace() map[string]NamespaceHolds {
	held := map[string]NamespaceHolds{}
	eachHolder(m, func(k cluster.JobKey, by queue.Payer, gpus float64) {
		h := held[by.Tenant]
		h.GPUs += gpus
		if m.Jobs[k] == nil && m.State.Jobs[k] != nil {
			h.Ungated += gpus
		}
		held[by.Tenant] = h
	})
	return held
}

// eachHolder calls f for each job that holds GPUs, in the order of the keys.
func eachHolder(m *Model, f func(cluster.JobKey, queue.Payer, float64)) {
	for _, k := range m.View.Holders() {
		by := queue.Payer{Tenant: k.Namespace}
		t := m.Jobs[k]
		if t != nil {
			by.User = t.Request.Hints.User
		} else if job := m.State.Jobs[k]; job != nil {
			by.User = rewrite.UserOf(job)
		}
		f(k, by, m.View.Cluster.Amount(m.View.Holds(k)...))
	}
}

// Sorted returns the jobs in the order of their keys. Callers must not change the list. Sorted
// keeps the list from cycle to cycle, so that it need not sort thousands of jobs each time. The
// list is valid while it is as long as the map Jobs, because [Model.Add] and [Model.Forget] update
// or drop it.
func (m *Model) Sorted() []*Tracked {
	if len(m.order) != len(m.Jobs) {
		m.order = make([]*Tracked, 0, len(m.Jobs))
		for _, k := range slices.SortedFunc(maps.Keys(m.Jobs), cluster.JobKey.Compare) {
			m.order = append(m.order, m.Jobs[k])
		}
	}
	return m.order
}

func byKey(t *Tracked, k cluster.JobKey) int { return t.Key.Compare(k) }

// Add starts tracking a job.
func (m *Model) Add(k cluster.JobKey) *Tracked {
	t := &Tracked{Lifecycle: gang.Of(gang.Observed{Key: k})}
	t.Control = m.Controls[k]
	if len(m.order) == len(m.Jobs) {
		i, _ := slices.BinarySearchFunc(m.order, k, byKey)
		m.order = slices.Insert(m.order, i, t)
	} else {
		m.order = nil
	}
	m.Jobs[k] = t
	return t
}

// Forget stops tracking a job.
func (m *Model) Forget(k cluster.JobKey) {
	if i, ok := slices.BinarySearchFunc(m.order, k, byKey); ok && len(m.order) == len(m.Jobs) {
		m.order = slices.Delete(m.order, i, i+1)
	} else {
		m.order = nil
	}
	delete(m.Jobs, k)
}

// ByID returns the job that has this id in the queue, or nil if the model does not track it.
func (m *Model) ByID(id string) *Tracked { return m.Jobs[KeyOf(id)] }

// KeyOf returns the key of the job that has this id in the queue.
func KeyOf(id string) cluster.JobKey {
	namespace, name, _ := strings.Cut(id, "/") // no namespace has a slash
	return cluster.JobKey{Namespace: namespace, ID: name}
}

// Observed returns the state of a job. For an isolated job, Observed does not look at the job's
// contents. For a tracked gang, Observed returns the state that the placer saw last, so that
// decisions and answers agree. Later changes count only from the next cycle.
func (m *Model) Observed(job *api.Job) gang.Observed {
	if _, ok := m.Isolated(job, m.Time); ok {
		return isolatedObserved(job)
	}
	t := m.Jobs[cluster.KeyOf(job)]
	if t != nil && t.Job != nil {
		return t.Observed
	}
	return gang.Observe(m.State, job).WithLost(m.World())
}

func isolatedObserved(job *api.Job) gang.Observed {
	return gang.Observed{Key: cluster.KeyOf(job), Job: job, Nomad: palapi.Rejected}
}

// SizeOf returns the size of a running or waiting elastic gang, or nil for other jobs.
func (m *Model) SizeOf(t *Tracked) *queue.Size {
	if s, ok := m.Queue.SizeOf(t.Key.String()); ok {
		return &s
	}
	return nil
}

// Tracked is a gang that the placer manages.
type Tracked struct {
	gang.Lifecycle
	// Idle is true if the placer need do nothing for the job until the job or one of its
	// allocations changes.
	Idle bool
	// PassedOver is true if the cycle ran out of time for this job. Two facts are then unknown:
	// since when it waits, and whether a change by the author was overwritten.
	PassedOver        bool
	EvaluationQueries EvaluationQueries
	// After is why the job must stay out of the queue: its pal_after, its pal_begin, or a hold.
	// After is nil if there is no such reason. Eligible is the time when the wait for pal_after and
	// pal_begin ended.
	After    *reason.Reason
	Eligible time.Time
	// denied is the latest error of Nomad about a lack of permission.
	denied string
	// unfit maps nodes on which Nomad's dry run refused the gang to the time of the refusal.
	unfit map[unfitNode]time.Time
	// runs contains the finished runs of jobs with the same name (see [Model.runsOf]).
	runs queue.PastRuns
	// booked is the time until which the queue has counted the job's usage. The placer sets booked
	// when a running job leaves the queue.
	booked time.Duration
	// outside is set if CountOutside has counted the job.
	outside bool
}

// NoteDenied records a request that failed for lack of permission.
func (t *Tracked) NoteDenied(err error) { t.denied = err.Error() }

// Denials lists, for each namespace, the jobs that the placer cannot serve because it lacks a
// permission.
func (m *Model) Denials() (out []string) {
	jobs := map[string][]*Tracked{}
	for _, t := range m.Sorted() {
		if t.denied != "" && t.Trouble().Kind == reason.Error && t.denied == t.Trouble().Cause {
			jobs[t.Key.Namespace] = append(jobs[t.Key.Namespace], t)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(jobs)) {
		what := "a job"
		n := len(jobs[namespace])
		if n > 1 {
			what = fmt.Sprintf("%d jobs", n)
		}
		out = append(out, fmt.Sprintf("nomad-pal cannot serve %s of namespace %q: %s", what, namespace, jobs[namespace][0].denied))
	}
	return out
}

// unplacedAfter is how long the placer waits for Nomad to place the first member of a gang before
// the placer warns.
const unplacedAfter = 2 * time.Minute

// Unplaced returns warnings about gangs that the placer started long ago, and that still have no
// placed member. Nomad evaluates no jobs while an operator has paused evaluation, and evaluates
// jobs slowly under overload.
func (m *Model) Unplaced() []string {
	late, since := 0, m.Time
	for _, t := range m.Sorted() {
		if t.Nomad != palapi.Starting || len(t.Members) > 0 || t.Record == nil || !t.Record.Ready.IsZero() || m.Time.Sub(t.Record.Decided) < unplacedAfter {
			continue
		}
		if late++; t.Record.Decided.Before(since) {
			since = t.Record.Decided
		}
	}
	if late == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Nomad has placed no member of %s (the first was started %s): nomad-pal doctor shows whether Nomad's evaluations are paused; else look at the load of Nomad's servers",
		reason.Counted(late, "gang that nomad-pal started", "gangs that nomad-pal started"), reason.Moment(since))}
}

// unfitNode identifies a node that is unfit for a job. index is the JobModifyIndex of the job.
type unfitNode struct {
	node  string
	index uint64
}

// NoteUnfit records nodes on which Nomad's dry run refused the gang.
func (t *Tracked) NoteUnfit(nodes []string, now time.Time) {
	if t.unfit == nil {
		t.unfit = map[unfitNode]time.Time{}
	}
	for _, n := range nodes {
		t.unfit[unfitNode{n, *t.Job.JobModifyIndex}] = now
	}
}

// Unfit returns the nodes on which Nomad's dry run refused the present version of the job. Unfit
// forgets a node after AvoidFor.
func (t *Tracked) Unfit(job *api.Job, now time.Time) map[string]bool {
	nodes := map[string]bool{}
	for n, at := range t.unfit {
		if n.index == *job.JobModifyIndex && now.Sub(at) < AvoidFor {
			nodes[n.node] = true
		}
	}
	return nodes
}

// EvaluationQueries counts how often the placer has read the evaluations of a job since the job's
// last registration. Index is the JobModifyIndex of the last registration.
type EvaluationQueries struct {
	Index uint64
	Last  time.Time
	Count int
}

// statusOf returns the job's status. w describes what the job waits for according to the queue. w
// can be nil.
func (m *Model) statusOf(t *Tracked, w *Wait) palapi.JobStatus {
	j := palapi.JobStatus{Namespace: t.Key.Namespace, Job: t.Key.ID, State: t.Shown(m, w), Reason: t.Trouble()}
	if t.Job.Priority != nil {
		j.Priority = cmp.Or(t.Control.Priority, *t.Job.Priority)
	}
	j.User, j.Held = t.Request.Hints.User, t.Control.Held != nil
	switch {
	case t.Nomad == palapi.Rejected: // isolated: the placer does not examine such a job further
		j.Reason = Refused(t.Refused)
		return j
	case j.State == palapi.Failed:
		j.Reason = t.GaveUp()
	case t.Refused != nil && len(t.Members) > 0:
		j.Reason = reason.Reason{Kind: reason.RunsUnread, Cause: t.Refused.Error()}
	case t.Refused != nil:
		j.Reason = Refused(t.Refused)
	case t.Nomad == palapi.Waiting:
		w.Tell(&j)
		j.Reason = t.WhyWaits(m, w, j.Reason)
	}
	j.GPUs = t.Request.Gang.GPUs()
	j.Class = string(t.Request.Gang.Class)
	j.Submitted = t.Submitted()
	s := t.Request.Gang.Share
	if s < 1 {
		j.Share = s
	}
	if t.Refused != nil && len(t.Members) > 0 { // the job's current request cannot be read, so show the GPUs that the job holds
		j.GPUs = t.Holds()
		if t.Record != nil {
			j.Class = string(t.Record.Decision.Class)
		}
	}
	return j
}

// WhyWaits returns the reason why a job waits. queued is the queue's reason. w is nil if the job is
// not in the queue: it backs off after a failure, or the placer has not read it yet. For a requeued
// job, WhyWaits also returns why it was requeued.
func (t *Tracked) WhyWaits(b gang.Book, w *Wait, queued reason.Reason) reason.Reason {
	switch {
	case t.Refused != nil: // the job is being stopped because its members had completed
		return Refused(t.Refused)
	case t.After != nil:
		return *t.After
	case w == nil || t.State(b) == palapi.Committing:
		return t.Trouble().Or(queued).Or(reason.Reason{Kind: reason.BeingRead})
	case t.Trouble().Same(queued):
		return queued
	}
	return queued.And(t.Trouble())
}

// Refused returns the reason why the placer cannot serve a job.
func Refused(err error) reason.Reason {
	r, is := errors.AsType[reason.Reason](err)
	if is {
		return r
	}
	return reason.Reason{Kind: reason.Rejected, Cause: err.Error()}
}

// Shown returns the state of a job in the form that people see. w describes what the job waits for
// according to the queue. w can be nil.
func (t *Tracked) Shown(b gang.Book, w *Wait) palapi.State {
	s := t.State(b)
	if s != palapi.Waiting || t.Never == nil && (w == nil || !w.never) {
		return s
	}
	return palapi.Unschedulable
}
