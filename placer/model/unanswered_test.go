// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Registrations that fail for hours do not pile up while the job stays unchanged. Each is
// remembered until a full read has shown whether Nomad wrote it.
func TestUnansweredDoNotPileUp(t *testing.T) {
	m, err := New(DefaultConfig(), time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	m.State = cluster.NewState()
	job := clustertest.SmallJob("j", 1, true)
	m.State.PutJob(job)
	sent, err := rewrite.Pin(job, rewrite.Pins{Mode: rewrite.ModePrefer, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}}}}, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	k := cluster.KeyOf(job)
	m.NoteUnanswered(sent, job, nil)
	if m.forgetUnanswered(m.Time.Add(UnansweredFor)); len(m.unanswered[k]) != 1 {
		t.Error("forgotten before the next full read")
	}
	for range 100 {
		m.Time = m.Time.Add(5 * time.Minute)
		m.NoteUnanswered(sent, job, nil)
		m.forgetUnanswered(m.Time)
	}
	if n := len(m.unanswered[k]); n == 0 || n > 2 {
		t.Errorf("%d are remembered", n)
	}
}

// A registration that Nomad writes late, over a change by the author, is recognized by the gap in the
// versions, or because the job is new.
func TestWroteLate(t *testing.T) {
	m, err := New(DefaultConfig(), time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	version := func(job *api.Job, version, created uint64) *api.Job {
		out := *job
		out.Version, out.CreateIndex = &version, &created
		return &out
	}
	was := version(clustertest.SmallJob("j", 1, true), 4, 10)
	pin := func(node string) *api.Job {
		sent, err := rewrite.Pin(was, rewrite.Pins{Mode: rewrite.ModePrefer, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{node}}}}, rewrite.Racks{})
		if err != nil {
			t.Fatal(err)
		}
		return sent
	}
	m.NoteUnanswered(pin("n"), was, nil)
	for name, c := range map[string]struct {
		job                  *api.Job
		overwrote, recreated bool
	}{
		"written over the version that was read": {version(pin("n"), 5, 10), false, false},
		"written over an edit":                   {version(pin("n"), 6, 10), true, false},
		"written after a purge":                  {version(pin("n"), 0, 20), true, true},
		"an edit":                                {version(was, 6, 10), false, false},
		"another start":                          {version(pin("m"), 6, 10), false, false},
	} {
		if overwrote, recreated := m.WroteLate(c.job); overwrote != c.overwrote || recreated != c.recreated {
			t.Errorf("%s: %v, %v", name, overwrote, recreated)
		}
	}
}
