// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestPlacerLife: what happens to jobs besides being placed. One cluster of 4
// nodes × 4 GPUs.
func TestPlacerLife(t *testing.T) {
	b := newBed(t, placerScores, cluster.Options{HeartbeatTTL: 2 * time.Second})
	const preempting = "queue {\n  order = \"priority\"\n  preempt = true\n  quantum = \"1s\"\n  restart_cost = \"1s\"\n}\n"
	for _, c := range []struct {
		name, config string
		test         func(*testing.T, *bed)
	}{
		{"priority preempts", preempting, testPreempt},
		{"placer dies while preempting", preempting, testDiesPreempting},
		{"fails by its own fault", "retries = 1\n", testUserFailure},
		{"fails by a GPU's fault", "", testGPUFailure},
		{"all of it fails by a GPU's fault", "", testGPUFailureOfAll},
		{"moved to better GPUs", "queue {\n  migrate = true\n  near = false\n  restart_cost = \"1s\"\n}\n", testMoved},
		{"quota of a namespace", "tenant \"default\" {\n  gpus = 4\n}\n", testQuota},
		{"two GPU tasks in a group", "", testTwoTasks},
		{"hard locality", "locality {\n  node = 1\n  rack = 1.3\n  cluster = 1.7\n}\n", testLocality},
		{"a group of none", "", testGroupOfNone},
		{"distinct hosts", "", testDistinctHosts},
		{"all released", "", testReleaseAll},
		{"system job", "", testSystem},
		{"service", "", testService},
		{"reverted", "", testReverted},
		{"node drained", "", testDrained},
		{"taken by a job without a gate", "", testBypass},
		{"GPU sick before the start", "", testSick},
		{"edited while waiting", "", testEditedWhileWaiting},
		{"gang grows", "", testGrows},
		{"failover", "high_availability {\n  enabled = true\n  lock_ttl = \"10s\"\n  lock_delay = \"1s\"\n}\n", testFailover},
		{"node goes down", "", testNodeDown},
		// Last: a new leader gives nodes five minutes before it calls them down.
		{"server restarts", "", testServerRestarts},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *b
			sub.t, sub.config = t, c.config
			sub.startAgent("nomad-pal")
			c.test(t, &sub)
		})
	}
}

// A gang of higher priority stops one that allows it; that one starts again
// when there is room.
func testPreempt(t *testing.T, b *bed) {
	low := gang("low", 4, 4)
	low.meta, low.extra = `pal_preempt = "true"`, "priority = 20"
	b.run(low.hcl())
	b.untilGPUs("low", 16)
	high := gang("high", 2, 4)
	high.extra = "priority = 80"
	b.run(high.hcl())
	b.untilGPUs("high", 8)
	b.until("the other waits, holding nothing", func() string {
		if e, g := b.explain("low"), b.gpusOf("low"); e.Phase != "waiting" || len(g) > 0 {
			return fmt.Sprintf("%s on %v", e.Phase, g)
		}
		return ""
	})
	b.purge("high")
	b.untilGPUs("low", 16)
	b.purge("low")
}

// Gate on, members running, and no placer that knows why: nothing is lost, and
// the next placer finds its way.
func testDiesPreempting(t *testing.T, b *bed) {
	low := gang("halfway", 4, 4)
	low.meta = `pal_preempt = "true"`
	b.run(low.hcl())
	b.untilGPUs("halfway", 16)
	before := b.members("halfway")
	b.stopAgent()
	info, _, err := b.API().Jobs().Info("halfway", nil)
	if err != nil {
		t.Fatal(err)
	}
	info.Constraints = append(info.Constraints, &api.Constraint{LTarget: "${meta.pal_gate}", RTarget: "open", Operand: "="})
	if _, _, err := b.API().Jobs().Register(info, nil); err != nil {
		t.Fatal(err)
	}
	b.startAgent("nomad-pal")
	b.until("the gate is off again", func() string { return b.constraints("halfway") })
	b.holds("the same allocations run", func() string {
		after := b.members("halfway")
		for i := range after {
			after[i].Version = before[0].Version
		}
		return cmp.Diff(before, after)
	})
	b.purge("halfway")
}

