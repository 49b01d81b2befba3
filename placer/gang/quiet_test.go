// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A running gang is quiet, unless Nomad has not answered a request about it: then the placer asks
// again, even without an event.
func TestQuiet(t *testing.T) {
	w := newFakeWorld()
	job, err := rewrite.Pin(plainJob("j", 200), somePins("g1", "g2"), rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	w.state.PutJob(job)
	for _, id := range []string{"g1", "g2"} {
		w.state.PutAlloc(&cluster.Alloc{ID: id, Name: id, Job: cluster.KeyOf(job), Group: "g", Node: "n", Client: api.AllocClientStatusRunning, Desired: api.AllocDesiredStatusRun, GPUs: []string{id}, CreateIndex: 201, ModifyIndex: 202})
	}
	g := &Lifecycle{}
	for _, e := range []Event{
		Observation{Observed: Observe(w.state, job), Request: request.Request{Job: job}}, Reconcile{},
		RecordRead{&Record{JobModifyIndex: 200, Ready: w.now}}, Sync{},
	} {
		g.Step(e, w)
	}
	if !g.Quiet(w) || g.Unsettled() {
		t.Errorf("a gang that is %s: quiet %v, unsettled %v", g.State(w), g.Quiet(w), g.Unsettled())
	}
	g.pending = ReadAllocs{}
	g.Step(Failure{Of: g.pending, Err: errors.New("500")}, w)
	if g.Quiet(w) || !g.Unsettled() {
		t.Errorf("a gang with an unanswered request: quiet %v, unsettled %v", g.Quiet(w), g.Unsettled())
	}
}

// A waiting gang is quiet, unless the queue does not know its whole request, or something becomes
// due without an event. Otherwise the placer would not do it before the next event.
func TestQuietWhileItWaits(t *testing.T) {
	for name, change := range map[string]func(*Lifecycle, *fakeWorld){
		"":                                 func(*Lifecycle, *fakeWorld) {},
		"the queue does not know it":       func(g *Lifecycle, _ *fakeWorld) { g.Queued = false },
		"the queue believes that it runs":  func(g *Lifecycle, _ *fakeWorld) { g.Placed = true },
		"its author changed it":            func(g *Lifecycle, _ *fakeWorld) { g.edited = true },
		"it cannot be served":              func(g *Lifecycle, _ *fakeWorld) { g.Refused = errors.New("a unicorn") },
		"it has stopped to go elsewhere":   func(g *Lifecycle, _ *fakeWorld) { g.Target = &pal.Placement{} },
		"it is being stopped":              func(g *Lifecycle, _ *fakeWorld) { g.stop = &stopping{} },
		"something is not known of it":     func(g *Lifecycle, _ *fakeWorld) { g.stumbled = "ReadVersions" },
		"Nomad has not answered its start": func(g *Lifecycle, w *fakeWorld) { w.noteUnanswered(g, Commit{}) },
		"its record is not read":           func(g *Lifecycle, _ *fakeWorld) { g.Pins = somePins("g1") },
		"Nomad calls it dead":              func(g *Lifecycle, _ *fakeWorld) { dead := "dead"; g.Job.Status = &dead },
		"it came after another job":        func(g *Lifecycle, _ *fakeWorld) { g.eligible = time.Unix(1000, 0) },
		"it replaced its author's change":  func(g *Lifecycle, _ *fakeWorld) { g.overwrote = true },
	} {
		g := &Lifecycle{memory: memory{known: known{Observed: Observed{Job: plainJob("j", 0), Nomad: palapi.Waiting}}, Queued: true}}
		w := newFakeWorld()
		change(g, w)
		if quiet := g.Quiet(w); quiet != (name == "") {
			t.Errorf("a gang that waits, and %s: quiet %v", name, quiet)
		}
	}
}

// A gang that was stopped to start elsewhere stays in the queue even while it backs off, because it
// counts towards limits as if it ran (walk 9003581).
func TestArrivingGangStaysInTheQueue(t *testing.T) {
	w := newFakeWorld()
	job := plainJob("j", 200)
	for _, target := range []*pal.Placement{nil, {}} {
		g := &Lifecycle{memory: memory{known: known{Observed: Observed{Key: cluster.KeyOf(job), Job: job, Nomad: palapi.Waiting}, Target: target}, Queued: true, Placed: true, RetryAt: w.now.Add(time.Minute)}}
		for _, e := range g.waitInQueue(Sync{}, w) {
			if _, left := e.(Dequeue); left && target != nil {
				t.Error("it leaves the queue")
			}
		}
		if stays := target != nil; g.Queued != stays {
			t.Errorf("target %v: in the queue: %v", target, g.Queued)
		}
	}
}

// A lost gang is unsettled until it is given up, because the placer may have to requeue it.
func TestUnsettledUntilGivenUp(t *testing.T) {
	job := plainJob("j", 300)
	for givenUp, want := range map[reason.Kind]bool{"": true, reason.GaveUp: false} {
		g := Lifecycle{memory: memory{known: known{Observed: Observed{Job: job, Nomad: palapi.Lost, Pins: somePins("g1")}, Record: &Record{JobModifyIndex: 300, GivenUp: reason.Reason{Kind: givenUp}}}}}
		if got := g.Unsettled(); got != want {
			t.Errorf("given up %q: unsettled %v", givenUp, got)
		}
	}
}
