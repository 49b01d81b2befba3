// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/meter"
)

// The placer counts what it does: alerts and the dashboard rely on these metrics.
func TestActionsAreCounted(t *testing.T) {
	m := meter.New("1.0.0", "abc", nil)
	Run(t, Options{Seed: 1, Meter: m}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "low", Members: 2, Runs: time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true", "pal_class": "B"}})
		w.ExpectRunning("low", 10*time.Second)
		w.RunFor(time.Hour / 2)
		w.Submit(Gang{Name: "high", Members: 2, Runs: time.Hour, Priority: 90, Meta: map[string]string{"pal_duration": "30m", "pal_class": "C"}})
		w.ExpectFinished("high", 2*time.Hour)
		w.ExpectFinished("low", 2*time.Hour)
		w.Submit(Gang{Name: "broken", Runs: time.Minute, Exit: 1, Meta: map[string]string{"pal_on_failure": "none", "pal_class": "D"}})
		w.RunFor(10 * time.Minute)
	})
	text, err := m.Gather(true)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`placements_total{app_class="B"} 2`, `placements_total{app_class="C"} 1`, `placements_total{app_class="D"} 1`,
		`stops_total{reason="preempted"} 1`, `registrations_total{outcome="done",purpose="start"} 4`, `registrations_total{outcome="done",purpose="stop"} 1`,
		`allocation_failures_total{cause="user"} 1`,
		`observed_slowdown_ratio_count{app_class="C"} 1`, `observed_slowdown_ratio_bucket{app_class="C",le="2"} 0`, `observed_slowdown_ratio_bucket{app_class="C",le="3"} 1`,
		`wait_seconds_count{app_class="B"} 2`, `wait_seconds_bucket{app_class="B",le="900"} 1`, `wait_seconds_bucket{app_class="B",le="14400"} 2`,
		`predicted_slowdown_ratio_count{app_class="C"} 1`,
	} {
		if !strings.Contains(string(text), "\nnomad_pal_"+want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}