// constraints names the job's own constraints, "" for none.
func (b *bed) constraints(id string) string {
	info, _, err := b.API().Jobs().Info(id, nil)
	if err != nil {
		return err.Error()
	}
	if len(info.Constraints) > 0 {
		return fmt.Sprint(*info.Constraints[0])
	}
	return ""
}

// A service is pinned to nodes and a class ceiling: it is scaled, updated and
// reverted by Nomad's own means without the placer in the way.
func testService(t *testing.T, b *bed) {
	j := gang("web", 2, 1)
	j.kind = "service"
	j.groups[0].extra = "update {\n max_parallel = 1\n min_healthy_time = \"100ms\"\n healthy_deadline = \"30s\"\n progress_deadline = \"1m\"\n}\n"
	b.run(j.hcl())
	got := b.untilGPUs("web", 2)
	b.until("explain names the GPUs that Nomad chose", func() string { return cmp.Diff(got, b.explained("web")) })
	before := b.members("web")
	b.untilDeployed("web")
	// Scaled up beyond the node it was pinned to.
	if _, _, err := b.API().Jobs().Scale("web", "workers", ptr(6), "", false, nil, nil); err != nil {
		t.Fatal(err)
	}
	b.untilGPUs("web", 6)
	b.untilDeployed("web")
	for _, m := range before {
		if !slices.ContainsFunc(b.members("web"), func(n member) bool { return n.ID == m.ID }) {
			t.Errorf("scaling restarted allocation %s", m.ID)
		}
	}
	if _, _, err := b.API().Jobs().Scale("web", "workers", ptr(1), "", false, nil, nil); err != nil {
		t.Fatal(err)
	}
	b.untilGPUs("web", 1)
	b.untilDeployed("web")
	// An update through the gate: rolled out, still pinned.
	j.groups[0].count, j.seconds = 1, 4000
	b.run(j.hcl())
	b.until("the new version runs", func() string {
		if c := b.constraints("web"); c != "" {
			return c
		}
		for _, m := range b.members("web") {
			a, _, err := b.API().Allocations().Info(m.ID, nil)
			if err != nil {
				return err.Error()
			}
			if args := a.Job.TaskGroups[0].Tasks[0].Config["args"]; !strings.Contains(fmt.Sprint(args), "4000") {
				return fmt.Sprintf("it runs with %v", args)
			}
		}
		return ""
	})
	b.untilGPUs("web", 1)
	b.purge("web")
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

func ptr[T any](v T) *T { return &v }

// Somebody registers a job without a gate that takes a GPU which the placer has
// promised: no gang stays half placed, and none holds GPUs while it waits.
func testBypass(t *testing.T, b *bed) {
	b.run(gang("full", 4, 4).hcl())
	b.untilGPUs("full", 16)
	native := gang("native", 1, 1)
	job := b.parse(native.hcl())
	if _, _, err := b.API().Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	b.run(gang("whole", 4, 4).hcl())
	b.purge("full") // now native and whole race for the GPUs; either may win
	winner, loser := "", ""
	b.until("all or nothing", func() string {
		n, w := b.gpusOf("native"), b.gpusOf("whole")
		switch {
		case len(n) == 1 && len(w) == 0 && b.explain("whole").Phase == "waiting":
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
			if e := b.explain("whole"); e.Phase == "waiting" && len(b.gpusOf("whole")) > 0 {
				return fmt.Sprint(b.gpusOf("whole"))
			}
			return ""
		})
	}
	b.purge(winner)
	b.untilGPUs(loser, map[string]int{"native": 1, "whole": 16}[loser])
	b.purge(loser)
}

// A GPU that is sick is not chosen; its node's others are.
func testSick(t *testing.T, b *bed) {
	b.inventory(1, placerScores[1], map[int]bool{0: true})
	b.until("the GPU is known to be sick", func() string {
		if out, _ := b.pal("status"); !strings.Contains(out, "1 unhealthy") {
			return out
		}
		return ""
	})
	b.run(gang("most", 15, 1).hcl())
	if got := b.untilGPUs("most", 15); slices.Contains(got, gpu(1, 0)) {
		t.Errorf("the sick GPU was chosen: %v", got)
	}
	b.run(gang("last", 1, 1).hcl())
	b.until("nothing is left", func() string {
		if e := b.explain("last"); !strings.Contains(e.Reason, "1 unhealthy") {
			return e.Reason
		}
		return ""
	})
	b.inventory(1, placerScores[1], nil)
	same(t, "healthy again", []string{gpu(1, 0)}, b.untilGPUs("last", 1))
	b.purge("most", "last")
}

func testEditedWhileWaiting(t *testing.T, b *bed) {
	b.run(gang("first", 4, 4).hcl())
	b.untilGPUs("first", 16)
	b.run(gang("edited", 4, 4).hcl())
	b.until("it waits", func() string {
		if e := b.explain("edited"); e.Phase != "waiting" {
			return e.Phase
		}
		return ""
	})
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

// A running gang that its author makes larger is placed anew as a whole, and
// runs on as it was while that does not fit.
func testGrows(t *testing.T, b *bed) {
	b.run(gang("grower", 1, 2).hcl())
	b.untilGPUs("grower", 2)
	b.run(gang("grower", 3, 2).hcl())
	got := b.untilGPUs("grower", 6)
	b.until("explained", func() string { return cmp.Diff(got, b.explained("grower")) })
	b.run(gang("grower", 9, 2).hcl())
	b.holds("the old size runs on", func() string { return cmp.Diff(got, b.gpusOf("grower")) })
	b.purge("grower")
}

// Two agents: one leads. It dies, the other serves.
func testFailover(t *testing.T, b *bed) {
	leader := *b
	b.until("one leads", func() string {
		if h := b.http("/v1/health"); !strings.Contains(h, `"leader": true`) {
			return "health: " + h
		}
		return ""
	})
	other := *b
	other.dir = t.TempDir()
	other.startAgent("nomad-pal")
	b.run(gang("one", 1, 2).hcl())
	b.untilGPUs("one", 2)
	if h := other.http("/v1/health"); strings.Contains(h, `"leader": true`) {
		t.Errorf("two lead: %s", h)
	}
	_ = leader.agent.Process.Kill()
	_ = leader.agent.Wait()
	b.run(gang("two", 1, 2).hcl())
	b.untilGPUs("two", 2)
	if h := other.http("/v1/health"); !strings.Contains(h, `"leader": true`) {
		t.Errorf("the second does not lead: %s", h)
	}
	b.purge("one", "two")
}

// The server is killed and comes back: the stream breaks, the placer goes on.
func testServerRestarts(t *testing.T, b *bed) {
	b.run(gang("before", 1, 2).hcl())
	b.untilGPUs("before", 2)
	s := b.Servers()[0]
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.run(gang("after", 1, 2).hcl())
	b.untilGPUs("after", 2)
	same(t, "what ran before", 2, len(b.gpusOf("before")))
	b.purge("before", "after")
}

// A node that goes down takes a member with it: the gang is placed anew as a
// whole on other nodes.
func testNodeDown(t *testing.T, b *bed) {
	b.run(gang("mobile", 1, 4).hcl())
	same(t, "the best node", []string{gpu(1, 0), gpu(1, 1), gpu(1, 2), gpu(1, 3)}, b.untilGPUs("mobile", 4))
	n := b.Clients()[1]
	if err := n.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until("it runs elsewhere", func() string {
		g := b.gpusOf("mobile")
		if len(g) != 4 || slices.Contains(g, gpu(1, 0)) {
			return fmt.Sprintf("%v: %s", g, b.explain("mobile").Reason)
		}
		return ""
	})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.purge("mobile")
}

// once makes Nomad try nothing again by itself.
const once = "restart {\n attempts = 0\n mode = \"fail\"\n}\nreschedule {\n attempts = 0\n unlimited = false\n}\n"

// One member of a gang ends with exit code 3 whatever GPU it gets: the gang is
// tried once more and then given up; it holds no GPUs then.
func testUserFailure(t *testing.T, b *bed) {
	j := gang("broken", 2, 2)
	j.groups[0].extra = once
	j.script = "if [ $NOMAD_ALLOC_INDEX = 0 ]; then exit 3; fi; exec sleep 3600"
	b.run(j.hcl())
	b.until("given up", func() string {
		e := b.explain("broken")
		if g := b.gpusOf("broken"); e.Phase != "waiting" || !strings.Contains(e.Reason, "given up after 2 tries") || len(g) > 0 {
			return fmt.Sprintf("%s on %v: %s", e.Phase, g, e.Reason)
		}
		return ""
	})
	out, _ := b.pal("failures")
	mentions(t, out, "user", "exit code 3", "broken")
	// Mended and run again, it runs.
	j.script = ""
	b.run(j.hcl())
	b.untilGPUs("broken", 4)
	b.purge("broken")
}

// A GPU falls sick under a running gang and its member dies: the gang is placed
// anew as a whole elsewhere, and the GPU is kept out even when it is well again.
func testGPUFailure(t *testing.T, b *bed) {
	j := gang("unlucky", 2, 2)
	j.groups[0].extra = once
	flag := filepath.Join(b.dir, "die")
	j.script = "while sleep 0.2; do if [ -e " + flag + " ] && [ $NOMAD_ALLOC_INDEX = 0 ]; then exit 1; fi; done"
	b.run(j.hcl())
	same(t, "the best node", []string{gpu(1, 0), gpu(1, 1), gpu(1, 2), gpu(1, 3)}, b.untilGPUs("unlucky", 4))
	b.untilRunning("unlucky", 2)
	all := map[int]bool{0: true, 1: true, 2: true, 3: true}
	b.inventory(1, placerScores[1], all)
	b.until("the GPUs are known to be sick", func() string {
		if out, _ := b.pal("status"); !strings.Contains(out, "4 unhealthy") {
			return out
		}
		return ""
	})
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.until("the failure is seen", func() string {
		if out, _ := b.pal("failures"); !strings.Contains(out, "unlucky") {
			return out
		}
		return ""
	})
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	b.until("it runs elsewhere", func() string {
		g := b.gpusOf("unlucky")
		if len(g) != 4 || slices.ContainsFunc(g, func(id string) bool { return strings.HasPrefix(id, "GPU-1-") }) {
			return fmt.Sprintf("%v: %s", g, b.explain("unlucky").Reason)
		}
		return ""
	})
	out, _ := b.pal("failures")
	mentions(t, out, "infrastructure", "Quarantine", "is unhealthy")
	b.purge("unlucky")
	b.inventory(1, placerScores[1], nil)
	b.until("well again, but for the quarantine", func() string {
		if out, _ := b.pal("gpus"); !strings.Contains(out, "quarantined") {
			return out
		}
		return ""
	})
	b.forget("nomad-pal/quarantine")
}

// The whole gang dies of sick GPUs, and its author does not let Nomad try again:
// the placer does, elsewhere.
func testGPUFailureOfAll(t *testing.T, b *bed) {
	j := gang("doomed", 1, 4)
	j.groups[0].extra = once
	flag := filepath.Join(b.dir, "die-all")
	j.script = "while sleep 0.2; do if [ -e " + flag + " ]; then exit 1; fi; done"
	b.run(j.hcl())
	b.untilRunning("doomed", 1)
	b.inventory(1, placerScores[1], map[int]bool{0: true})
	b.until("the GPU is known to be sick", func() string {
		if out, _ := b.pal("status"); !strings.Contains(out, "1 unhealthy") {
			return out
		}
		return ""
	})
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.until("the failure is seen", func() string {
		if out, _ := b.pal("failures"); !strings.Contains(out, "doomed") {
			return out
		}
		return ""
	})
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	b.untilRunning("doomed", 1)
	if g := b.gpusOf("doomed"); slices.Contains(g, gpu(1, 0)) {
		t.Errorf("on the sick GPU again: %v", g)
	}
	b.purge("doomed")
	b.inventory(1, placerScores[1], nil)
	b.until("well again", func() string {
		if out, _ := b.pal("status"); !strings.Contains(out, "0 unhealthy") {
			return out
		}
		return ""
	})
	b.forget("nomad-pal/quarantine")
}

// untilRunning waits until n allocations of the job run.
func (b *bed) untilRunning(id string, n int) {
	b.t.Helper()
	b.until(fmt.Sprintf("%d allocations of %s run", n, id), func() string {
		stubs, _, err := b.API().Jobs().Allocations(id, true, nil)
		if err != nil {
			return err.Error()
		}
		running := 0
		for _, s := range stubs {
			if s.ClientStatus == "running" && s.DesiredStatus == "run" {
				running++
			}
		}
		if running != n {
			return fmt.Sprintf("%d run: %s", running, b.explain(id).Reason)
		}
		return ""
	})
}

// A gang that had to start across nodes is moved into one when there is room, if
// it allows that.
func testMoved(t *testing.T, b *bed) {
	for n := range 4 { // one GPU left on each node
		j := gang(fmt.Sprintf("blocker-%d", n), 1, 3)
		b.run(j.hcl())
		b.untilGPUs(j.id, 3)
	}
	j := gang("mover", 4, 1)
	j.meta = "pal_migrate = \"true\"\n    pal_duration = \"2h\""
	b.run(j.hcl())
	spread := b.untilGPUs("mover", 4)
	b.purge("blocker-0", "blocker-1", "blocker-2", "blocker-3")
	b.until("it runs within one node", func() string {
		g := b.gpusOf("mover")
		if len(g) != 4 || g[0][:5] != g[3][:5] {
			return fmt.Sprintf("%v, from %v", g, spread)
		}
		return ""
	})
	if e := b.explain("mover"); !strings.Contains(e.Note, "moved") {
		t.Errorf("explain says nothing of the move: %+v", e)
	}
	b.purge("mover")
}

// forget removes a variable, for the tests that follow. The agent of this test
// has it in memory; the next reads it anew.
func (b *bed) forget(path string) {
	b.t.Helper()
	b.stopAgent()
	if _, err := b.API().Variables().Delete(path, nil); err != nil {
		b.t.Fatal(err)
	}
}

// A namespace with a quota runs no more GPUs than that at a time.
func testQuota(t *testing.T, b *bed) {
	b.run(gang("within", 1, 4).hcl())
	b.untilGPUs("within", 4)
	b.run(gang("beyond", 1, 1).hcl())
	b.until("the quota is the reason", func() string {
		if e := b.explain("beyond"); e.Phase != "waiting" || !strings.Contains(e.Reason, "quota") {
			return e.Phase + ": " + e.Reason
		}
		return ""
	})
	b.holds("it waits", func() string { return strings.Join(b.gpusOf("beyond"), " ") })
	b.purge("within")
	b.untilGPUs("beyond", 1)
	b.purge("beyond")
}

// Two GPU tasks in a group, next to one without, in every member.
func testTwoTasks(t *testing.T, b *bed) {
	j := gang("pair", 2, 1)
	hcl := j.hcl()
	second := strings.Replace(hcl[strings.Index(hcl, `task "main"`):strings.LastIndex(hcl, "  }\n}")], `"main"`, `"second"`, 1)
	b.run(hcl[:strings.LastIndex(hcl, "  }\n}")] + second + "  }\n}\n")
	got := b.untilGPUs("pair", 4)
	same(t, "explained", got, b.explained("pair"))
	same(t, "each GPU once", 4, len(slices.Compact(slices.Clone(got))))
	b.purge("pair")
}

// pal_locality is a hard limit: six members do not fit a node of four GPUs, and
// never will.
func testLocality(t *testing.T, b *bed) {
	j := gang("close", 6, 1)
	j.meta = `pal_locality = "node"`
	b.run(j.hcl())
	b.until("it waits and says why", func() string {
		if e := b.explain("close"); e.Phase != "waiting" || !strings.Contains(e.Reason, "node") {
			return e.Phase + ": " + e.Reason
		}
		return ""
	})
	b.holds("it holds nothing", func() string { return strings.Join(b.gpusOf("close"), " ") })
	b.purge("close")
	j = gang("rack", 8, 1) // a rack has two nodes
	j.meta = `pal_locality = "rack"`
	b.run(j.hcl())
	got := b.untilGPUs("rack", 8)
	racks := map[bool]bool{}
	for _, id := range got {
		racks[id[4] < '2'] = true
	}
	same(t, "racks", 1, len(racks))
	b.purge("rack")
}

// nomad job revert brings back a version that was pinned, or one that was gated:
// both end up pinned, and running.
func testReverted(t *testing.T, b *bed) {
	j := gang("back", 1, 2)
	j.kind = "service"
	b.run(j.hcl())
	b.untilRunning("back", 1)
	b.untilDeployed("back")
	j.seconds = 4000
	b.run(j.hcl())
	for _, version := range []uint64{0, 1} { // gated, pinned
		b.until("the job is settled", func() string {
			if e := b.explain("back"); e.Phase != "running" {
				return e.Phase
			}
			return ""
		})
		b.untilDeployed("back")
		if _, _, err := b.API().Jobs().Revert("back", version, nil, nil, "", ""); err != nil {
			t.Fatal(err)
		}
		b.until("no gate is left", func() string { return b.constraints("back") })
		b.untilGPUs("back", 2)
	}
	b.purge("back")
}

// A drained node's gang goes elsewhere as a whole; a service gets another node.
func testDrained(t *testing.T, b *bed) {
	b.run(gang("drainee", 1, 4).hcl())
	same(t, "the best node", []string{gpu(1, 0), gpu(1, 1), gpu(1, 2), gpu(1, 3)}, b.untilGPUs("drainee", 4))
	service := gang("server", 1, 4)
	service.kind = "service"
	b.run(service.hcl())
	home := b.untilGPUs("server", 4)[0][:5]
	nodes, _, err := b.API().Nodes().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	drain := func(spec *api.DrainSpec) {
		for _, n := range nodes {
			if n.Name == "node-1" || n.Name == "node-"+home[4:] {
				if _, err := b.API().Nodes().UpdateDrain(n.ID, spec, spec == nil, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	drain(&api.DrainSpec{Deadline: -1}) // at once
	for _, id := range []string{"drainee", "server"} {
		b.until(id+" runs elsewhere", func() string {
			g := b.gpusOf(id)
			if len(g) != 4 || slices.ContainsFunc(g, func(u string) bool { return u[:5] == "GPU-1" || u[:5] == home }) {
				return fmt.Sprintf("%v: %s", g, b.explain(id).Reason)
			}
			return ""
		})
	}
	drain(nil)
	b.purge("drainee", "server")
}

// A GPU group with count 0 beside one that runs.
func testGroupOfNone(t *testing.T, b *bed) {
	j := gang("some", 2, 1)
	j.groups = append(j.groups, group{name: "none", count: 0, gpus: 2})
	b.run(j.hcl())
	same(t, "explained", b.untilGPUs("some", 2), b.explained("some"))
	b.purge("some")
}

func testDistinctHosts(t *testing.T, b *bed) {
	j := gang("apart", 4, 1)
	j.groups[0].extra = "constraint {\n  distinct_hosts = true\n}\n"
	b.run(j.hcl())
	nodes := map[byte]bool{}
	for _, id := range b.untilGPUs("apart", 4) {
		nodes[id[4]] = true
	}
	same(t, "nodes", 4, len(nodes))
	b.purge("apart")
}

// All that carries our constraints is given back at once, and runs on.
func testReleaseAll(t *testing.T, b *bed) {
	b.run(gang("placed", 1, 2).hcl())
	b.untilGPUs("placed", 2)
	b.run(gang("held", 5, 4).hcl()) // larger than the cluster
	b.stopAgent()
	if out, code := b.pal("release", "-all", "-gate-only"); code != 0 || !strings.Contains(out, "held") || strings.Contains(out, "placed") {
		t.Errorf("release -all -gate-only: exit code %d: %s", code, out)
	}
	if out, code := b.pal("release", "-all"); code != 0 || !strings.Contains(out, "placed") {
		t.Errorf("release -all: exit code %d: %s", code, out)
	}
	if out, _ := b.pal("release", "-all"); !strings.Contains(out, "Nothing to release") {
		t.Errorf("released twice: %s", out)
	}
	b.untilRunning("placed", 1)
	b.purge("placed", "held")
}

// A system job has nothing to choose; the placer says so and leaves it gated.
func testSystem(t *testing.T, b *bed) {
	j := gang("everywhere", 1, 1)
	j.kind = "system"
	job := b.parse(j.hcl())
	job.Constraints = append(job.Constraints, &api.Constraint{LTarget: "${meta.pal_gate}", RTarget: "open", Operand: "="})
	if _, _, err := b.API().Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	b.until("it says why", func() string {
		if e := b.explain("everywhere"); !strings.Contains(e.Reason, "nothing to choose") {
			return e.Reason
		}
		return ""
	})
	b.purge("everywhere")
}
