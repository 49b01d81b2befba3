// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Of two agents, one leads. When it is killed, the other one takes over.
func testFailover(t *testing.T, b *bed) {
	b.until("one leads", func() string {
		if h := b.http("/v1/health"); !strings.Contains(h, `"leader": true`) {
			return "health: " + h
		}
		return ""
	})
	other := *b
	other.startAgent("nomad-pal")
	b.runs(gang("one", 1, 2), 2)
	if h := other.http("/v1/health"); strings.Contains(h, `"leader": true`) {
		t.Errorf("two lead: %s", h)
	}
	b.killAgent()
	b.runs(gang("two", 1, 2), 2)
	if h := other.http("/v1/health"); !strings.Contains(h, `"leader": true`) {
		t.Errorf("the second does not lead: %s", h)
	}
	b.purge("one", "two")
}

// The server is killed and restarted: the event stream breaks, and the placer
// continues.
func testServerRestarts(t *testing.T, b *bed) {
	b.runs(gang("before", 1, 2), 2)
	s := b.Servers()[0]
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.runs(gang("after", 1, 2), 2)
	same(t, "what ran before", 2, len(b.gpusOf("before")))
	b.purge("before", "after")
}

// A node goes down with a member: the whole gang is placed again on other
// nodes.
func testNodeDown(t *testing.T, b *bed) {
	b.run(gang("mobile", 1, 4).hcl())
	same(t, "the best node", []string{gpu(1, 0), gpu(1, 1), gpu(1, 2), gpu(1, 3)}, b.untilGPUs("mobile", 4))
	n := b.Clients()[1]
	if err := n.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until("the gang runs on other nodes", func() string {
		g := b.gpusOf("mobile")
		if len(g) != 4 || slices.Contains(g, gpu(1, 0)) {
			return fmt.Sprint(g)
		}
		return ""
	})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.purge("mobile")
}

// A member ends while its node is disconnected, which the job allows. When the node is back, all
// members have completed and the gang has ended, although Nomad calls the job pending until
// lost_after has passed.
func testDoneWhileDisconnected(t *testing.T, b *bed) {
	j := gang("away", 2, 4)
	j.groups[0].extra = "disconnect {\n lost_after = \"1h\"\n}\n"
	flag := filepath.Join(b.dir, "end")
	j.script = "while sleep 0.2; do if [ -e " + flag + " ]; then exit 0; fi; done"
	b.run(j.hcl())
	b.untilRunning("away", 2)
	n := b.Clients()[1]
	if err := n.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.untilRunning("away", 1)
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.untilState("away", "ended")
	if out, _ := b.pal("queue"); strings.Contains(out, "away") {
		t.Errorf("it is still in the queue:\n%s", out)
	}
	b.purge("away")
}

// A gang is preempted while one of its nodes is disconnected, as its author allows. The
// placer does not wait for the member there, which Nomad cannot stop. The gang starts again
// on other nodes and keeps running when the node is back; Nomad then stops the old member.
func testPreemptedWhileDisconnected(t *testing.T, b *bed) {
	j := gang("away", 2, 4)
	j.meta, j.extra = `pal_preempt = "true"`, "priority = 20"
	j.groups[0].extra = "disconnect {\n lost_after = \"1h\"\n}\n"
	b.run(j.hcl())
	b.untilRunning("away", 2)
	n := b.Clients()[1]
	b.until("the gang runs on node-1, too", func() string { return without(b.gpusOf("away"), gpu(1, 0)) })
	if err := n.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.untilRunning("away", 1)
	urgent := gang("urgent", 3, 4)
	urgent.extra = "priority = 90"
	b.run(urgent.hcl())
	b.untilRunning("urgent", 3)
	b.purge("urgent")
	b.untilState("away", "running")
	elsewhere := b.members("away")
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until("no member of it is left on node-1", func() string {
		if g := b.gpusOf("away"); without(g, gpu(1, 0)) == "" || len(g) != 8 {
			return fmt.Sprint(g)
		}
		return ""
	})
	b.holds("the others run on", func() string { return missing(kept(elsewhere, b.members("away")), 2) })
	b.purge("away")
}

// without returns "" if a GPU is among these, and a message if not.
func without(gpus []string, id string) string {
	if slices.Contains(gpus, id) {
		return ""
	}
	return fmt.Sprintf("%s is not among %v", id, gpus)
}

