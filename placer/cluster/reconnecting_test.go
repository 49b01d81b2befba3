// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// A node that is back may still run the allocations that were lost with it, until its client
// reports or reconnectWithin has passed since the placer saw it, whatever the servers' clock says.
func TestReconnecting(t *testing.T) {
	lost := &Alloc{ID: "a", Job: JobKey{"default", "j"}, Node: "id-0", Client: "lost", Desired: "stop", GPUs: []string{"n0-1"}}
	reported, elsewhere := *lost, *lost
	reported.Client, elsewhere.Node = "running", "id-1"
	ended := &AllocPayload{
		ID: "a", Namespace: "default", JobID: "j", NodeID: "id-0", ClientStatus: "complete",
		DesiredStatus: "stop", DesiredDescription: lostWithNode, AllocatedResources: &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{"t": {
			Devices: []*api.AllocatedDeviceResource{{Vendor: attr.Vendor, Type: attr.Type, DeviceIDs: []string{"n0-1"}}},
		}}},
	}
	for _, c := range []struct {
		name   string
		status string
		alloc  *Alloc
		server time.Duration // how far the server's clock is ahead of ours
		after  time.Duration
		want   bool
	}{
		{"just back", "ready", lost, 0, 2 * time.Second, true},
		{"the server's clock is ahead", "ready", lost, time.Hour, 2 * time.Second, true},
		{"the server's clock is behind", "ready", lost, -time.Hour, 2 * time.Second, true},
		{"back for long", "ready", lost, 0, 30 * time.Second, false},
		{"back for long, the server's clock is ahead", "ready", lost, time.Hour, 30 * time.Second, false},
		{"still down", "down", lost, 0, 2 * time.Second, false},
		{"the client says that it runs", "ready", &reported, 0, 2 * time.Second, false}, // and holds its GPUs like any other
		{"the client says that it ended", "ready", ended.AsAlloc(), 0, 2 * time.Second, false},
		{"of another node", "ready", &elsewhere, 0, 2 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, now := world(2), time.Unix(1000, 0)
			down := *s.Nodes["id-0"]
			down.Status, down.ModifyIndex = api.NodeStatusDown, 2
			s.PutNode(&down)
			s.Elapse(now)
			back := down
			back.Status, back.ModifyIndex, back.StatusUpdatedAt = c.status, 3, now.Add(c.server).Unix()
			s.PutNode(&back)
			s.PutAlloc(c.alloc)
			s.Elapse(now)
			if got := s.Reconnecting(now.Add(c.after))["n0-1"]; got != c.want {
				t.Errorf("GPU is returning: %v, want %v", got, c.want)
			}
		})
	}
}

// A node that went down and came back between two reads is ready in both. Only the time of its
// status shows this.
func TestReconnectingUnseen(t *testing.T) {
	s, now := world(1), time.Unix(1000, 0)
	s.PutAlloc(&Alloc{ID: "a", Job: JobKey{"default", "j"}, Node: "id-0", Client: "lost", Desired: "stop", GPUs: []string{"n0-1"}})
	s.Elapse(now)
	now = now.Add(time.Hour)
	if s.Reconnecting(now)["n0-1"] {
		t.Fatal("the node has been back for an hour, and its GPU is not free")
	}
	n := *s.Nodes["id-0"]
	n.ModifyIndex, n.StatusUpdatedAt = n.ModifyIndex+2, n.StatusUpdatedAt+2
	s.readNode(&n, s)
	s.Elapse(now)
	if !s.Reconnecting(now)["n0-1"] {
		t.Error("the node was down in between, and its GPU is free at once")
	}
}

// An allocation is lost with its node, and the state does not show yet that the node is down: its
// GPU is not free.
func TestLostBeforeItsNode(t *testing.T) {
	live := &Alloc{ID: "a", Job: JobKey{"default", "j"}, Node: "id-0", Client: "running", Desired: "run", GPUs: []string{"n0-1"}, ModifyIndex: 5}
	lost := *live
	lost.Client, lost.Desired, lost.ModifyIndex = "lost", "stop", 6
	known := func() *State {
		s := world(1)
		clear(s.back) // it has been ready for long
		return s
	}
	told := func() *State {
		s := known()
		s.PutAlloc(live)
		s.PutAlloc(&lost)
		return s
	}
	read := func() *State {
		old, s := known(), known()
		old.PutAlloc(live)
		s.PutAlloc(&lost)
		s.lostAfter(old)
		return s
	}
	before := func() *State { // it was already lost at the previous read
		old, s := known(), known()
		old.PutAlloc(&lost)
		s.PutAlloc(&lost)
		s.lostAfter(old)
		return s
	}
	for name, c := range map[string]struct {
		state func() *State
		want  bool
	}{"an event told": {told, true}, "read again": {read, true}, "lost for long": {before, false}} {
		s, now := c.state(), time.Unix(1000, 0)
		if got := s.Reconnecting(now)["n0-1"]; got != c.want {
			t.Errorf("%s: GPU is returning: %v, want %v", name, got, c.want)
		}
		s.Elapse(now)
		if s.Reconnecting(now.Add(reconnectWithin))["n0-1"] {
			t.Errorf("%s: GPU is returning without end", name)
		}
	}
}
