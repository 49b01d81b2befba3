// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A node that is back may still run what was lost with it, until its client
// reports or some seconds have passed since it was seen, whatever the servers' clock
// says.
func TestReconnecting(t *testing.T) {
	lost := &Alloc{ID: "a", Job: JobKey{"default", "j"}, Node: "id-0", Client: "lost", Desired: "stop", GPUs: []string{"n0-1"}}
	reported, ended, elsewhere := *lost, *lost, *lost
	reported.Client, ended.Client, elsewhere.Node = "running", "complete", "id-1"
	for _, c := range []struct {
		name   string
		status string
		alloc  *Alloc
		server time.Duration // its clock, ahead of ours
		after  time.Duration
		want   bool
	}{
		{"just back", "ready", lost, 0, 2 * time.Second, true},
		{"the server's clock is ahead", "ready", lost, time.Hour, 2 * time.Second, true},
		{"the server's clock is behind", "ready", lost, -time.Hour, 2 * time.Second, true},
		{"back for long", "ready", lost, 0, 30 * time.Second, false},
		{"back for long, the server's clock is ahead", "ready", lost, time.Hour, 30 * time.Second, false},
		{"still down", "down", lost, 0, 2 * time.Second, false},
		{"the client says that it runs", "ready", &reported, 0, 2 * time.Second, false}, // and holds its GPUs as any other
		{"the client says that it ended", "ready", &ended, 0, 2 * time.Second, false},
		{"of another node", "ready", &elsewhere, 0, 2 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, now := world(2), time.Unix(1000, 0)
			down := *s.Nodes["id-0"]
			down.Status, down.ModifyIndex = api.NodeStatusDown, 2
			s.putNode(&down)
			s.Reconnecting(now)
			back := down
			back.Status, back.ModifyIndex, back.StatusUpdatedAt = c.status, 3, now.Add(c.server).Unix()
			s.putNode(&back)
			s.PutAlloc(c.alloc)
			s.Reconnecting(now)
			if got := s.Reconnecting(now.Add(c.after))["n0-1"]; got != c.want {
				t.Errorf("GPU is returning: %v, want %v", got, c.want)
			}
		})
	}
}

// Who has just begun to read does not know since when a node is back, and counts
// from then.
func TestReconnectingWhenReadAnew(t *testing.T) {
	for _, ago := range []time.Duration{time.Second, time.Minute} {
		s, now := world(1), time.Unix(1000, 0)
		n := *s.Nodes["id-0"]
		n.StatusUpdatedAt = now.Add(-ago).Unix()
		s.readNode(&n, NewState())
		s.PutAlloc(&Alloc{ID: "a", Job: JobKey{"default", "j"}, Node: "id-0", Client: "lost", Desired: "stop", GPUs: []string{"n0-1"}})
		if !s.Reconnecting(now)["n0-1"] {
			t.Errorf("back for %v: its GPU is free at once", ago)
		}
	}
}

// An allocation is lost on a node of which is not known yet that it went down: its GPU is
// not free.
func TestLostBeforeItsNode(t *testing.T) {
	live := &Alloc{ID: "a", Job: JobKey{"default", "j"}, Node: "id-0", Client: "running", Desired: "run", GPUs: []string{"n0-1"}, ModifyIndex: 5}
	lost := *live
	lost.Client, lost.Desired, lost.ModifyIndex = "lost", "stop", 6
	known := func() *State {
		s := world(1)
		clear(s.back) // it is there for long
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
	before := func() *State { // it was lost in the last read, too
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
		if s.Reconnecting(now.Add(reconnectWithin))["n0-1"] {
			t.Errorf("%s: it is so forever", name)
		}
	}
}

// A gang does not get such a GPU.
func TestReconnectingGPUIsNotChosen(t *testing.T) {
	s := world(1)
	s.noteBack(nil, s.Nodes["id-0"])
	s.PutAlloc(&Alloc{ID: "a", Job: JobKey{"default", "j"}, Node: "id-0", Client: api.AllocClientStatusLost, GPUs: []string{"n0-1"}})
	v, err := s.View(ViewOptions{Locality: pal.TwoTier(1.7), Unavailable: s.Unavailable(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	var free []string
	for i := range v.Cluster.NumGPUs() {
		if v.Cluster.Available(i) {
			free = append(free, v.Cluster.GPU(i).ID)
		}
	}
	slices.Sort(free)
	if !slices.Equal(free, []string{"n0-0", "n0-2", "n0-3"}) {
		t.Errorf("free: %v", free)
	}
}

// What was decided while a node was there must not be begun while it is away:
// its GPUs are not to be had, whatever a decision knows of who may go there.
func TestGPUsOfNodesThatAreAway(t *testing.T) {
	for name, away := range map[string]func(n *api.Node){
		"down":       func(n *api.Node) { n.Status = api.NodeStatusDown },
		"draining":   func(n *api.Node) { n.Drain = true },
		"ineligible": func(n *api.Node) { n.SchedulingEligibility = api.NodeSchedulingIneligible },
	} {
		s := world(2)
		there := s.Nodes["id-0"]
		v := view(t, s)
		change := func(n *api.Node) {
			s.putNode(n)
			if !v.Update(s, options()) {
				t.Fatalf("%s: a new view is asked for", name)
			}
		}
		gone := *there
		gone.ModifyIndex++
		away(&gone)
		change(&gone)
		if v.Cluster.Available(v.Cluster.Find("n0-0")) || !v.Cluster.Available(v.Cluster.Find("n1-0")) {
			t.Errorf("%s: its GPUs are to be had, or the other node's are not", name)
		}
		if v := view(t, s); v.Cluster.Available(v.Cluster.Find("n0-0")) {
			t.Errorf("%s: its GPUs are to be had in a new view", name)
		}
		back := *there
		back.ModifyIndex += 2
		change(&back)
		if !v.Cluster.Available(v.Cluster.Find("n0-0")) {
			t.Errorf("%s: its GPUs are not to be had when it is back", name)
		}
	}
}

// A member whose node has lost touch with Nomad holds its GPU until its gang is being stopped,
// or goes elsewhere. From then on it is nobody's, also when the node is back and has not said
// yet what it runs.
func TestLeftBehind(t *testing.T) {
	for _, c := range []struct {
		name   string
		gated  bool
		gpus   []string // of the pins
		client string
		want   bool
	}{
		{"its gang runs on", false, []string{"n0-1", "n1-1"}, "unknown", false},
		{"its gang is stopped", true, []string{"n0-1", "n1-1"}, "unknown", true},
		{"its gang was started elsewhere", false, []string{"n1-0", "n1-1"}, "unknown", true},
		{"it says that it runs", true, []string{"n0-1", "n1-1"}, "running", false},
	} {
		s := world(2)
		job := pinnedTo(t, s, "j", 2, 1, 10, []string{"id-0", "id-1"}, c.gpus...)
		if c.gated {
			s.PutJob(rewrite.Gate(job))
		}
		s.PutAlloc(alloc("a", JobKey{"default", "j"}, 0, c.client, 5, "n0-1"))
		v := view(t, s)
		held := slices.Contains(v.Holds(JobKey{"default", "j"}), v.Cluster.Find("n0-1"))
		if got := s.Unavailable(time.Unix(1000, 0))["n0-1"] != ""; got != c.want || held == c.want {
			t.Errorf("%s: unavailable %v, held %v; want %v, %v", c.name, got, held, c.want, !c.want)
		}
	}
}
