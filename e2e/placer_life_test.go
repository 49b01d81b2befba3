// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestPlacerLife: what happens to gangs after they are placed. One cluster of 4
// nodes × 4 GPUs.
func TestPlacerLife(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores, cluster.Options{})
	const preempting = "queue {\n  order = \"fifo\"\n  preempt = true\n  quantum = \"1s\"\n  restart_cost = \"1s\"\n}\n"
	b.tell([]scene{
		{"priority preempts", preempting, testPreempt},
		{"fails through its own fault", "retries = 1\n", testUserFailure},
		{"moved to better GPUs", "queue {\n  migrate = true\n  locality_wait = false\n  restart_cost = \"1s\"\n}\n", testMoved},
		{"quota of a namespace", "tenant \"default\" {\n  quota           = 4\n  borrowing_limit = 0\n}\n", testQuota},
		{"two GPU tasks in a group", "", testTwoTasks},
		{"distinct hosts", "", testDistinctHosts},
		{"taken by a job without a gate", "", testBypass},
		{"edited while waiting", "", testEditedWhileWaiting},
		{"history", "", testHistory},
	})
	b.tellLong([]scene{
		{"placer dies while preempting", preempting, testDiesPreempting},
		{"done while being stopped", "", testDoneWhileStopping},
		{"limit of users", "tenant \"all\" {\n  namespaces        = [\"*\"]\n  max_gpus_per_user = 3\n}\n", testUserLimit},
		{"hard locality", "locality {\n  node = 1\n  rack = 1.3\n  cluster = 1.7\n}\n", testLocality},
		{"a group of none", "", testGroupOfNone},
		{"all released", "", testReleaseAll},
		{"system job", "", testSystem},
		{"gang grows", "", testGrows},
		{"run again as it ends", "", testRunAgainAsItEnds},
	})
}

// TestPlacerServices: jobs that run until they are stopped, whose members Nomad
// replaces one by one.
func TestPlacerServices(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores, cluster.Options{})
	b.tell([]scene{
		{"service", "", testService},
		{"spread over racks", "", testSpreadOverRacks},
	})
	b.tellLong([]scene{
		{"reverted", "", testReverted},
		{"racks", "", testRacks}, // leaves the nodes in other racks
	})
}

// TestPlacerUnhealthy: GPUs that become unhealthy, and nodes that are taken out of
// service.
func TestPlacerUnhealthy(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores, cluster.Options{})
	b.tell([]scene{
		{"fails by a GPU's fault", "", testGPUFailure},
		{"node drained", "", testDrained},
	})
	b.tellLong([]scene{
		{"all of it fails by a GPU's fault", "", testGPUFailureOfAll},
		{"GPU unhealthy before the start", "", testUnhealthy},
		{"node eligible again", "", testEligibleAgain},
	})
}

// TestPlacerOutages: agents of Nomad and of ours crash or hang.
func TestPlacerOutages(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores, cluster.Options{HeartbeatTTL: 2 * time.Second})
	b.tell([]scene{
		{"failover", "high_availability {\n  enabled = true\n  lock_ttl = \"10s\"\n}\n", testFailover},
		{"node goes down", "", testNodeDown},
	})
	b.tellLong([]scene{
		{"replicas outlive a node", "", testReplicasOutliveANode},
		{"done while its node was away", "", testDoneWhileDisconnected},
		{"preempted while a node is away", "queue {\n  order = \"fifo\"\n  preempt = true\n  quantum = \"1s\"\n  restart_cost = \"1s\"\n}\n", testPreemptedWhileDisconnected},
	})
	b.tell([]scene{
		// This test is last: a new leader waits five minutes before it marks
		// silent nodes as down.
		{"server restarts", "", testServerRestarts},
	})
}

// A gang of higher priority stops one that allows it. The stopped gang starts
// again when it fits.
func testPreempt(t *testing.T, b *bed) {
	b.stopAgent()
	b.config += fmt.Sprintf("history {\n  database = %q\n}\n", filepath.Join(t.TempDir(), "history.db"))
	b.startAgent("nomad-pal")
	low := gang("low", 4, 4)
	low.meta, low.extra = `pal_preempt = "true"`, "priority = 20"
	b.runs(low, 16)
	high := gang("high", 2, 4)
	high.extra = "priority = 80"
	b.runs(high, 8)
	b.untilWaits("low")
	b.untilSays("history -csv -columns=job,stops,lost,sooner", "default/high,0,,0.")
	b.untilSays("history -csv -columns=job,stops,lost,sooner", "default/low,1,0.00,")
	b.purge("high")
	b.untilGPUs("low", 16)
	b.purge("low")
	b.until("both ends are recorded, with the gain and the cost of the stop", func() string {
		out, _ := b.pal("history", "-json", "-by=namespace")
		var usage []struct {
			Runs, Stops int
			Lost        float64 `json:"stops_lost_gpu_hours"`
			Sooner      float64 `json:"stops_saved_wait_hours"`
		}
		err := json.Unmarshal([]byte(out), &usage)
		if err != nil || len(usage) != 1 || usage[0].Runs != 2 || usage[0].Stops != 1 || usage[0].Lost <= 0 || usage[0].Sooner <= 0 {
			return fmt.Sprint(err, out)
		}
		return ""
	})
}

