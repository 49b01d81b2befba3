// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"
	"time"

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
