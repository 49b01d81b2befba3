// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

var busy0 = cluster.JobKey{Namespace: "default", ID: "busy0"}

// ledgerPlacer is one whose queue believes that job busy0, which holds the first 4 of the
// node's 8 GPUs, runs on those.
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
	k.Nomad, k.Queued, k.Placed, k.Idle = gang.Running, true, true, true
	k.Request.Gang = pal.Gang{ID: "busy0", Class: pal.ClassB, MemberSets: []pal.MemberSet{{Name: "g", Members: 1, GPUs: len(on)}}}
	k.Job = benchJob("busy0", 1)
	k.Request.Key, k.Request.Job = busy0, k.Job
	at := pal.Placement{Penalty: 1, PMScore: 1, Members: []pal.Member{{GPUs: on}}}
	if err := p.m.Queue.Restore(queue.Job{ID: busy0.String(), Tenant: "default", Gang: k.Request.Gang}, at, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// Wrong books are told from right ones.
func TestLedger(t *testing.T) {
	for _, c := range []struct {
		name string
		on   []int
		cook func(p *Placer)
		want string
	}{
		{"right", []int{0, 1, 2, 3}, nil, ""},
		{"a GPU that nobody holds", []int{0, 1, 2, 3, 4}, nil, "the queue has default/busy0 on GPUs [GPU-00000-0 GPU-00000-1 GPU-00000-2 GPU-00000-3 GPU-00000-4], the view on [GPU-00000-0 GPU-00000-1 GPU-00000-2 GPU-00000-3]"},
		{"a GPU that it holds is missing", []int{0, 1, 2}, nil, "the queue has default/busy0 on GPUs [GPU-00000-0 GPU-00000-1 GPU-00000-2], "},
		{"a GPU that counts as free", []int{0, 1, 2, 3}, func(p *Placer) { p.m.View.Cluster.SetTaken(2, false) }, "GPU-00000-2 is held for default/busy0, and counts as free"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := ledgerPlacer(t, c.on...)
			if c.cook != nil {
				c.cook(p)
			}
			got := ""
			if err := p.m.CheckLedger(); err != nil {
				got = err.Error()
			}
			if (got != "") != (c.want != "") || !strings.Contains(got, c.want) {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
}

// The queue has its placements from the view, whatever the gangs have to tell it: here of
// one that is quiet, of one that is being stopped, and of one that has stopped to be moved.
func TestQueueFollowsLedger(t *testing.T) {
	for _, state := range []gang.State{gang.Running, gang.Stopping, gang.Waiting} {
		t.Run(string(state), func(t *testing.T) {
			p := ledgerPlacer(t, 0, 1, 2, 3)
			k := p.m.Jobs[busy0]
			k.Nomad = state
			p.m.View.TakeShifted() // what is new in a new view
			a := *p.m.State.AllocsOf(busy0)[0]
			a.GPUs = a.GPUs[1:]
			p.m.State.PutAlloc(&a)
			if err := p.m.UpdateView(p.m.Time); err != nil {
				t.Fatal(err)
			}
			if p.m.CheckLedger() == nil {
				t.Fatal("nothing has changed")
			}
			p.syncQueue(t.Context())
			if err := p.m.CheckLedger(); err != nil {
				t.Error(err)
			}
		})
	}
}