// A job has its gate and running members, and the new placer does not know why.
// It stops no member, and removes the gate again.
func testDiesPreempting(t *testing.T, b *bed) {
	low := gang("halfway", 4, 4)
	low.meta = `pal_preempt = "true"`
	b.runs(low, 16)
	before := b.members("halfway")
	b.stopAgent()
	info := b.info("halfway")
	info.Constraints = append(info.Constraints, &api.Constraint{LTarget: "${meta.pal_gate}", RTarget: "open", Operand: "="})
	register(b.t, b.Cluster, info)
	b.startAgent("nomad-pal")
	b.until("the gate is off again", func() string { return b.gate("halfway") })
	b.holds("the same allocations run", func() string {
		after := b.members("halfway")
		for i := range after {
			after[i].Version = before[0].Version
		}
		return cmp.Diff(before, after)
	})
	b.purge("halfway")
}

// A gang completes just when the placer stops it for another gang. Nomad would run it again, and so
// would a placer that looks only at the job. But the gang has ended.
func testDoneWhileStopping(t *testing.T, b *bed) {
	j := gang("done", 4, 4)
	flag := filepath.Join(b.dir, "done")
	j.script = "while sleep 0.1; do if [ -e " + flag + " ]; then exit 0; fi; done"
	b.run(j.hcl())
	b.untilRunning("done", 4)
	b.stopAgent()
	info := b.info("done")
	info.Constraints = append(info.Constraints, &api.Constraint{LTarget: "${meta.pal_gate}", RTarget: "open", Operand: "="})
	register(b.t, b.Cluster, info)
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.until("all its members have ended", func() string { return cmp.Diff([]member(nil), b.members("done"), cmpopts.EquateEmpty()) })
	b.startAgent("nomad-pal")
	b.until("the job is stopped", func() string {
		if info := b.info("done"); *info.Status != "dead" || !*info.Stop {
			return *info.Status
		}
		return ""
	})
	b.holds("nothing of it runs again", func() string {
		as, _, err := b.API().Jobs().Allocations("done", true, nil)
		if err != nil {
			return err.Error()
		}
		if len(as) != 4 {
			return fmt.Sprintf("%d allocations", len(as))
		}
		return ""
	})
	b.purge("done")
}

// gate reports the job's gate, "" if it has none.
func (b *bed) gate(id string) string {
	info, _, err := b.API().Jobs().Info(id, nil)
	if err != nil {
		return err.Error()
	}
	if rewrite.Gated(info) {
		return "the gate is on"
	}
	return ""
}

// A service can be scaled, updated and reverted with Nomad's commands, without
// help from the placer.
func testService(t *testing.T, b *bed) {
	j := gang("web", 2, 1)
	j.kind = "service"
	j.groups[0].extra = "update {\n max_parallel = 1\n min_healthy_time = \"100ms\"\n healthy_deadline = \"30s\"\n progress_deadline = \"1m\"\n}\n"
	got := b.runs(j, 2)
	b.untilExplained("web", got)
	before := b.members("web")
	b.untilDeployed("web")
	// Scaled up, it needs more than the nodes that the placer chose.
	if _, _, err := b.API().Jobs().Scale("web", "workers", new(6), "", false, nil, nil); err != nil {
		t.Fatal(err)
	}
	b.untilGPUs("web", 6)
	b.untilDeployed("web")
	for _, m := range before {
		if !slices.ContainsFunc(b.members("web"), func(n member) bool { return n.ID == m.ID }) {
			t.Errorf("scaling restarted allocation %s", m.ID)
		}
	}
	if _, _, err := b.API().Jobs().Scale("web", "workers", new(1), "", false, nil, nil); err != nil {
		t.Fatal(err)
	}
	b.untilGPUs("web", 1)
	b.untilDeployed("web")
	// An update with the gate is rolled out and stays pinned.
	j.groups[0].count, j.seconds = 1, 4000
	b.run(j.hcl())
	b.until("the new version runs", func() string {
		if c := b.gate("web"); c != "" {
			return c
		}
		for _, m := range b.members("web") {
			a, _, err := b.API().Allocations().Info(m.ID, nil)
			if err != nil {
				return err.Error()
			}
			if args := a.Job.TaskGroups[0].Tasks[0].Config["args"]; !strings.Contains(fmt.Sprint(args), "4000") {
				return fmt.Sprintf("the service runs with %v", args)
			}
		}
		return ""
	})
	b.untilGPUs("web", 1)
	b.purge("web")
}

