// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// registryDown makes each start of a member fail, and counts the starts by job.
func (w *World) registryDown() (starts map[nomadtest.Key]int) {
	starts = map[nomadtest.Key]int{}
	w.Nomad.SetOutage(func(k nomadtest.Key) string {
		starts[k]++
		return fmt.Sprintf("failed to pull image \"https://registry:5000/%s:%d\": connection refused", k.ID, starts[k])
	})
	return starts
}

// A registry is down for five minutes. The queue of five gangs loses time, but no gang is given up,
// also by a placer that starts meanwhile. One gang stands for all, so there are few starts, and all
// gangs start soon after the end of the outage.
func TestOutageDelaysTheQueue(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		starts := w.registryDown()
		names := []string{"a", "b", "c", "d", "e"}
		for _, n := range names {
			w.Submit(Gang{Name: n, Members: 1, GPUs: 4, Runs: time.Hour})
		}
		w.RunFor(2 * time.Minute)
		p.Kill()
		w.StartPlacer()
		w.RunFor(3 * time.Minute)
		said := map[reason.Kind]int{}
		for _, n := range names {
			e := w.explained(n)
			said[e.Reason.Kind]++
			if e.State != palapi.Waiting || !strings.Contains(e.Reason.String(), "connection refused") {
				t.Errorf("%s: %s: %s", n, e.State, e.Reason)
			}
			if e.Reason.Kind == reason.RetriesAt && !e.Reason.Until.After(time.Now()) {
				t.Errorf("%s: the next try was to come: %s", n, e.Reason)
			}
		}
		if said[reason.RetriesAt] == 0 {
			t.Errorf("nothing says when the next try comes: %v", said)
		}
		all := 0
		for _, n := range starts {
			all += n / 2 // the message is asked for twice
		}
		if all > 14 {
			t.Errorf("%d starts in an outage of five minutes: %v", all, starts)
		}
		w.Nomad.SetOutage(nil)
		w.Expect("two gangs run", 10*time.Minute, func() bool {
			n := 0
			for _, name := range names {
				if w.Running(Key(name)) {
					n++
				}
			}
			return n == 2
		})
		for _, n := range names {
			w.ExpectFinished(n, 5*time.Hour)
		}
	})
}

// A gang whose image nobody will ever provide is given up, after an hour. Another gang is not
// delayed by it, and neither is its author's correction.
func TestOutageOfOneGangForGood(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Nomad.SetOutage(func(k nomadtest.Key) string {
			if k.ID == "good" {
				return ""
			}
			return "no such image"
		})
		w.Submit(Gang{Name: "bad", Members: 2, Runs: time.Hour})
		w.Submit(Gang{Name: "edited", Members: 2, Runs: time.Hour})
		w.RunFor(50 * time.Minute)
		w.Submit(Gang{Name: "good", Members: 2, Runs: time.Hour})
		w.ExpectRunning("good", 10*time.Second)
		if e := w.explained("bad"); e.State != palapi.Waiting {
			t.Errorf("before an hour has passed: %s: %s", e.State, e.Reason)
		}
		w.Nomad.SetOutage(func(k nomadtest.Key) string {
			if k.ID == "bad" {
				return "no such image"
			}
			return ""
		})
		if err := w.Rerun(Key("edited")); err != nil {
			t.Fatal(err)
		}
		w.ExpectRunning("edited", 10*time.Second)
		w.RunFor(3 * time.Hour)
		if e := w.explained("bad"); e.State != palapi.Failed {
			t.Errorf("long after: %s: %s", e.State, e.Reason)
		}
	})
}
