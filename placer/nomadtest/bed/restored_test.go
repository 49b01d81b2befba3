// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// A job is held and a GPU is in quarantine when somebody saves a snapshot of Nomad. Later, an
// operator ends both, and then somebody restores the snapshot. The placer obeys the restored hold,
// as the next placer would.
func TestRestoredHold(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "full", GPUs: 4, Runs: 10 * time.Minute})
		w.ExpectRunning("full", 10*time.Second)
		w.Submit(Gang{Name: "a", GPUs: 4, Runs: time.Minute})
		w.ExpectWaiting("a", 10*time.Second)
		w.hold(p, "a", true)
		saved := w.Nomad.Variable("default", "nomad-pal/controls/default")
		w.hold(p, "a", false)
		w.RunFor(10 * time.Second)
		w.Nomad.SetVariable("default", "nomad-pal/controls/default", saved)
		w.Nomad.Restart() // a restore ends all event streams, as a new leader does
		w.RunFor(15 * time.Minute)
		if got := w.GPUs(Key("a")); len(got) > 0 {
			w.T.Errorf("a is held and has %v", got)
		}
		if e := w.explained("a"); e.Reason.Kind != reason.Held {
			w.T.Errorf("a waits: %s", e.Reason)
		}
	})
}

// hold begins or lifts a hold on a job.
func (w *World) hold(p *Placer, name string, begin bool) {
	w.T.Helper()
	_, err := p.Control(w.T.Context(), Key(name), func(of *gang.Control) {
		if of.Held = nil; begin {
			of.Held = &gang.Said{By: "ada", At: time.Now()}
		}
	})
	if err != nil {
		w.T.Fatal(err)
	}
}

// While a placer is active, somebody writes nonsense into the variables in which people's orders are
// stored. The placer still knows the orders, obeys them, and stores them again. So the next order
// deletes none of them.
func TestDamagedOrders(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "a", GPUs: 4, Runs: time.Minute})
		w.ExpectRunning("a", 10*time.Second)
		w.hold(p, "b", true)
		if err := placer.PutInQuarantine(w.T.Context(), w.client(), time.Hour, "fan", "GPU-0-3"); err != nil {
			w.T.Fatal(err)
		}
		w.Submit(Gang{Name: "b", GPUs: 1, Runs: time.Minute})
		w.Submit(Gang{Name: "c", GPUs: 4, Runs: time.Minute})
		w.RunFor(10 * time.Second)
		for _, path := range []string{"nomad-pal/controls/default", "nomad-pal/quarantine"} {
			w.Nomad.SetVariable("default", path, map[string]string{"json": `{"until": [7`})
		}
		w.RunFor(10 * time.Second)
		if q, err := store.In(w.client()).Quarantine().Read(w.T.Context()); err != nil || len(q.Of) != 1 {
			w.T.Errorf("stored quarantine: %v, %v", q.Of, err)
		}
		w.hold(p, "c", true)
		w.RunFor(10 * time.Minute)
		for _, name := range []string{"b", "c"} {
			if got := w.GPUs(Key(name)); len(got) > 0 {
				w.T.Errorf("%s is held and has %v", name, got)
			}
		}
		if is, err := store.In(w.client()).Controls().Read(w.T.Context()); err != nil || len(is) != 2 {
			w.T.Errorf("stored holds: %v, %v", is, err)
		}
	})
}

// The stored quarantine is damaged, and no placer is active. An operator can still put a GPU into
// quarantine, and lift the quarantine.
func TestDamagedQuarantineWithoutAPlacer(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		w.Nomad.SetVariable("default", "nomad-pal/quarantine", map[string]string{"json": `{"until": [7`})
		if lifted, err := placer.LiftQuarantine(w.T.Context(), w.client()); err != nil || len(lifted) > 0 {
			w.T.Errorf("lifted %v, %v", lifted, err)
		}
		if err := placer.PutInQuarantine(w.T.Context(), w.client(), time.Hour, "fan", "GPU-0-3"); err != nil {
			w.T.Fatal(err)
		}
		q, err := placer.ReadQuarantine(w.T.Context(), w.client())
		if err != nil || q["GPU-0-3"].Reason != "fan" {
			w.T.Errorf("stored: %v, %v", q, err)
		}
	})
}

// The stored profile is damaged while a placer is active. The placer stores it again with its next
// full read of Nomad, because device plugins and commands read it.
func TestDamagedProfile(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		node, raw := nomadtest.GPUNode(0, 2), "GPU-0-0 A=1;GPU-0-1 A=1.1"
		node.NodeResources.Devices[0].Attributes[attr.Raw] = &api.Attribute{StringVal: &raw}
		w.Nomad.AddNode(node)
		p := w.StartPlacer()
		stored := func() bool {
			is, err := store.In(w.client()).Profile().Read(w.T.Context())
			return err == nil && is != nil && len(is.GPUs) == 2
		}
		w.Expect("the profile is stored", time.Minute, stored)
		for path, text := range map[string]string{"nomad-pal/profile/0000": "nonsense", "nomad-pal/profile/0007": "more nonsense"} {
			w.Nomad.SetVariable("default", path, map[string]string{"data": text})
		}
		w.Expect("the profile is stored again", 10*time.Minute, stored)
		p.Stop()
	})
}
