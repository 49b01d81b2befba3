// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// A gang has stopped to move, and all its members may have succeeded by then. It does not start
// before that is known. The queue learns that it has stopped, and its GPUs are free.
func TestGangRefusesItsStart(t *testing.T) {
	now := time.Now()
	p := newPlacer(t)
	s, first, committed := firstStarts(t, p, now)
	id := first.Key.String()
	to, ok := placementOf(p, id)
	if !ok {
		t.Fatal("the queue does not know it as running")
	}
	seen := *committed // as Nomad shows it
	first.Job = &seen
	for i := range 2 {
		s.PutAlloc(&cluster.Alloc{
			ID: fmt.Sprint("done-", i), Job: first.Key, Group: *committed.TaskGroups[0].Name, Name: fmt.Sprintf("%s.g[%d]", first.Key.ID, i), Client: api.AllocClientStatusComplete, Desired: api.AllocDesiredStatusRun,
			Version: new(uint64), CreateIndex: 900, ModifyIndex: 5000, Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{{Type: api.TaskTerminated}}}},
		})
	}
	first.Nomad, first.Target = palapi.Waiting, &to
	p.ready = []arrival{{Tracked: first, why: gang.Moved}}
	starts := p.arrived(now)
	if len(starts) != 1 {
		t.Fatalf("%d starts", len(starts))
	}
	p.commitAll(t.Context(), starts)
	p.committed(t.Context(), starts[0], now)
	if _, runs := placementOf(p, id); runs || first.Placed || first.Tries > 0 {
		t.Errorf("in the queue it runs: %t, placed: %t, tries: %d (%s)", runs, first.Placed, first.Tries, first.Trouble().String())
	}
	for _, u := range to.GPUs() {
		if !p.m.View.Cluster.Available(u) {
			t.Errorf("GPU %s is taken", p.m.View.Cluster.GPU(u).ID)
		}
	}
}

// placementOf is the placement of a running gang, according to the queue.
func placementOf(p *Placer, id string) (pal.Placement, bool) {
	for job, pl := range p.m.Queue.Running() {
		if job == id {
			return pl, true
		}
	}
	return pal.Placement{}, false
}
