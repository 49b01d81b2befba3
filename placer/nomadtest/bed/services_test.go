// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// A gang that needs GPUs which services hold keeps no free ones from others: services do not end.
func TestServicesHoldWhatAGangNeeds(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "serve", Service: true, Members: 3, Meta: map[string]string{"pal_duration": "10m"}})
		w.ExpectRunning("serve", 10*time.Second)
		w.Submit(Gang{Name: "train", Members: 6, Runs: time.Hour})
		w.RunFor(time.Second)
		for _, name := range []string{"a", "b", "c"} {
			w.Submit(Gang{Name: name, Runs: 10 * time.Hour})
			w.ExpectRunning(name, 10*time.Second)
		}
		e := w.explained("train")
		if e.Wait == nil || e.Wait.Reason != queue.ReasonServices || !strings.Contains(e.Reason, "waits for services") {
			t.Errorf("it waits for %+v: %s", e.Wait, e.Reason)
		}
		if n := len(e.Holders.Jobs); n != 4 || !e.Holders.Jobs[n-1].Service || !e.Holders.Jobs[n-1].EndFrom.IsZero() {
			t.Errorf("who holds GPUs: %+v", e.Holders.Jobs)
		}
		planned, err := w.snapshot().Plan(Gang{Name: "plan", Members: 6, Runs: time.Hour}.Job())
		if err != nil || !strings.HasPrefix(planned.Reason, "would wait for services: it needs 6 GPUs") {
			t.Errorf("plan: %v, %v", planned, err)
		}
		if err := w.Stop(Key("serve")); err != nil {
			t.Fatal(err)
		}
		w.ExpectGone("serve", time.Minute)
		w.Expect("it runs", 12*time.Hour, func() bool { return w.Running(Key("train")) })
	})
}

// Who holds GPUs is listed by when they come free.
func TestHoldersInOrder(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 5)
		w.StartPlacer()
		hinted := func(d string) map[string]string { return map[string]string{"pal_duration": d} }
		w.Submit(Gang{Name: "a-service", Service: true, Meta: hinted("1m")})
		w.Submit(Gang{Name: "b-unknown", Runs: time.Hour})
		w.Submit(Gang{Name: "c-late", Runs: 9 * time.Hour, Meta: hinted("9h")})
		w.Submit(Gang{Name: "d-early", Runs: 2 * time.Hour, Meta: hinted("2h")})
		w.RunFor(10 * time.Second)
		w.Submit(Gang{Name: "waits", Members: 3, Runs: time.Hour})
		w.RunFor(10 * time.Second)
		var order []string
		for _, h := range w.explained("waits").Holders.Jobs {
			order = append(order, h.Job)
		}
		if want := []string{"default/d-early", "default/c-late", "default/b-unknown", "default/a-service"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
	})
}
