// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// IsolatedJob is a job that made the placer panic.
type IsolatedJob struct {
	index uint64 // JobModifyIndex of the job at the panic
	until time.Time
	times int
	why   reason.Reason
}

// IsolateFor is how long a job stays isolated after its second panic, even if it changes. Each
// further panic doubles the time. The maximum is isolateMost. A job that does not change stays
// isolated, even after its first panic.
const (
	IsolateFor  = 10 * time.Second
	isolateMost = time.Hour
)

// BeginJob records the job on which the placer begins to work. If the placer panics, it blames this
// job.
func (m *Model) BeginJob(k cluster.JobKey) { m.working = k }

// EndJob records that the placer is not working on any job.
func (m *Model) EndJob() { m.working = cluster.JobKey{} }

// IsolateJob isolates a job that made the placer panic.
func (m *Model) IsolateJob(k cluster.JobKey, panicked any, now time.Time) {
	a := m.IsolatedJobs[k]
	a.times++
	a.why = reason.Reason{Kind: reason.PlacerFault, Cause: fmt.Sprint(panicked)}
	job := m.State.Jobs[k]
	if job != nil {
		a.index = *job.JobModifyIndex
	}
	if a.times > 1 {
		a.until = now.Add(min(IsolateFor<<min(a.times-2, 20), isolateMost))
	}
	m.IsolatedJobs[k] = a
}

// JobAtFault returns the job on which the placer or its queue was working. ok is false if there was
// no such job.
func (m *Model) JobAtFault() (k cluster.JobKey, ok bool) {
	k = m.working
	if k == (cluster.JobKey{}) {
		k = KeyOf(m.Queue.Trying())
	}
	return k, k != cluster.JobKey{}
}

// Isolated returns the reason why a job is isolated. ok is false if the job is not isolated.
func (m *Model) Isolated(job *api.Job, now time.Time) (why reason.Reason, ok bool) {
	a, ok := m.IsolatedJobs[cluster.KeyOf(job)]
	if !ok || a.index != *job.JobModifyIndex && !now.Before(a.until) {
		return reason.Reason{}, false
	}
	return a.why, true
}

// IsolatePanics calls a function, and reports whether it returned without a panic. The function may
// change the queue and the view for a test, but must undo the changes. If a job makes the function
// panic, IsolatePanics isolates this job, and the caller must call IsolatePanics again.
// IsolatePanics panics again if no job is known to have caused the panic, or if the job that caused
// it is already isolated.
func (m *Model) IsolatePanics(do func()) (done bool) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		k, ok := m.JobAtFault()
		job := m.State.Jobs[k]
		_, again := m.IsolatedJobs[k]
		if !ok || job == nil || again {
			panic(r)
		}
		m.IsolateJob(k, r, m.Time)
		m.Queue.Removed(gang.QueueTime(m.Time), k.String())
		m.EndJob()
		m.TrackIsolated(k, job, m.IsolatedJobs[k].why)
	}()
	do()
	return true
}

// TrackIsolated keeps an isolated job in the model's list of jobs.
func (m *Model) TrackIsolated(k cluster.JobKey, job *api.Job, why reason.Reason) {
	t := m.Jobs[k]
	if t == nil {
		t = m.Add(k)
	}
	t.Observed, t.Refused = isolatedObserved(job), why
}
