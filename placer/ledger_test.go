// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"slices"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

var busy0 = cluster.JobKey{Namespace: "default", ID: "busy0"}

// ledgerPlacer is a placer whose queue has job busy0 on these GPUs; the job holds the first 4 of
// the node's 8 GPUs.
func ledgerPlacer(t *testing.T, on ...int) *Placer {
	t.Helper()
	p := newPlacer(t)
	s, prof, err := benchState(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.m.State, p.m.Profile, p.m.Time = s, prof, time.Now()
	if err := p.m.UpdateView(p.m.Time); err != nil {
		t.Fatal(err)
	}
	k := p.m.Add(busy0)
	k.Nomad, k.Queued, k.Placed, k.Idle = palapi.Running, true, true, true
	k.Request.Gang = pal.Gang{ID: "busy0", Class: pal.ClassB, MemberSets: []pal.MemberSet{{Name: "g", Members: 1, GPUs: len(on)}}}
	k.Job = benchJob("busy0", 1)
	k.Request.Key, k.Request.Job = busy0, k.Job
	at := pal.Placement{Penalty: 1, PMScore: 1, Members: []pal.Member{{GPUs: on}}}
	if err := p.m.Queue.Restore(queue.Job{ID: busy0.String(), Tenant: "default", Gang: k.Request.Gang}, at, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// The queue gets its placements from the view, whatever the gangs report: for a quiet gang, for one
// that is being stopped, and for one that has stopped to move.
func TestQueueFollowsLedger(t *testing.T) {
	for _, state := range []palapi.State{palapi.Running, palapi.Stopping, palapi.Waiting} {
		t.Run(string(state), func(t *testing.T) {
			p := ledgerPlacer(t, 0, 1, 2, 3)
			k := p.m.Jobs[busy0]
			k.Nomad = state
			p.m.View.TakeShifted() // a new view reports all jobs as shifted
			a := *p.m.State.AllocsOf(busy0)[0]
			a.GPUs = a.GPUs[1:]
			p.m.State.PutAlloc(&a)
			if err := p.m.UpdateView(p.m.Time); err != nil {
				t.Fatal(err)
			}
			p.syncQueue(t.Context())
			if at, _ := placementOf(p, busy0.String()); !slices.Equal(at.GPUs(), []int{1, 2, 3}) {
				t.Errorf("the queue has it on %v", at.GPUs())
			}
		})
	}
}
