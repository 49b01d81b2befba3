// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// beating starts a placer's heartbeat as the agent does.
func beating(w *bed.World, name string, vitals func() heartbeat.VitalSigns) (stop func()) {
	w.T.Helper()
	return beats(w, &heartbeat.Heart{Log: hclog.NewNullLogger(), Vitals: vitals, Of: store.Heartbeat{Agent: name, Version: "v1", Address: "https://pal"}})
}

func beats(w *bed.World, h *heartbeat.Heart) (stop func()) {
	w.T.Helper()
	h.Warnings = &heartbeat.Warnings{}
	var err error
	if h.Nomad, err = nomad.NewClient(w.Nomad.Config(h.Of.Agent, ""), ""); err != nil {
		w.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	return func() { cancel(); <-done }
}

func activity(w *bed.World) palapi.Activity {
	w.T.Helper()
	c, err := nomad.NewClient(w.Nomad.Config("command", ""), "")
	if err != nil {
		w.T.Fatal(err)
	}
	a, err := heartbeat.ReadActivity(w.T.Context(), c, time.Now())
	if err != nil {
		w.T.Fatal(err)
	}
	return a
}

// A placer that finds another active placer reports it, unless it was elected and takes over from
// the other.
func TestAnotherAtWork(t *testing.T) {
	for elected, warns := range map[bool]bool{false: true, true: false} {
		bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
			p := w.StartPlacer()
			defer beating(w, "before", p.Vitals)()
			w.RunFor(5 * time.Second)
			var log bytes.Buffer
			defer beats(w, &heartbeat.Heart{Log: hclog.New(&hclog.LoggerOptions{Output: &log}), Vitals: p.Vitals, Of: store.Heartbeat{Agent: "after"}, Elected: elected})()
			w.RunFor(5 * time.Second)
			if a := activity(w); a.Agent != "after" || strings.Contains(log.String(), "another agent was active") != warns {
				w.T.Errorf("elected: %v: %+v\n%s", elected, a, log.String())
			}
		})
	}
}

// Commands warn while two placers are active that do not know of each other, but not after a killed
// placer was replaced.
func TestTwoAtWork(t *testing.T) {
	for _, elected := range []bool{false, true} { // elected by different locks
		t.Run(fmt.Sprintf("elected %v", elected), func(t *testing.T) { twoAtWork(t, elected) })
	}
}

func twoAtWork(t *testing.T, elected bool) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		p := w.StartPlacer()
		beating := func(w *bed.World, name string, vitals func() heartbeat.VitalSigns) (stop func()) {
			return beats(w, &heartbeat.Heart{Log: hclog.NewNullLogger(), Vitals: vitals, Of: store.Heartbeat{Agent: name}, Elected: elected})
		}
		killed := beating(w, "killed", p.Vitals)
		w.RunFor(5 * time.Second)
		w.Nomad.Disconnect("killed")
		killed()
		defer beating(w, "one", p.Vitals)()
		warned := func() string { return strings.Join(activity(w).Warnings, "; ") }
		for range 9 {
			w.RunFor(10 * time.Second)
			if got := warned(); got != "" {
				w.T.Errorf("alone: %s", got)
			}
		}
		stop := beating(w, "two", p.Vitals)
		w.RunFor(45 * time.Second)
		for range 4 {
			w.RunFor(10 * time.Second)
			if got := warned(); !strings.Contains(got, "two agents, one and two, are active") && !strings.Contains(got, "two agents, two and one, are active") {
				w.T.Errorf("two: %q", got)
			}
		}
		stop()
		w.RunFor(85 * time.Second)
		if got := warned(); got != "" {
			w.T.Errorf("alone again: %s", got)
		}
	})
}

