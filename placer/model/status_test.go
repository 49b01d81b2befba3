// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// Each GPU counts in at most one state of trouble, the most severe. It is an outlier of each class
// for which its PM score is above the threshold, not equal to it; a GPU that was never measured is
// none.
func TestCountGPUs(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	const above = queue.DefaultOutlierThreshold
	scored := func(a, b pal.PMScore) (s [pal.NumClasses]pal.PMScore) {
		s[pal.ClassA.Index()], s[pal.ClassB.Index()] = a, b
		return s
	}
	c, err := pal.NewCluster([]pal.Node{{ID: "n", Name: "n", Groups: []pal.DeviceGroup{{Name: "nvidia/gpu/X", GPUs: []pal.GPU{
		{ID: "free"},
		{ID: "at the threshold", Scores: scored(above, 1)},
		{ID: "slow for A", Scores: scored(above+0.1, 1)},
		{ID: "slow for both, and taken", Scores: scored(above+1, above+0.1)},
		{ID: "unhealthy", Health: pal.Health{Unhealthy: true, Quarantined: true}, Degraded: "ecc"},
		{ID: "unhealthy, and taken", Health: pal.Health{Unhealthy: true}},
		{ID: "quarantined", Health: pal.Health{Quarantined: true}, Degraded: "ecc"},
		{ID: "its quarantine has ended", Health: pal.Health{Quarantined: true}},
		{ID: "degraded", Degraded: "ecc"},
	}}, {Name: "nvidia/gpu.shared/X", Shared: true, GPUs: []pal.GPU{{ID: "s::0"}, {ID: "s::1"}, {ID: "s::2", Health: pal.Health{Unhealthy: true}}, {ID: "s::3"}}}}}}, pal.TwoTier(1.5))
	if err != nil {
		t.Fatal(err)
	}
	c.SetTaken(c.Find("slow for both, and taken"), true)
	c.SetTaken(c.Find("unhealthy, and taken"), true)
	c.SetTaken(c.Find("s::0"), true)
	m := Model{Time: now, View: &request.View{Ledger: &ledger.Ledger{Cluster: c}}, Quarantine: map[string]palapi.Quarantine{
		"quarantined": {Until: now.Add(time.Hour)}, "its quarantine has ended": {Until: now},
	}}
	for _, x := range []struct {
		threshold float64 // 0: the default
		a, b      int
	}{{0, 2, 1}, {above + 0.5, 1, 0}} {
		m.Cfg.Queue.OutlierThreshold = x.threshold
		var s Status
		s.CountGPUs(&m)
		if want := (palapi.GPUsInTrouble{Unhealthy: 2.25, Quarantined: 1, Degraded: 1}); s.InTrouble != want || s.Allocated != 1.25 || s.GPUs != 10 {
			t.Errorf("of %g GPUs, in trouble: %+v, allocated: %g", s.GPUs, s.InTrouble, s.Allocated)
		}
		above := 0
		for i := range c.NumGPUs() {
			if len(m.OutlierFor(i)) > 0 {
				above++
			}
		}
		if above != x.a { // every outlier for B is also one for A
			t.Errorf("%d GPUs are outliers, want %d", above, x.a)
		}
		want := map[pal.AppClass]float64{pal.ClassA: float64(x.a), pal.ClassB: float64(x.b), pal.ClassC: 0, pal.ClassD: 0}
		if d := cmp.Diff(want, s.Outliers); d != "" {
			t.Errorf("outliers above %v (-want +got):\n%s", x.threshold, d)
		}
	}
}

// The predicted slowdown is a mean over GPUs: a gang with three GPUs counts three times. A gang
// without a prediction for both placements does not count.
func TestSlowdown(t *testing.T) {
	t.Parallel()
	decided := func(gpus int, chosen, packed float64) pal.Decision {
		return pal.Decision{Demand: gpus, Chosen: &pal.Choice{Cost: chosen}, Packed: &pal.Choice{Cost: packed}}
	}
	var s Slowdown
	for _, d := range []pal.Decision{
		decided(3, 1, 2), {Demand: 8, Chosen: &pal.Choice{Cost: 9}}, decided(1, 2, 4), decided(8, 0, 3), {},
	} {
		s.add(d)
	}
	if want := (Slowdown{GPUs: 4, Chosen: 1.25, Packed: 2.5}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}
