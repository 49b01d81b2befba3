// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// unanswered is a registration of ours that Nomad did not answer, and may write yet: it compares
// the index before it writes, not while it does.
type unanswered struct {
	created uint64 // CreateIndex of the job that it was to replace
	spec    string // [gang.AuthorSpec] of what was sent
	until   time.Time
}

// NoteUnanswered takes note of a registration over what the job was. Such with neither pins nor
// another trace of ours look like their author's own, and are left out.
func (m *Model) NoteUnanswered(sent, was *api.Job) {
	if _, pinned := rewrite.Pinned(sent); !pinned || was == nil || was.CreateIndex == nil {
		return
	}
	k := cluster.KeyOf(sent)
	m.unanswered[k] = append(m.unanswered[k], unanswered{*was.CreateIndex, gang.AuthorSpec(sent), m.Time.Add(InDoubtFor)})
}

// BroughtBack reports whether a job is there because Nomad wrote such a registration after its author
// had purged the job: it is new, and has our pins.
func (m *Model) BroughtBack(job *api.Job) bool {
	k := cluster.KeyOf(job)
	if len(m.unanswered[k]) == 0 || *job.Version > 0 || job.CreateIndex == nil {
		return false
	}
	spec := gang.AuthorSpec(job)
	for _, u := range m.unanswered[k] {
		if u.created < *job.CreateIndex && u.spec == spec {
			return true
		}
	}
	return false
}

// forgetUnanswered forgets those that Nomad cannot write any more.
func (m *Model) forgetUnanswered(now time.Time) {
	for k, us := range m.unanswered {
		if last := us[len(us)-1]; !now.Before(last.until) {
			delete(m.unanswered, k)
		}
	}
}