// Nomad's variables show whether a placer is active, and whether it crashed, stopped normally or
// cannot work. While no placer is active, a snapshot predicts no start.
func TestActivity(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T
		w.AddNodes(2, 4)
		if a := activity(w); !a.Idle() || !a.Since.IsZero() {
			t.Errorf("before the first: %+v", a)
		}
		p := w.StartPlacer()
		stop := beating(w, "first", p.Vitals)
		w.RunFor(5 * time.Second)
		if a := activity(w); !a.Working || a.Agent != "first" || a.Address != "https://pal" || a.Version != "v1" {
			t.Errorf("active: %+v", a)
		}
		p.Stop()
		stop()
		stopped := time.Now()
		if a := activity(w); !a.Working {
			t.Errorf("time to hand over: %+v", a)
		}
		w.RunFor(11 * time.Second)
		if a := activity(w); !a.Idle() || a.Since.Sub(stopped).Abs() > time.Second {
			t.Errorf("stopped at %v: %+v", stopped, a)
		}
		w.Submit(bed.Gang{Name: "waits", Members: 2, GPUs: 4})
		w.RunFor(time.Second)
		next := w.StartPlacer()
		defer beating(w, "next", next.Vitals)()
		w.RunFor(3 * time.Second)
		if a := activity(w); !a.Working || a.Agent != "next" {
			t.Errorf("the next placer: %+v", a)
		}
		next.Kill()
		w.Nomad.Disconnect("next")
		w.RunFor(59 * time.Second)
		w.RunFor(25 * time.Second)
		if a := activity(w); !a.Idle() || time.Since(a.Since) < time.Minute {
			t.Errorf("killed: %+v", a)
		}
	})
}

// A placer that cannot make progress reports at once why, and since when. Reporting does not write
// often.
func TestActivityOfTrouble(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T
		var signs atomic.Value
		signs.Store(heartbeat.VitalSigns{})
		began := time.Now()
		stop := beating(w, "a", func() heartbeat.VitalSigns { return signs.Load().(heartbeat.VitalSigns) })
		w.RunFor(30 * time.Second)
		if a := activity(w); a.Idle() || a.Working || !strings.Contains(a.Unknown, "agent a has just started") {
			t.Errorf("the placer has just started: %+v", a)
		}
		w.RunFor(time.Minute)
		if a := activity(w); !a.Idle() || !a.Since.IsZero() || a.Trouble == "" {
			t.Errorf("the placer has not begun to work: %+v", a)
		}
		signs.Store(heartbeat.VitalSigns{Alive: time.Now(), LastCycle: time.Now()})
		w.RunFor(2 * time.Second)
		if a := activity(w); !a.Working {
			t.Errorf("the placer works: %+v", a)
		}
		worked := time.Now()
		w.RunFor(5 * time.Minute)
		a := activity(w)
		if !a.Idle() || a.Trouble == "" || a.Since.Sub(worked) > time.Minute+2*time.Second {
			t.Errorf("the placer hangs: %+v", a)
		}
		written, err := nomad.NewClient(w.Nomad.Config("look", ""), "")
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if v, err := written.ReadVariable(t.Context(), store.In(written).Heartbeat().Path); err != nil || v.ModifyIndex-v.CreateIndex > uint64(time.Since(began)/heartbeat.HeartbeatEvery)+4 {
			t.Errorf("%d writes, %v", v.ModifyIndex-v.CreateIndex, err)
		}
	})
}

// Two agents that do not know of each other both write heartbeats. If a token may not read the
// heartbeat, that is the reason why the activity is unknown.
func TestActivityOfTwo(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		signs := func() heartbeat.VitalSigns { return heartbeat.VitalSigns{Alive: time.Now(), LastCycle: time.Now()} }
		first, second := beating(w, "a", signs), beating(w, "b", signs)
		w.RunFor(time.Minute)
		first()
		w.RunFor(30 * time.Second)
		if a := activity(w); !a.Working || a.Agent != "b" {
			w.T.Errorf("%+v", a)
		}
		second()
		w.Nomad.SetTokens(map[string]nomadtest.Token{"t": {Nodes: true}})
		c, err := nomad.NewClient(w.Nomad.Config("denied", "t"), "")
		if err != nil {
			w.T.Fatal(err)
		}
		if a, err := heartbeat.ReadActivity(w.T.Context(), c, time.Now()); err != nil || a.Unknown == "" || a.Idle() {
			w.T.Errorf("denied: %+v, %v", a, err)
		}
	})
}