// The author of a gang runs the same file again after the gang has ended, but
// before Nomad knows of the end. Only the old version has ended, so Nomad would
// run the new one: the gang is placed once more. To get this order, the test
// pauses the nodes and stops the placer.
func testRunAgainAsItEnds(t *testing.T, b *bed) {
	j := gang("again", 2, 4)
	j.script = "until [ -e " + filepath.Join(b.dir, "ends") + " ]; do sleep 0.1; done; touch " + filepath.Join(b.dir, "ended-") + "$NOMAD_ALLOC_ID"
	b.run(j.hcl())
	b.untilRunning("again", 2)
	b.stopAgent()
	for _, n := range b.Clients() {
		if err := n.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.dir, "ends"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.until("the members have ended", func() string {
		if ended, _ := filepath.Glob(filepath.Join(b.dir, "ended-*")); len(ended) < 2 {
			return fmt.Sprint(ended)
		}
		return ""
	})
	register(b.t, b.Cluster, rewrite.Gate(b.parse(j.hcl())))
	for _, n := range b.Clients() {
		if err := n.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	completed := func(want int) func() string {
		return func() string {
			as, _, err := b.API().Jobs().Allocations("again", true, nil)
			if err != nil {
				return err.Error()
			}
			n := 0
			for _, a := range as {
				if a.ClientStatus == api.AllocClientStatusComplete {
					n++
				}
			}
			return missing(n, want)
		}
	}
	b.until("Nomad knows that they have ended", completed(2))
	b.startAgent("nomad-pal")
	b.until("the gang has run again", completed(4))
	b.purge("again")
}

// once disables Nomad's own retries.
const once = "restart {\n attempts = 0\n mode = \"fail\"\n}\nreschedule {\n attempts = 0\n unlimited = false\n}\n"

// One member of a gang always ends with exit code 3. The gang is tried once more,
// on other nodes, as explain says, and then given up; it then holds no GPUs.
func testUserFailure(t *testing.T, b *bed) {
	j := gang("broken", 2, 2)
	j.groups[0].extra, j.groups[0].kill = once, "30s"
	end := filepath.Join(b.dir, "end") // the other member must not end before, because the gang waits for it
	j.script = "if [ $NOMAD_ALLOC_INDEX = 0 ]; then exit 3; fi; trap 'until [ -e " + end + " ]; do sleep 0.1; done; exit' INT TERM; while :; do sleep 0.1; done"
	b.run(j.hcl())
	b.until("explain says that the gang goes to other nodes", func() string {
		if e := b.explain("broken"); !strings.Contains(e.Note, "nomad-pal avoids node-") {
			return e.State + ": " + e.Note
		}
		return ""
	})
	if err := os.WriteFile(end, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.until("given up", func() string {
		e := b.explain("broken")
		if g := b.gpusOf("broken"); e.State != "failed" || !strings.Contains(e.Reason, "given up after 2 tries") || len(g) > 0 {
			return fmt.Sprintf("%s on %v: %s", e.State, g, e.Reason)
		}
		return ""
	})
	b.says("events -failures", "user", "exit code 3", "broken")
	stubs, _, err := b.API().Jobs().Allocations("broken", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	failedOn := map[string]bool{}
	for _, s := range stubs {
		if s.ClientStatus == "failed" {
			failedOn[s.NodeName] = true
		}
	}
	if len(failedOn) != 2 {
		t.Errorf("the gang was tried on %v, which are not two nodes", slices.Sorted(maps.Keys(failedOn)))
	}
	// After the job is fixed and run again, it runs.
	j.script = ""
	b.runs(j, 4)
	b.purge("broken")
}

// A GPU becomes unhealthy under a running gang, and the member on it fails. The whole
// gang is placed again on other GPUs, and the GPU stays in quarantine even when it is
// healthy again.
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
	b.untilUnhealthy(4)
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.untilSays("events -failures", "unlucky")
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	b.until("the gang runs on other GPUs", func() string {
		g := b.gpusOf("unlucky")
		if len(g) != 4 || slices.ContainsFunc(g, func(id string) bool { return strings.HasPrefix(id, "GPU-1-") }) {
			return fmt.Sprint(g)
		}
		return ""
	})
	b.says("events -failures", "infrastructure", "quarantined", "is unhealthy")
	b.purge("unlucky")
	b.inventory(1, placerScores[1], nil)
	b.untilSays("gpus", "quarantined")
	testLift(t, b)
}

// An operator lifts the quarantine: the active agent notices by itself.
func testLift(t *testing.T, b *bed) {
	b.run(gang("patient", 4, 4).hcl())
	b.untilSays("explain -verbose patient", "quarantine")
	b.holds("it waits", func() string {
		if g := b.gpusOf("patient"); len(g) > 0 {
			return fmt.Sprintf("it runs on %v", g)
		}
		return ""
	})
	b.says("quarantine", "GPU-1-", "is unhealthy")
	if out, code := b.pal("quarantine", "-lift", gpu(0, 0)); code == 0 || !strings.Contains(out, `GPU "GPU-0-0" is not in quarantine`) {
		t.Errorf("lifting a quarantine that does not exist: exit code %d: %s", code, out)
	}
	out, _ := b.pal("quarantine", "-lift", "-all")
	lifted := time.Now()
	mentions(t, out, "Lifted the quarantine of GPU-1-")
	b.untilGPUs("patient", 16)
	if took := time.Since(lifted); took > 15*time.Second {
		t.Errorf("it took %v from the lift to the start", took)
	}
	b.says("quarantine", "No GPU is in quarantine")
	b.purge("patient")
}

// All members of a gang fail because their GPUs become unhealthy. Its author does not
// let Nomad retry: the placer starts the gang on other GPUs.
func testGPUFailureOfAll(t *testing.T, b *bed) {
	j := gang("doomed", 1, 4)
	j.groups[0].extra = once
	flag := filepath.Join(b.dir, "die-all")
	j.script = "while sleep 0.2; do if [ -e " + flag + " ]; then exit 1; fi; done"
	b.run(j.hcl())
	b.untilRunning("doomed", 1)
	b.inventory(1, placerScores[1], map[int]bool{0: true})
	b.untilUnhealthy(1)
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.untilSays("events -failures", "doomed")
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	b.untilRunning("doomed", 1)
	if g := b.gpusOf("doomed"); slices.Contains(g, gpu(1, 0)) {
		t.Errorf("on the unhealthy GPU again: %v", g)
	}
	b.purge("doomed")
	b.inventory(1, placerScores[1], nil)
	b.untilUnhealthy(0)
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
			return fmt.Sprintf("%d run", running)
		}
		return ""
	})
}

