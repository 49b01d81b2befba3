// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// A gang that had to start on several nodes is moved to one when it has room, if
// the gang allows that.
func testMoved(_ *testing.T, b *bed) {
	for n := range 4 { // one GPU left on each node
		j := gang(fmt.Sprintf("blocker-%d", n), 1, 3)
		b.run(j.hcl())
		b.untilGPUs(j.id, 3)
	}
	j := gang("mover", 4, 1)
	j.meta = "pal_migrate = \"true\"\n    pal_duration = \"2h\""
	spread := b.runs(j, 4)
	b.purge("blocker-0", "blocker-1", "blocker-2", "blocker-3")
	b.until("the gang runs on one node", func() string {
		g := b.gpusOf("mover")
		if len(g) != 4 || g[0][:5] != g[3][:5] {
			return fmt.Sprintf("%v, from %v", g, spread)
		}
		return ""
	})
	b.until("explain tells of the move", func() string { // once its old members have ended
		if e := b.explain("mover"); !strings.Contains(e.Note, "moved") {
			return fmt.Sprintf("%+v", e)
		}
		return ""
	})
	b.purge("mover")
}

// forget deletes a variable before the next test. The agent of this test still has it in memory;
// the next agent reads it again.
func (b *bed) forget(path string) {
	b.t.Helper()
	b.stopAgent()
	if _, err := b.API().Variables().Delete(path, nil); err != nil {
		b.t.Fatal(err)
	}
}

// A namespace never runs on more GPUs than its quota.
func testQuota(t *testing.T, b *bed) {
	b.fill("within", 1)
	b.run(gang("beyond", 1, 1).hcl())
	b.untilWaits("beyond", "quota")
	b.waitsOn("beyond")
	b.purge("within")
	b.untilGPUs("beyond", 1)
	b.purge("beyond")
}

// A user never holds more GPUs than the tenant's limit per user, and other users are not affected.
// status lists what users hold.
func testUserLimit(t *testing.T, b *bed) {
	within, beyond, other := gang("within", 2, 1), gang("beyond", 2, 1), gang("other", 2, 1)
	within.meta, beyond.meta, other.meta = `pal_user = "ada"`, `pal_user = "ada"`, `pal_user = "bob"`
	b.runs(within, 2)
	b.run(beyond.hcl())
	b.untilWaits("beyond", "user ada holds 2 in tenant all and may hold at most 3")
	b.runs(other, 2)
	b.says("status", "ada   all     2     3", "bob   all     2     3")
	b.purge("within")
	b.untilGPUs("beyond", 2)
	b.purge("beyond", "other")
}

// Each member has a group with two GPU tasks and one without a GPU.
func testTwoTasks(t *testing.T, b *bed) {
	j := gang("pair", 2, 1)
	hcl := j.hcl()
	second := strings.Replace(hcl[strings.Index(hcl, `task "main"`):strings.LastIndex(hcl, "  }\n}")], `"main"`, `"second"`, 1)
	b.run(hcl[:strings.LastIndex(hcl, "  }\n}")] + second + "  }\n}\n")
	got := b.untilGPUs("pair", 4)
	b.untilExplained("pair", got)
	same(t, "each GPU once", 4, len(slices.Compact(slices.Clone(got))))
	b.purge("pair")
}

// pal_locality is a hard limit: six members with a GPU each never fit a node
// with four GPUs.
func testLocality(t *testing.T, b *bed) {
	j := gang("close", 6, 1)
	j.meta = `pal_locality = "node"`
	b.run(j.hcl())
	b.untilWaits("close", "node")
	b.waitsOn("close")
	b.purge("close")
	j = gang("rack", 8, 1) // a rack has two nodes
	j.meta = `pal_locality = "rack"`
	got := b.runs(j, 8)
	racks := map[bool]bool{}
	for _, id := range got {
		racks[id[4] < '2'] = true
	}
	same(t, "racks", 1, len(racks))
	b.purge("rack")
}

// nomad job revert brings back a pinned version or a gated one: both end up
// pinned and running.
func testReverted(t *testing.T, b *bed) {
	j := gang("back", 1, 2)
	j.kind = "service"
	b.run(j.hcl())
	b.untilRunning("back", 1)
	b.untilDeployed("back")
	j.seconds = 4000
	b.run(j.hcl())
	for _, version := range []uint64{0, 1} { // gated, pinned
		b.untilState("back", "running")
		b.untilDeployed("back")
		if _, _, err := b.API().Jobs().Revert("back", version, nil, nil, "", ""); err != nil {
			t.Fatal(err)
		}
		b.until("no gate is left", func() string { return b.gate("back") })
		b.untilGPUs("back", 2)
	}
	b.purge("back")
}

// The gang of a drained node moves as a whole; a service gets another node.
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
	drain(&api.DrainSpec{Deadline: -1}) // without waiting
	for _, id := range []string{"drainee", "server"} {
		b.until(id+" runs elsewhere", func() string {
			g := b.gpusOf(id)
			if len(g) != 4 || slices.ContainsFunc(g, func(u string) bool { return u[:5] == "GPU-1" || u[:5] == home }) {
				return fmt.Sprint(g)
			}
			return ""
		})
	}
	drain(nil)
	b.purge("drainee", "server")
}

// A job has a GPU group with count 0 beside one that runs.
func testGroupOfNone(t *testing.T, b *bed) {
	j := gang("some", 2, 1)
	j.groups = append(j.groups, group{name: "none", count: 0, gpus: 2})
	b.run(j.hcl())
	b.untilExplained("some", b.untilGPUs("some", 2))
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

// Without a placer, release -all -now removes the gate of waiting jobs, and restarts no running job.
func testReleaseAll(t *testing.T, b *bed) {
	runs := b.runs(gang("placed", 1, 2), 2)
	b.run(gang("held", 5, 4).hcl()) // larger than the cluster
	b.stopAgent()
	if out, code := b.pal("release", "-all"); code != 3 || !strings.Contains(out, "release -now") {
		t.Errorf("release -all: exit code %d: %s", code, out)
	}
	if out, code := b.pal("release", "-all", "-now"); code != 0 || !strings.Contains(out, "held") || !strings.Contains(out, "placed") {
		t.Errorf("release -all -now: exit code %d: %s", code, out)
	}
	b.says("release -all", "Nothing to release") // a second release finds nothing
	same(t, "the GPUs of the running job", runs, b.untilGPUs("placed", 2))
	b.untilRunning("placed", 1)
	b.purge("placed", "held")
}

// For a system job there is nothing to choose. explain says so, and the job
// stays gated.
func testSystem(t *testing.T, b *bed) {
	j := gang("everywhere", 1, 1)
	j.kind = "system"
	job := b.parse(j.hcl())
	job.Constraints = append(job.Constraints, &api.Constraint{LTarget: "${meta.pal_gate}", RTarget: "open", Operand: "="})
	register(b.t, b.Cluster, job)
	b.until("explain says why", func() string {
		if e := b.explain("everywhere"); !strings.Contains(e.Reason, "nothing to choose") {
			return e.Reason
		}
		return ""
	})
	b.purge("everywhere")
}
