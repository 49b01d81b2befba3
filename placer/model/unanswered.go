// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// unanswered is a registration by the placer that Nomad has not answered and may still write. Nomad
// compares the index in one step, and writes the job in a later step. So a late write can overwrite
// a newer job.
type unanswered struct {
	over    uint64      // the JobModifyIndex of the job that the registration was to replace
	version uint64      // the number of that version of the job
	created uint64      // the CreateIndex of that job; 0 if it had none
	spec    string      // [gang.SpecText] of the job that was sent
	start   *gang.Start // nil if the registration starts nothing
	gpus    []string    // the GPUs that the start uses
	until   time.Time   // after this time, Nomad no longer writes the registration
}

// UnansweredFor is the time after which Nomad's servers drop a request. Nomad cannot write an
// unanswered registration after this time. Until then, the model reserves the GPUs of the
// registration.
const UnansweredFor = time.Minute

// NoteUnanswered records that Nomad has not answered the registration of a job (sent) that replaces
// a version of it (was). NoteUnanswered skips registrations without pins, because such
// registrations look like the author's own.
func (m *Model) NoteUnanswered(sent, was *api.Job, start *gang.Start) {
	_, pinned := rewrite.Pinned(sent)
	if !pinned || was == nil {
		return
	}
	u := unanswered{over: *was.JobModifyIndex, version: *was.Version, spec: gang.SpecText(sent), start: start, until: m.Time.Add(UnansweredFor)}
	if was.CreateIndex != nil {
		u.created = *was.CreateIndex
	}
	if start != nil {
		u.gpus = GPUIDs(m.View, start.Placement.GPUs())
	}
	k := cluster.KeyOf(sent)
	m.unanswered[k] = append(m.unanswered[k], u)
}

// WroteLate reports whether Nomad wrote an unanswered registration over a change that the author made
// after the registration was sent. Such a job looks as it was sent, but skipped a version number. If
// the author purged the job in between, it was recreated: it is new to Nomad.
func (m *Model) WroteLate(job *api.Job) (overwrote, recreated bool) {
	us := m.unanswered[cluster.KeyOf(job)]
	if len(us) == 0 {
		return false, false
	}
	spec := gang.SpecText(job)
	for _, u := range us {
		if u.spec != spec {
			continue
		}
		if job.CreateIndex != nil && u.created != 0 && u.created < *job.CreateIndex {
			return true, true
		}
		overwrote = overwrote || *job.Version > u.version+1
	}
	return overwrote, false
}

// Unanswered returns the unanswered starts that would replace this version of a job (see
// [gang.Book]).
func (m *Model) Unanswered(version *api.Job) (starts []gang.Start) {
	for _, u := range m.unanswered[cluster.KeyOf(version)] {
		if u.start != nil && u.over == *version.JobModifyIndex {
			starts = append(starts, *u.start)
		}
	}
	return starts
}

// forgetUnanswered forgets unanswered registrations that Nomad can no longer write. Even if the job
// looks unchanged, Nomad may have written a registration and may not have shown the result yet. So
// forgetUnanswered keeps the registration until the next full read.
func (m *Model) forgetUnanswered(now time.Time) {
	for k, us := range m.unanswered {
		us = slices.DeleteFunc(slices.Clone(us), func(u unanswered) bool {
			until := u.until
			job := m.State.Jobs[k]
			if job != nil && *job.JobModifyIndex == u.over {
				until = until.Add(m.Cfg.Resync)
			}
			return !now.Before(until)
		})
		m.unanswered[k] = us
		if len(us) == 0 {
			delete(m.unanswered, k)
		}
	}
}

// ReservedGPUs returns, for each job, the GPUs that a decision or an unanswered start reserves.
// Allocations or pins may also hold some of the reserved GPUs.
func (m *Model) ReservedGPUs(now time.Time) map[cluster.JobKey][]string {
	reserved := map[cluster.JobKey][]string{}
	for _, t := range m.Sorted() {
		if len(t.Reserved) > 0 {
			reserved[t.Key] = t.Reserved
		}
	}
	for k, us := range m.unanswered {
		if len(reserved[k]) > 0 {
			continue
		}
		for _, u := range us {
			job := m.State.Jobs[k]
			if len(u.gpus) > 0 && now.Before(u.until) && (job == nil || *job.JobModifyIndex == u.over) {
				reserved[k] = append(reserved[k], u.gpus...)
			}
		}
	}
	return reserved
}