// Three replicas run on three nodes. While their version changes, and when a client is killed,
// two of them always run, as with plain Nomad.
func testReplicasOutliveANode(t *testing.T, b *bed) {
	j := gang("api", 3, 1)
	j.kind = "service"
	j.groups[0].extra = "update {\n max_parallel = 1\n min_healthy_time = \"100ms\"\n}\n"
	b.runs(j, 3)
	b.untilDeployed("api")
	b.says("explain api", "The 3 replicas are on 3 nodes")
	running := func() (n int) {
		stubs, _, err := b.API().Jobs().Allocations("api", true, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range stubs {
			if a.ClientStatus == api.AllocClientStatusRunning {
				n++
			}
		}
		return n
	}
	nodes := func() (of []int) {
		for _, id := range b.untilGPUs("api", 3) {
			of = append(of, int(id[len("GPU-")]-'0'))
		}
		return slices.Compact(of)
	}
	same(t, "nodes", 3, len(nodes()))
	j.seconds = 4000
	b.run(j.hcl())
	least := 3
	b.until("the new version runs", func() string {
		least = min(least, running())
		d, _, err := b.API().Jobs().LatestDeployment("api", nil)
		if err != nil || d == nil || d.JobVersion < 2 || d.Status != "successful" {
			return fmt.Sprint(d, err)
		}
		return ""
	})
	if least < 2 {
		t.Errorf("%d replicas ran while the version changed", least)
	}
	on := nodes()
	same(t, "nodes after the update", 3, len(on))
	before := b.members("api")
	n := b.Clients()[on[0]]
	if err := n.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	survivors := slices.DeleteFunc(before, func(m member) bool { return int(m.GPUs[0][len("GPU-")]-'0') == on[0] })
	same(t, "survivors", 2, len(survivors))
	b.until("three run on other nodes", func() string {
		now := b.members("api")
		if lost := missing(kept(survivors, now), 2); lost != "" {
			t.Fatalf("replicas on other nodes keep running: %s", lost)
		}
		if len(now) != 3 || slices.Contains(nodes(), on[0]) {
			return fmt.Sprint(now)
		}
		return ""
	})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.purge("api")
}
