// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/internal/long"
	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/scenario"
)

// realNomad is a real cluster for the scenarios. A failure ends the scenario, not the test.
type realNomad struct {
	*cluster.Cluster
	t         *testing.T // the test of the current scenario
	times     [][]float64
	unhealthy map[int]map[int]bool
	played    int
}

func (r *realNomad) must(err error) {
	if err != nil {
		scenario.Fail(err)
	}
}

func (r *realNomad) NodeID(n int) string {
	id, err := r.Cluster.NodeID(r.t.Context(), fmt.Sprintf("node-%d", n))
	r.must(err)
	return id
}

func (r *realNomad) Until(what string, ok func() bool) {
	r.must(patience.Until(r.t.Context(), patience.Long, what, func(context.Context) (string, error) {
		if ok() {
			return "", nil
		}
		return "not yet", nil
	}))
}

func (r *realNomad) node(n int) *api.Node {
	node, _, err := r.API().Nodes().Info(r.NodeID(n), nil)
	r.must(err)
	return node
}

func (r *realNomad) SetHealth(id string, healthy bool) {
	var n, k int
	_, err := fmt.Sscanf(id, "GPU-%d-%d", &n, &k)
	r.must(err)
	if r.unhealthy[n] == nil {
		r.unhealthy[n] = map[int]bool{}
	}
	r.unhealthy[n][k] = !healthy
	r.must(r.Clients()[n].SetInventory(inventoryOf(n, r.times[n], r.unhealthy[n])))
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

// Cut kills the client; raw_exec tasks keep running.
func (r *realNomad) Cut(n int) {
	r.must(r.Clients()[n].Kill(r.t.Context()))
	r.untilAway(n)
}

func (r *realNomad) Hang(n int) {
	r.must(r.Clients()[n].Pause())
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

// kill kills the client, the tasks and their executors.
func (r *realNomad) kill(n int) {
	r.must(r.Clients()[n].Kill(r.t.Context()))
	as, _, err := r.API().Nodes().Allocations(r.NodeID(n), nil)
	r.must(err)
	for _, a := range as {
		for _, pid := range processesOf(r.t, a.ID) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}

// processesOf are an allocation's executors, followed by its tasks.
func processesOf(t *testing.T, alloc string) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"cmdline", "environ"} {
		for _, dir := range dirs {
			text, _ := os.ReadFile(filepath.Join(dir, of)) // it may have ended
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
	r.must(r.Clients()[n].Resume())
	r.Until("Nomad knows that the node is back", func() bool { return r.node(n).Status == api.NodeStatusReady })
}

func (r *realNomad) start(n int) {
	ctx, cancel := clustertest.Context(r.t, r.Cluster)
	defer cancel()
	r.must(r.Clients()[n].Start(ctx))
}

func (r *realNomad) Drain(n int) {
	r.drain(n, -1*time.Second)
	r.Until("the node is drained", func() bool { return r.node(n).DrainStrategy == nil })
}

func (r *realNomad) DrainGently(n int) { r.drain(n, 0) }

func (r *realNomad) drain(n int, deadline time.Duration) {
	spec := &api.DrainSpec{Deadline: deadline, IgnoreSystemJobs: true}
	_, err := r.API().Nodes().UpdateDrain(r.NodeID(n), spec, false, nil)
	r.must(err)
}

func (r *realNomad) Undrain(n int) {
	_, err := r.API().Nodes().ToggleEligibility(r.NodeID(n), true, nil)
	r.must(err)
}

// Purge purges the node, which registers again at its client's next heartbeat. The client is paused
// until Nomad has evaluated the node's jobs: otherwise their allocations would not be lost.
func (r *realNomad) Purge(n int) {
	id := r.NodeID(n)
	r.must(r.Clients()[n].Pause())
	purged, _, err := r.API().Nodes().Purge(id, nil)
	r.must(err)
	r.Until("Nomad has looked at what ran on the node", func() bool {
		for _, id := range purged.EvalIDs {
			eval, _, err := r.API().Evaluations().Info(id, nil)
			r.must(err)
			if eval.Status == api.EvalStatusPending {
				return false
			}
		}
		return true
	})
	r.must(r.Clients()[n].Resume())
	r.Until("the node is back", func() bool {
		node, _, err := r.API().Nodes().Info(id, nil)
		return err == nil && node.Status == api.NodeStatusReady
	})
}

func (r *realNomad) Finish(alloc string) {
	r.must(r.API().Allocations().Signal(&api.Allocation{ID: alloc}, nil, "work", "SIGUSR1"))
}

// TestScenarios plays the scenarios of the in-memory Nomad on a real one: the
// in-memory model must show the same.
func TestScenarios(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	pool := &clusters{t: t, bin: bin, idle: map[time.Duration][]*realNomad{}}
	for _, s := range scenario.All {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			switch sample := slices.Contains(scenario.OfEachKind, s.Name); {
			case !sample && !long.All():
				t.Skip(long.Sampled)
			case long.Over():
				t.Skip(long.NoTime)
			}
			testScenario(t, pool, s)
		})
	}
}

// mostTries is how often a scenario is played if processes had to wait for a processor: then
// Nomad's own time limits cause differences. An error in the model shows each time.
const mostTries = 3

func testScenario(t *testing.T, pool *clusters, s scenario.Scenario) {
	want, err := os.ReadFile(filepath.Join("..", "placer", "nomadtest", "scenario", "testdata", scenario.File(s)))
	if err != nil {
		t.Fatal(err)
	}
	for try := 1; ; try++ {
		starved := patience.Starved()
		wrong := pool.play(t, s, string(want))
		if wrong == "" {
			return
		}
		share := starved()
		wrong = fmt.Sprintf("%s\nProcesses waited for a processor for %.0f %% of the time.", wrong, 100*share)
		if try == mostTries || share < 0.2 {
			t.Fatal(wrong)
		}
		t.Logf("played again on another cluster, because the machine was busy: %s", wrong)
	}
}

// clusters are those for scenarios; each plays one at a time. They end with the test.
type clusters struct {
	t   *testing.T
	bin string

	mu   sync.Mutex
	idle map[time.Duration][]*realNomad // by heartbeat TTL
}

// heartbeat is how often clients send heartbeats. A node is down after twice this time. A rebooting
// node must not be, however slow the machine is.
func heartbeat(s scenario.Scenario) time.Duration {
	if s.Name == "rebooted" {
		return time.Minute
	}
	return 4 * time.Second
}

// take returns an idle cluster for a scenario.
func (p *clusters) take(t *testing.T, s scenario.Scenario) *realNomad {
	if r := p.again(heartbeat(s)); r != nil {
		return r
	}
	times := [][]float64{{1, 1}, {1, 1}, {1, 1}}
	options := cluster.Options{Bin: p.bin, HeartbeatTTL: heartbeat(s), Clients: clientsOf(inventoriesOf(times))}
	return &realNomad{Cluster: clustertest.StartFor(p.t, t, options), times: times, unhealthy: map[int]map[int]bool{}}
}

// again returns the idle cluster of an earlier scenario, nil if there is none.
func (p *clusters) again(heartbeat time.Duration) *realNomad {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := p.idle[heartbeat]
	if len(idle) == 0 {
		return nil
	}
	p.idle[heartbeat] = idle[:len(idle)-1]
	return idle[len(idle)-1]
}

// play plays a scenario and returns the differences. A cluster with a difference is not used
// again.
func (p *clusters) play(t *testing.T, s scenario.Scenario, want string) (wrong string) {
	r := p.take(t, s)
	r.t = t
	r.played++
	seen, err := scenario.Play(r, s, fmt.Sprintf("%s%d-", strings.TrimSuffix(scenario.File(s), "txt"), r.played))
	switch d := cmp.Diff(strings.Split(want, "\n"), strings.Split(seen, "\n")); {
	case err != nil:
		wrong = fmt.Sprintf("the scenario did not end: %v\nseen until then (-model +real):\n%s", err, d)
	case d != "":
		wrong = fmt.Sprintf("the model shows something else (-model +real):\n%s", d)
	default:
		p.mu.Lock()
		p.idle[heartbeat(s)] = append(p.idle[heartbeat(s)], r)
		p.mu.Unlock()
		return ""
	}
	wrong += "\n" + clustertest.Describe(r.Cluster)
	if err := r.Close(); err != nil {
		wrong += "\nclose the cluster: " + err.Error()
	}
	return wrong
}
