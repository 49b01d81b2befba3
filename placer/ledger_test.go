// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Wrong books are told from right ones. Of the node's 8 GPUs job busy0 holds the first 4.
func TestLedger(t *testing.T) {
	at := func(gpus ...int) pal.Placement {
		return pal.Placement{Penalty: 1, PMScore: 1, Members: []pal.Member{{GPUs: gpus}}}
	}
	for _, c := range []struct {
		name string
		cook func(t *testing.T, p *Placer)
		want []string
	}{
		{"right", func(t *testing.T, p *Placer) { believe(t, p, "busy0", at(0, 1, 2, 3)) }, nil},
		{"a GPU that nobody holds", func(t *testing.T, p *Placer) { believe(t, p, "busy0", at(3, 4)) },
			[]string{"busy0, which is not tracked, to run on GPU GPU-00000-4, which the view holds for nobody"}},
		{"a GPU that somebody else holds", func(t *testing.T, p *Placer) { believe(t, p, "other", at(0)) },
			[]string{"other, which is not tracked, to run on GPU GPU-00000-0, which the view holds for default/busy0"}},
		{"a GPU of two", func(t *testing.T, p *Placer) {
			believe(t, p, "busy0", at(2, 3))
			believe(t, p, "again", at(3))
		}, []string{"to run on GPU GPU-00000-3, and default/", "which is not tracked, to run on GPU GPU-00000-3, which the view holds for default/busy0"}},
		{"a GPU that counts as free", func(t *testing.T, p *Placer) { p.view.Cluster.SetTaken(2, false) },
			[]string{"GPU-00000-2 is held for default/busy0, and counts as free"}},
		{"on its way to other GPUs", func(t *testing.T, p *Placer) {
			believe(t, p, "moved", at(5))
			p.moves = append(p.moves, put(p, "moved", gang.Waiting))
		}, nil},
		{"given away while it is being stopped", func(t *testing.T, p *Placer) {
			believe(t, p, "stopped", at(0))
			put(p, "stopped", gang.Stopping)
		}, nil},
		{"given away while it runs", func(t *testing.T, p *Placer) {
			believe(t, p, "runs", at(0))
			put(p, "runs", gang.Running)
		}, []string{"runs, which is running, to run on GPU GPU-00000-0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlacer(t)
			s, prof, err := benchState(1, 0)
			if err != nil {
				t.Fatal(err)
			}
			p.state, p.profile = s, prof
			if err := p.look(time.Now()); err != nil {
				t.Fatal(err)
			}
			c.cook(t, p)
			got := ""
			if err := p.checkLedger(); err != nil {
				got = err.Error()
			}
			if (got != "") != (c.want != nil) {
				t.Fatalf("it says %q", got)
			}
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("it says %q, want %q", got, w)
				}
			}
		})
	}
}

// A placer at work looks now and then whether its queue agrees with its ledger, and tells
// it anew where it does not.
func TestLedgerIsBalanced(t *testing.T) {
	p := newPlacer(t)
	s, prof, err := benchState(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.state, p.profile = s, prof
	now := time.Now()
	if err := p.look(now); err != nil {
		t.Fatal(err)
	}
	balance := func(at time.Time) int {
		t.Helper()
		if err := p.balance(at); err != nil {
			t.Fatal(err)
		}
		n := 0
		for range p.queue.Running() {
			n++
		}
		return n
	}
	balance(now)
	believe(t, p, "nobody", pal.Placement{Penalty: 1, PMScore: 1, Members: []pal.Member{{GPUs: []int{0}}}})
	p.view.Cluster.SetTaken(2, false)
	if n := balance(now.Add(ledgerEvery / 2)); n != 1 {
		t.Errorf("looked at once: the queue has %d running gangs", n)
	}
	if n := balance(now.Add(ledgerEvery)); n != 0 || p.view.Cluster.Available(2) {
		t.Errorf("the queue has %d running gangs, GPU 2 counts as free: %t", n, p.view.Cluster.Available(2))
	}
	if err := p.checkLedger(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// believe has the queue believe that a job runs there.
func believe(t *testing.T, p *Placer, job string, at pal.Placement) {
	t.Helper()
	g := pal.Gang{ID: job, Class: pal.ClassB, MemberSets: []pal.MemberSet{{Members: 1, GPUs: len(at.GPUs())}}}
	if err := p.queue.Restore(queue.Job{ID: "default/" + job, Tenant: "default", Gang: g}, at, 0); err != nil {
		t.Fatal(err)
	}
}

// put has the placer track a job in a state.
func put(p *Placer, job string, state gang.State) *tracked {
	t := p.add(nomad.JobKey{Namespace: "default", ID: job})
	t.Nomad = state
	return t
}