// The members of a service with a spread over racks run in different racks.
// Additional members go to the racks with the fewest.
func testSpreadOverRacks(t *testing.T, b *bed) {
	j := gang("apart", 2, 1)
	j.kind, j.extra = "service", "spread {\n attribute = \"${meta.rack}\"\n}\n"
	j.groups[0].extra = "update {\n max_parallel = 1\n min_healthy_time = \"100ms\"\n}\n"
	b.run(j.hcl())
	racks := func(n int) map[string]int {
		in := map[string]int{}
		for _, id := range b.untilGPUs("apart", n) {
			in[map[byte]string{'0': "r0", '1': "r0", '2': "r1", '3': "r1"}[id[len("GPU-")]]]++
		}
		return in
	}
	same(t, "one in each rack", map[string]int{"r0": 1, "r1": 1}, racks(2))
	b.untilDeployed("apart")
	if _, _, err := b.API().Jobs().Scale("apart", "workers", new(4), "", false, nil, nil); err != nil {
		t.Fatal(err)
	}
	same(t, "two in each rack", map[string]int{"r0": 2, "r1": 2}, racks(4))
	b.purge("apart")
}

// untilDeployed waits until the job's last deployment has succeeded.
func (b *bed) untilDeployed(id string) {
	b.t.Helper()
	b.until("deployment of "+id, func() string {
		d, _, err := b.API().Jobs().LatestDeployment(id, nil)
		if err != nil {
			return err.Error()
		}
		if d != nil && d.Status != "successful" {
			return d.Status + ": " + d.StatusDescription
		}
		return ""
	})
}

// Somebody registers a job without a gate that takes a GPU which the placer has
// chosen for a gang. No gang stays half placed, and none holds GPUs while it
// waits.
func testBypass(t *testing.T, b *bed) {
	b.fill("full", 4)
	native := gang("native", 1, 1)
	job := b.parse(native.hcl())
	register(b.t, b.Cluster, job)
	b.run(gang("whole", 4, 4).hcl())
	b.purge("full") // now "native" and "whole" compete for the GPUs; either may win
	winner, loser := "", ""
	b.until("all or nothing", func() string {
		n, w := b.gpusOf("native"), b.gpusOf("whole")
		switch {
		case len(n) == 1 && len(w) == 0 && inQueue(b.explain("whole").State):
			winner, loser = "native", "whole"
		case len(n) == 0 && len(w) == 16:
			winner, loser = "whole", "native"
		default:
			return fmt.Sprintf("native on %v, whole on %v", n, w)
		}
		return ""
	})
	t.Logf("%s won", winner)
	if winner == "native" {
		b.holds("the gang holds nothing", func() string {
			if e := b.explain("whole"); inQueue(e.State) && len(b.gpusOf("whole")) > 0 {
				return fmt.Sprint(b.gpusOf("whole"))
			}
			return ""
		})
	}
	b.purge(winner)
	b.untilGPUs(loser, map[string]int{"native": 1, "whole": 16}[loser])
	b.purge(loser)
}

// An unhealthy GPU is not chosen; the other GPUs of its node are.
func testUnhealthy(t *testing.T, b *bed) {
	b.inventory(1, placerScores[1], map[int]bool{0: true})
	b.untilUnhealthy(1)
	b.run(gang("most", 15, 1).hcl())
	if got := b.untilGPUs("most", 15); slices.Contains(got, gpu(1, 0)) {
		t.Errorf("the unhealthy GPU was chosen: %v", got)
	}
	b.run(gang("last", 1, 1).hcl())
	b.until("no GPU is left", func() string {
		if e := b.explain("last"); !strings.Contains(e.Reason, "1 unhealthy") {
			return e.Reason
		}
		return ""
	})
	b.inventory(1, placerScores[1], nil)
	same(t, "healthy again", []string{gpu(1, 0)}, b.untilGPUs("last", 1))
	b.purge("most", "last")
}

// A waiting gang starts on a node when an operator ends the node's maintenance.
func testEligibleAgain(t *testing.T, b *bed) {
	nodes, _, err := b.API().Nodes().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	eligible := func(yes bool) {
		if _, err := b.API().Nodes().ToggleEligibility(nodes[0].ID, yes, nil); err != nil {
			t.Fatal(err)
		}
	}
	eligible(false)
	b.run(gang("whole", 4, 4).hcl())
	b.untilWaits("whole")
	eligible(true)
	b.untilGPUs("whole", 16)
	b.purge("whole")
}

func testEditedWhileWaiting(t *testing.T, b *bed) {
	b.fill("first", 4)
	b.run(gang("edited", 4, 4).hcl())
	b.untilWaits("edited")
	b.run(gang("edited", 1, 3).hcl())
	b.purge("first")
	b.untilGPUs("edited", 3)
	b.holds("as it was edited", func() string {
		if g := b.gpusOf("edited"); len(g) != 3 {
			return fmt.Sprint(g)
		}
		return ""
	})
	b.purge("edited")
}

// The author of a running gang makes it larger. The gang is placed again as a
// whole; until it fits, it keeps running as before.
func testGrows(t *testing.T, b *bed) {
	b.runs(gang("grower", 1, 2), 2)
	got := b.runs(gang("grower", 3, 2), 6)
	b.untilExplained("grower", got)
	b.run(gang("grower", 9, 2).hcl())
	b.holds("the old size runs on", func() string { return cmp.Diff(got, b.gpusOf("grower")) })
	b.purge("grower")
}
