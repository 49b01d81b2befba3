// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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
	r.untilAway(n)
}

func (r *realNomad) Hang(n int) {
	if err := r.Clients()[n].Pause(); err != nil {
		r.t.Fatal(err)
	}
	r.untilAway(n)
}

func (r *realNomad) untilAway(n int) {
	r.Until("Nomad knows that the node is away", func() bool {
		status := r.node(n).Status
		return status == api.NodeStatusDown || status == api.NodeStatusDisconnected
	})
}

func (r *realNomad) Crash(n int) {
	r.kill(n)
	r.untilAway(n)
}

func (r *realNomad) Reboot(n int) {
	r.kill(n)
	r.start(n)
}

// kill kills the client and the tasks with those that watch over them.
func (r *realNomad) kill(n int) {
	if err := r.Clients()[n].Kill(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	as, _, err := r.API().Nodes().Allocations(r.NodeID(n), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, a := range as {
		for _, pid := range processesOf(r.t, a.ID) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
		}
	}
}

// processesOf are an allocation's executors, then its tasks.
func processesOf(t *testing.T, alloc string) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"cmdline", "environ"} {
		for _, dir := range dirs {
			text, _ := os.ReadFile(filepath.Join(dir, of)) // it may be gone
			executor := of == "cmdline" && strings.Contains(string(text), "executor") && strings.Contains(string(text), alloc)
			task := of == "environ" && strings.Contains(string(text), "NOMAD_ALLOC_ID="+alloc)
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && (executor || task) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func (r *realNomad) Recover(n int) {
	if r.Clients()[n].PID() == 0 {
		r.start(n)
		return
	}
	if err := r.Clients()[n].Resume(); err != nil {
		r.t.Fatal(err)
	}
	r.Until("Nomad knows that the node is back", func() bool { return r.node(n).Status == api.NodeStatusReady })
}

func (r *realNomad) start(n int) {
	if err := r.Clients()[n].Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *realNomad) Drain(n int) {
	r.drain(n, -1*time.Second)
	r.Until("the node is drained", func() bool { return r.node(n).DrainStrategy == nil })
}

func (r *realNomad) DrainGently(n int) { r.drain(n, 0) }

func (r *realNomad) drain(n int, deadline time.Duration) {
	spec := &api.DrainSpec{Deadline: deadline, IgnoreSystemJobs: true}
	if _, err := r.API().Nodes().UpdateDrain(r.NodeID(n), spec, false, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *realNomad) Undrain(n int) {
	if _, err := r.API().Nodes().ToggleEligibility(r.NodeID(n), true, nil); err != nil {
		r.t.Fatal(err)
	}
}

// Purge has Nomad forget the node, whose client finds that out by its next heartbeat.
func (r *realNomad) Purge(n int) {
	id := r.NodeID(n)
	if _, _, err := r.API().Nodes().Purge(id, nil); err != nil {
		r.t.Fatal(err)
	}
	r.Until("the node is back", func() bool {
		node, _, err := r.API().Nodes().Info(id, nil)
		return err == nil && node.Status == api.NodeStatusReady
	})
}

// TestScenarios plays the scenarios of the in-memory Nomad on a real one: what it
// shows is what the model is held to.
func TestScenarios(t *testing.T) {
	t.Parallel()
	const clusters = 4
	parts := map[int][]scenario.Scenario{}
	for i, s := range scenario.All { // those that take long are beside each other
		parts[i%clusters] = append(parts[i%clusters], s)
	}
	for i, all := range parts {
		t.Run(strconv.Itoa(i), func(t *testing.T) { testScenarios(t, all) })
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
