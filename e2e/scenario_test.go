// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/scenario"
)

// realNomad is a real cluster for the scenarios.
type realNomad struct {
	*bed
	times     [][]float64
	unhealthy map[int]map[int]bool
}

func (r *realNomad) NodeID(n int) string {
	r.t.Helper()
	id, err := r.Cluster.NodeID(r.t.Context(), fmt.Sprintf("node-%d", n))
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *realNomad) Until(what string, ok func() bool) {
	r.t.Helper()
	r.until(what, func() string {
		if ok() {
			return ""
		}
		return "not yet"
	})
}

func (r *realNomad) node(n int) *api.Node {
	node, _, err := r.API().Nodes().Info(r.NodeID(n), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return node
}

func (r *realNomad) SetHealth(id string, healthy bool) {
	var n, k int
	if _, err := fmt.Sscanf(id, "GPU-%d-%d", &n, &k); err != nil {
		r.t.Fatal(err)
	}
	if r.unhealthy[n] == nil {
		r.unhealthy[n] = map[int]bool{}
	}
	r.unhealthy[n][k] = !healthy
	r.inventory(n, r.times[n], r.unhealthy[n])
	r.Until("Nomad knows of the GPU's health", func() bool {
		for _, d := range r.node(n).NodeResources.Devices {
			for _, in := range d.Instances {
				if in.ID == id {
					return in.Healthy == healthy
				}
			}
		}
		return false
	})
}

// Cut kills the client; raw_exec tasks run on.
func (r *realNomad) Cut(n int) {
	if err := r.Clients()[n].Kill(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.Until("Nomad knows that the node is down", func() bool { return r.node(n).Status == api.NodeStatusDown })
}

func (r *realNomad) Recover(n int) {
	if err := r.Clients()[n].Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *realNomad) Drain(n int) {
	spec := &api.DrainSpec{Deadline: -1 * time.Second, IgnoreSystemJobs: true}
	if _, err := r.API().Nodes().UpdateDrain(r.NodeID(n), spec, false, nil); err != nil {
		r.t.Fatal(err)
	}
	r.Until("the node is drained", func() bool { return r.node(n).DrainStrategy == nil })
}

func (r *realNomad) Undrain(n int) {
	if _, err := r.API().Nodes().ToggleEligibility(r.NodeID(n), true, nil); err != nil {
		r.t.Fatal(err)
	}
}

// TestScenarios plays the scenarios of the in-memory Nomad on a real one: what it
// shows is what the model is held to.
func TestScenarios(t *testing.T) {
	t.Parallel()
	n := len(scenario.All)
	for name, all := range map[string][]scenario.Scenario{"first": scenario.All[:n/3], "second": scenario.All[n/3 : 2*n/3], "third": scenario.All[2*n/3:]} {
		t.Run(name, func(t *testing.T) { testScenarios(t, all) })
	}
}

func testScenarios(t *testing.T, all []scenario.Scenario) {
	t.Parallel()
	times := [][]float64{{1, 1}, {1, 1}, {1, 1}}
	r := &realNomad{bed: newBed(t, times, cluster.Options{HeartbeatTTL: 4 * time.Second}), times: times, unhealthy: map[int]map[int]bool{}}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			r.t = t
			want, err := os.ReadFile(filepath.Join("..", "placer", "nomadtest", "scenario", "testdata", scenario.File(s)))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(scenario.Play(r, s), "\n")); d != "" {
				t.Errorf("the model shows something else (-model +real):\n%s", d)
			}
		})
	}
}
