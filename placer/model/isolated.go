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

// IsolatedJob is a job that broke the placer.
type IsolatedJob struct {
	index uint64 // JobModifyIndex of the job as it did
	until time.Time
	times int
	why   reason.Reason
}

// IsolateFor is how long a job is left alone, changed or not, that broke the placer
// twice; it doubles each time, up to isolateMost.
const (
	IsolateFor  = 10 * time.Second
	isolateMost = time.Hour
)

// BeginJob notes which job is being worked on.
func (m *Model) BeginJob(k cluster.JobKey) { m.working = k }

// EndJob notes that none is.
func (m *Model) EndJob() { m.working = cluster.JobKey{} }

// IsolateJob leaves a job alone that broke the placer.
func (m *Model) IsolateJob(k cluster.JobKey, panicked any, now time.Time) {
	a := m.IsolatedJobs[k]
	a.times++
	a.why = reason.Reason{Kind: reason.PlacerFault, Cause: fmt.Sprint(panicked)}
	if job := m.State.Jobs[k]; job != nil {
		a.index = *job.JobModifyIndex
	}
	if a.times > 1 {
		a.until = now.Add(min(IsolateFor<<min(a.times-2, 20), isolateMost))
	}
	m.IsolatedJobs[k] = a
}

// JobAtFault is the job that was being worked on; ok is false where none was.
func (m *Model) JobAtFault() (k cluster.JobKey, ok bool) {
	k = m.working
	if k == (cluster.JobKey{}) {
		k = KeyOf(m.Queue.Trying())
	}
	return k, k != cluster.JobKey{}
}

// Isolated is why a job is left alone; ok is false where it is not.
func (m *Model) Isolated(job *api.Job, now time.Time) (why reason.Reason, ok bool) {
	a, ok := m.IsolatedJobs[cluster.KeyOf(job)]
	if !ok || a.index != *job.JobModifyIndex && !now.Before(a.until) {
		return reason.Reason{}, false
	}
	return a.why, true
}

// IsolatePanics does something that changes nothing but the queue's and the view's
// what-ifs, and reports whether it came to its end. If a job breaks it, that job is left
// alone, and IsolatePanics is to be called again. A panic of unknown cause goes on.
func (m *Model) IsolatePanics(do func()) (done bool) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		k, ok := m.JobAtFault()
		job := m.State.Jobs[k]
		if _, again := m.IsolatedJobs[k]; !ok || job == nil || again {
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

// TrackIsolated keeps a job in sight that is left alone.
func (m *Model) TrackIsolated(k cluster.JobKey, job *api.Job, why reason.Reason) {
	t := m.Jobs[k]
	if t == nil {
		t = m.Add(k)
	}
	t.Observed, t.Refused = isolatedObserved(job), why
}
