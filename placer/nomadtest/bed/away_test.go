// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// mayBeAway lets a job's members stay on a disconnected node for this time.
func mayBeAway(lostAfter time.Duration) func(*api.Job) {
	return func(j *api.Job) { j.TaskGroups[0].Disconnect = &api.DisconnectStrategy{LostAfter: &lostAfter} }
}

// unknown reports whether n members of a job are on disconnected nodes.
func (w *World) unknown(name string, members int) bool {
	n := 0
	for _, m := range w.Nomad.Members(Key(name)) {
		if m.Client == api.AllocClientStatusUnknown {
			n++
		}
	}
	return n == members
}

// The node does not come back in time. The whole gang starts again elsewhere, and members that
// still run on the old node are ended when it is back.
func TestAwayTooLong(t *testing.T) {
	for _, service := range []bool{false, true} {
		Run(t, Options{Seed: 1}, func(w *World) {
			w.AddNodes(3, 2)
			w.StartPlacer()
			w.Submit(Gang{Name: "a", Members: 2, GPUs: 2, Service: service, Reschedules: 3, Change: mayBeAway(time.Minute)})
			w.ExpectRunning("a", 5*time.Second)
			w.RunFor(time.Minute)
			node := w.Members(Key("a"))[0].Node
			w.Nomad.CutNode(node)
			w.Expect("a member is unknown", 10*time.Second, func() bool { return w.unknown("a", 1) })
			w.Expect("it runs without that node", 3*time.Minute, func() bool {
				for _, m := range w.Members(Key("a")) {
					if m.Node == node {
						return false
					}
				}
				return w.Running(Key("a"))
			})
			w.Nomad.RecoverNode(node)
			w.Submit(Gang{Name: "b", Members: 1, GPUs: 2, Runs: time.Minute})
			w.ExpectFinished("b", 5*time.Minute)
		})
	}
}

// A gang with a member on a disconnected node is preempted by another gang, which does not wait for
// that member. When it is its turn, the gang starts again on other nodes. Its old member is stopped
// when the node is back.
func TestPreemptedWhileAway(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.Preempt = true }}, func(w *World) {
		w.AddNodes(3, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, GPUs: 2, Priority: 30, Reschedules: 3, Meta: map[string]string{"pal_preempt": "true"}, Change: mayBeAway(time.Hour)})
		w.ExpectRunning("a", 5*time.Second)
		w.RunFor(time.Minute)
		node := w.Members(Key("a"))[0].Node
		w.Nomad.CutNode(node)
		w.Expect("a member is unknown", 10*time.Second, func() bool { return w.unknown("a", 1) })
		w.Submit(Gang{Name: "b", Members: 2, GPUs: 2, Priority: 90, Runs: 3 * time.Minute, Meta: map[string]string{"pal_duration": "3m"}})
		w.ExpectRunning("b", 10*time.Minute)
		w.ExpectFinished("b", 5*time.Minute)
		w.Expect("it runs without that node", 3*time.Minute, func() bool {
			for _, m := range w.Members(Key("a")) {
				if m.Node == node {
					return false
				}
			}
			return w.Running(Key("a"))
		})
		w.Nomad.RecoverNode(node)
		w.Submit(Gang{Name: "c", Members: 1, GPUs: 2, Priority: 20, Runs: time.Minute})
		w.ExpectFinished("c", 5*time.Minute)
	})
}

// A gang's member fails while its node is disconnected. Nomad replaces it as soon as it learns of
// the failure, whatever the reschedule block says. If the replacement fails, too, the placer
// retries the gang as often as usual.
func TestFailsWhileAway(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(3, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, GPUs: 2, Runs: 2 * time.Minute, Exit: 1, OneExit: true, Change: mayBeAway(time.Hour)})
		w.ExpectRunning("a", 5*time.Second)
		node := w.Members(Key("a"))[0].Node
		w.Nomad.CutNode(node)
		w.Expect("a member is unknown", 10*time.Second, func() bool { return w.unknown("a", 1) })
		w.RunFor(5 * time.Minute)
		w.Nomad.RecoverNode(node)
		w.Expect("it is given up", 20*time.Minute, func() bool { return *w.Nomad.Job(Key("a")).Status == "pending" && len(w.Members(Key("a"))) == 0 })
		w.RunFor(10 * time.Minute)
		if n := len(w.Nomad.Members(Key("a"))); n != 7 { // two members and one replacement, then two tries
			t.Errorf("%d members:\n%s", n, w.Describe())
		}
	})
}

// A gang's node goes down, and the gang starts elsewhere. Then it turns out that its members on
// that node had ended by themselves. Nomad does not undo the restart, and neither does a placer,
// even one that starts then.
func TestLostAndOver(t *testing.T) {
	for name, exit := range map[string]int{"well": 0, "badly": 3} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(3, 2)
				p := w.StartPlacer()
				w.Submit(Gang{Name: "a", GPUs: 2, Runs: 5 * time.Minute, Exit: exit})
				w.ExpectRunning("a", 5*time.Second)
				node := w.Members(Key("a"))[0].Node
				w.RunFor(4 * time.Minute)
				w.Nomad.CutNode(node)
				w.Expect("it runs elsewhere", 30*time.Second, func() bool {
					return w.Running(Key("a")) && !slices.ContainsFunc(w.Members(Key("a")), func(m nomadtest.Member) bool { return m.Node == node })
				})
				had, version := w.GPUs(Key("a")), *w.Nomad.Job(Key("a")).Version
				w.RunFor(time.Minute)
				p.Stop()
				w.Nomad.RecoverNode(node)
				w.Expect("its client has reported it", 10*time.Second, func() bool {
					return !slices.ContainsFunc(w.Nomad.Members(Key("a")), func(m nomadtest.Member) bool { return m.Client == api.AllocClientStatusLost })
				})
				w.StartPlacer()
				w.RunFor(time.Minute)
				w.ExpectRunning("a", 0)
				if got := w.GPUs(Key("a")); !slices.Equal(got, had) || *w.Nomad.Job(Key("a")).Version != version {
					t.Errorf("it had %v, and has %v:\n%s", had, got, w.Describe())
				}
				if n := w.failures("a"); n != 0 {
					t.Errorf("it counts as failed %d times", n)
				}
			})
		})
	}
}

// An operator purges a node that still works. It is back at once, but its client has ended its
// allocations before Nomad evaluated their jobs. Nomad then considers a service dead although its
// author has not stopped it.
func TestServiceOnPurgedNode(t *testing.T) {
	cutShort := 0
	for seed := range uint64(10) {
		Run(t, Options{Seed: seed}, func(w *World) {
			w.AddNodes(2, 2)
			w.StartPlacer()
			w.Submit(Gang{Name: "a", GPUs: 2, Service: true})
			w.ExpectRunning("a", 5*time.Second)
			w.RunFor(time.Minute)
			w.Nomad.ForgetNode(w.Members(Key("a"))[0].Node, 10*time.Millisecond, 100*time.Millisecond)
			w.RunFor(2 * time.Second)
			if slices.ContainsFunc(w.Nomad.Members(Key("a")), func(m nomadtest.Member) bool {
				return m.Client == api.AllocClientStatusComplete && m.Desired == api.AllocDesiredStatusRun
			}) {
				cutShort++
			}
			w.ExpectRunning("a", 2*time.Minute)
			w.RunFor(time.Minute)
			w.ExpectRunning("a", 0)
		})
	}
	if cutShort == 0 {
		t.Error("in no seed was its member ended")
	}
}
