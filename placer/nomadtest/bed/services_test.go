// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// A gang that needs GPUs which services hold does not reserve free GPUs, because services do not
// end.
func TestServicesHoldWhatAGangNeeds(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "serve", Service: true, Members: 3, Meta: map[string]string{"pal_duration": "10m"}})
		w.ExpectRunning("serve", 10*time.Second)
		w.Submit(Gang{Name: "train", Members: 6, Runs: time.Hour})
		w.RunFor(time.Second)
		for _, name := range []string{"a", "b", "c"} {
			w.Submit(Gang{Name: name, Runs: time.Hour})
			w.ExpectRunning(name, 10*time.Second)
		}
		e := w.explained("train")
		if e.Wait == nil || e.Wait.Reason != reason.Services || !strings.Contains(e.Reason.String(), "enough GPUs come free only if") {
			t.Errorf("it waits for %+v: %s", e.Wait, e.Reason.String())
		}
		if n := len(e.Holders.Jobs); n != 4 || !e.Holders.Jobs[n-1].Service || !e.Holders.Jobs[n-1].EndFrom.IsZero() {
			t.Errorf("who holds GPUs: %+v", e.Holders.Jobs)
		}
		planned, err := w.snapshot().Plan(w.T.Context(), Gang{Name: "plan", Members: 6, Runs: time.Hour}.Job())
		if err != nil || !strings.HasPrefix(planned.Reason.String(), "needs 6 GPUs; enough GPUs come free only") {
			t.Errorf("plan: %v, %v", planned, err)
		}
		if err := w.Stop(Key("serve")); err != nil {
			t.Fatal(err)
		}
		w.ExpectGone("serve", time.Minute)
		w.Expect("it runs", 2*time.Hour, func() bool { return w.Running(Key("train")) })
	})
}

// Replicas are spread over as many nodes as possible. If a node is lost, the replicas elsewhere
// keep running, and Nomad replaces the lost ones. With pal_locality or pal_on_failure = "gang",
// replicas are placed close together.
func TestReplicasAreSpread(t *testing.T) {
	on := func(w *World) map[string]int {
		nodes := map[string]int{}
		for _, m := range w.Members(Key("serve")) {
			if m.Client == "running" && m.Desired == "run" {
				nodes[m.Node]++
			}
		}
		return nodes
	}
	for name, c := range map[string]struct {
		meta    map[string]string
		members int
		want    []int // members of each node
	}{
		"three on three nodes": {nil, 3, []int{1, 1, 1}},
		"five on three nodes":  {nil, 5, []int{1, 2, 2}},
		"near each other":      {map[string]string{"pal_locality": "node"}, 3, []int{3}},
		"they need each other": {map[string]string{"pal_on_failure": "gang"}, 3, []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(3, 4)
				w.StartPlacer()
				w.Submit(Gang{Name: "serve", Service: true, Members: c.members, Reschedules: 5, Meta: c.meta})
				w.ExpectRunning("serve", time.Minute)
				if got := slices.Sorted(maps.Values(on(w))); !slices.Equal(got, c.want) {
					t.Fatalf("members by node: %v, want %v", got, c.want)
				}
				if len(c.want) == 1 || c.meta != nil {
					return
				}
				w.Nomad.CrashNode(w.Members(Key("serve"))[0].Node)
				least := c.members
				for range 600 {
					w.RunFor(time.Second)
					n := 0
					for _, m := range on(w) {
						n += m
					}
					least = min(least, n)
				}
				w.ExpectRunning("serve", time.Minute)
				if most := slices.Max(c.want); least < c.members-most {
					t.Errorf("%d of %d ran; a node had %d", least, c.members, most)
				}
			})
		})
	}
}

// If jobs without a gate hold the GPUs that a gang needs, the cluster is not too small: the gang
// waits for GPUs.
func TestNativeJobsHoldWhatAGangNeeds(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "native", Service: true, Ungated: true, Members: 3})
		w.ExpectRunning("native", 10*time.Second)
		w.Submit(Gang{Name: "train", Members: 6, Runs: time.Hour})
		w.RunFor(5 * time.Second)
		if e := w.explained("train"); e.Wait == nil || e.Wait.Reason != reason.GPUs {
			t.Errorf("it waits for %+v: %s", e.Wait, e.Reason.String())
		}
	})
}

// The plan of a service starts at once although closer GPUs may become free, because services do
// not wait for locality.
func TestPlanOfAServiceDoesNotWait(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 2)
		w.StartPlacer()
		for _, name := range []string{"a", "b"} {
			w.Submit(Gang{Name: name, Members: 1, GPUs: 1, Runs: time.Hour, Meta: map[string]string{"pal_duration": "2m"}, Change: func(j *api.Job) {
				j.Constraints = append(j.Constraints, &api.Constraint{LTarget: "${node.unique.name}", Operand: "=", RTarget: map[string]string{"a": "node-0", "b": "node-1"}[name]})
			}})
			w.ExpectRunning(name, 10*time.Second)
		}
		for _, service := range []bool{true, false} {
			e, err := w.snapshot().Plan(w.T.Context(), Gang{Name: "plan", Members: 2, Service: service, Runs: time.Hour}.Job())
			if err != nil || strings.HasPrefix(e.Reason.String(), "would start") != service {
				t.Errorf("service %v: %v, %v", service, e.Reason.String(), err)
			}
		}
	})
}
