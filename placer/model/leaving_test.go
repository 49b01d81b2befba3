// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

func TestDrained(t *testing.T) {
	now := time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		deadline time.Duration
		by       time.Time
		service  bool
		pinned   bool // to GPUs
		want     string
	}{
		{time.Minute, now.Add(time.Minute), false, false, "Nomad stops the members on that node at 2026-11-23 07:01:00 UTC unless they end earlier"},
		{time.Minute, now.Add(-time.Second), false, false, "Nomad stops the members on that node now"},
		{-1, time.Time{}, false, false, "Nomad stops the members on that node now"},
		{0, time.Time{}, false, false, "the members on that node run to their end, because the drain has no deadline"},
		{time.Minute, now.Add(time.Minute), true, false, "Nomad moves the members on that node to other nodes, by 2026-11-23 07:01:00 UTC at the latest"},
		{0, time.Time{}, true, false, "Nomad moves the members on that node to other nodes"},
		{time.Minute, now.Add(time.Minute), true, true, "the job is pinned to GPUs (pal_pin), so Nomad does not move the members on that node, but stops them at 2026-11-23 07:01:00 UTC; to get other GPUs for the job, stop it and run it again"},
		{0, time.Time{}, true, true, "the job is pinned to GPUs (pal_pin), so the members on that node are not moved, but keep running; to get other GPUs for the job, stop it and run it again"},
		{-1, time.Time{}, true, true, "Nomad stops the members on that node now"},
	} {
		n := &api.Node{Name: "n", Drain: true, DrainStrategy: &api.DrainStrategy{DrainSpec: api.DrainSpec{Deadline: c.deadline}, ForceDeadline: c.by}}
		if got := drained(n, c.service, c.pinned, now); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// The member's last change is the disconnection of its node.
func TestDisconnected(t *testing.T) {
	at := time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)
	a := &cluster.Alloc{Group: "g", ModifyTime: at.UnixNano()}
	job := &api.Job{TaskGroups: []*api.TaskGroup{{Name: new("g")}}}
	const touch = "the members on that node count as running"
	if got := disconnected(a, job); got != touch {
		t.Error(got)
	}
	const until = touch + " until about 2026-11-23 07:30:00 UTC (lost_after), and keep running if the node reconnects by that time"
	job.TaskGroups[0].Disconnect = &api.DisconnectStrategy{LostAfter: new(30 * time.Minute)}
	if got := disconnected(a, job); got != until {
		t.Error(got)
	}
}
