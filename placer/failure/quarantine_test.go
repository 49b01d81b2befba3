// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package failure

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Strikes double the quarantine, and are forgotten after days without a strike.
func TestQuarantine(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := book{}
	bad := palapi.Failure{Cause: palapi.CauseInfrastructure, Reason: "xid:79", GPUs: []string{"g1"}, Unhealthy: []string{"g1"}}
	var waits []time.Duration
	for range 3 {
		b.note(now, bad)
		waits = append(waits, b.Quarantine["g1"].Until.Sub(now))
		now = b.Quarantine["g1"].Until
	}
	now = now.Add(5 * Most)
	b.note(now, bad)
	waits = append(waits, b.Quarantine["g1"].Until.Sub(now))
	for range 12 {
		now = b.Quarantine["g1"].Until
		b.note(now, bad)
	}
	waits = append(waits, b.Quarantine["g1"].Until.Sub(now))
	want := []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 10 * time.Minute, 24 * time.Hour}
	if d := cmp.Diff(want, waits); d != "" {
		t.Errorf("quarantines (-want +got):\n%s", d)
	}
	// Other members that fail meanwhile had been placed before: one incident is one strike.
	before := b.Quarantine["g1"]
	b.note(now.Add(time.Minute), bad)
	if d := cmp.Diff(before, b.Quarantine["g1"]); d != "" {
		t.Errorf("struck twice (-before +after):\n%s", d)
	}
	if !QuarantinedGPUs(b.Quarantine, now)["g1"] || QuarantinedGPUs(b.Quarantine, now.Add(25*time.Hour))["g1"] {
		t.Error("in quarantine for too short or too long")
	}
	b.note(now, Diagnose(&cluster.Alloc{Client: "lost"}, []string{"g2"}, "node", nil))
	if _, ok := b.Quarantine["g2"]; ok {
		t.Error("a GPU gets a strike because its node went down")
	}
}

// Healthy GPUs in the same allocation as an unhealthy one get no strike.
func TestQuarantineOfTheUnhealthyAlone(t *testing.T) {
	a := &cluster.Alloc{Client: "failed", GPUs: []string{"g1", "g2", "g3", "g4"}}
	b := book{}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b.note(now, Diagnose(a, a.GPUs, "node", map[string]string{"g2": "lost", "g3": "lost", "g9": "lost"}))
	want := map[string]bool{"g2": true, "g3": true}
	if d := cmp.Diff(want, QuarantinedGPUs(b.Quarantine, now)); d != "" {
		t.Errorf("kept out (-want +got):\n%s", d)
	}
}

// If a task does not start, a GPU gets a strike only if the message calls it unhealthy, or if the
// driver names it. The reason, which users of all namespaces can read, does not name the task.
func TestQuarantineOfTheNamed(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []*api.TaskEvent
		want   []string
	}{
		{"refused", []*api.TaskEvent{{Type: "Task hook failed", Message: "devices: unhealthy device IDs: g2 (lost)"}}, []string{"g2"}},
		{"plugin gone", []*api.TaskEvent{{Type: "Task hook failed", Message: "devices: plugin is shut down"}}, nil},
		{
			"not known yet to Nomad's client", []*api.TaskEvent{{
				Type: "Task hook failed", Message: `devices: operation on unknown device(s) "nvidia/gpu/H200" ([g1 g2 g3]): failed to reserve devices`,
			}}, nil,
		},
		{"not known yet to the plugin", []*api.TaskEvent{{Type: "Task hook failed", Message: "devices: unknown device IDs: g1,g2,g3"}}, nil},
		{"another hook", []*api.TaskEvent{{Type: "Task hook failed", Message: "logmon: g3 is not it"}}, nil},
		{"set-up of the allocation", []*api.TaskEvent{{Type: api.TaskSetupFailure, DisplayMessage: "failed to setup alloc: no network"}}, nil},
		{"no image", []*api.TaskEvent{{Type: api.TaskDriverFailure, DisplayMessage: "Failed to pull image"}}, nil},
		{"driver names it", []*api.TaskEvent{{Type: api.TaskDriverFailure, DisplayMessage: "nvidia-container-cli: device error: g3: unknown device"}}, []string{"g3"}},
		{
			"refused while it was being killed", []*api.TaskEvent{
				{Type: api.TaskKilling}, {Type: "Task hook failed", Message: "devices: unhealthy device IDs: g2 (lost)"},
			}, nil,
		},
	} {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		a := &cluster.Alloc{Client: "failed", GPUs: []string{"g1", "g2", "g3"}, Tasks: map[string]*api.TaskState{"secret": {Events: c.events}}}
		b := book{Models: fleet(24)}
		b.note(now, Diagnose(a, a.GPUs, "node", nil))
		if d := cmp.Diff(c.want, slices.Sorted(maps.Keys(QuarantinedGPUs(b.Quarantine, now)))); d != "" {
			t.Errorf("%s: kept out (-want +got):\n%s", c.name, d)
		}
		for _, q := range b.Quarantine {
			if q.Reason == "" || strings.Contains(q.Reason, "secret") {
				t.Errorf("%s: reason %q", c.name, q.Reason)
			}
		}
	}
}
