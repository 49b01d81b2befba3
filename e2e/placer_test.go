// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestPlacer: the placer's main work. One cluster of 4 nodes × 4 GPUs serves
// all subtests; each leaves it empty.
func TestPlacer(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores, cluster.Options{})
	b.tell([]scene{
		{"single GPU", "", testSingle},
		{"run watches", "", testRunWatches},
		{"gang in one node", "", testOneNode},
		{"gang across nodes", "", testAcrossNodes},
		{"waits and holds nothing", "", testWaits},
		{"run again", "", testRunAgain},
		{"bad input", "", testBadInput},
		{"plan", "", testPlan},
		{"release", "", testRelease},
	})
	b.tellLong([]scene{
		{"several groups", "", testSeveralGroups},
		{"stopped while waiting", "", testStoppedWhileWaiting},
		{"two want the same", "", testTwoWantTheSame},
	})
	b.killed(testKilled)
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func mentions(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

func testSingle(t *testing.T, b *bed) {
	got := b.runs(gang("single", 1, 1), 1)
	same(t, "the fastest GPU", []string{gpu(1, 0)}, got)
	b.until("ready", func() string {
		if d := cmp.Diff(got, b.explained("single")); d != "" {
			return d
		}
		return ""
	})
	b.says("explain -verbose single", "Chosen GPUs", "packed", "node-1:0")
	b.purge("single")
}

// Without -detach, run waits until the gang runs and shows it.
func testRunWatches(t *testing.T, b *bed) {
	b.until("the agent publishes its address", func() string {
		if out, code := b.output(b.Command(t.Context(), "nomad-pal", "queue")); code != 0 {
			return out
		}
		return ""
	})
	out, code := b.palJob("run", gang("watched", 2, 1).hcl(), "-verbose")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	mentions(t, out, "running: 2 of 2 members", "Chosen GPUs", "Allocations")
	b.purge("watched")
}

func testOneNode(t *testing.T, b *bed) {
	b.run(gang("node", 1, 4).hcl())
	same(t, "all of the best node", []string{gpu(1, 0), gpu(1, 1), gpu(1, 2), gpu(1, 3)}, b.untilGPUs("node", 4))
	b.purge("node")
}

// Six members do not fit on one node. The gang gets no outlier (GPU-0-3 and
// GPU-3-2), although it needs other GPUs of their nodes.
func testAcrossNodes(t *testing.T, b *bed) {
	got := b.runs(gang("across", 14, 1), 14)
	if slices.Contains(got, gpu(0, 3)) || slices.Contains(got, gpu(3, 2)) {
		t.Fatalf("an outlier is in the gang: %v", got)
	}
	b.untilExplained("across", got)
	b.says("explain -verbose across", "L×V matrix", "Chosen GPUs", "packed")
	b.purge("across")
}

func testSeveralGroups(t *testing.T, b *bed) {
	j := job{id: "groups", groups: []group{{name: "actors", count: 2, gpus: 1}, {name: "learner", count: 1, gpus: 2}}}
	got := b.runs(j, 4)
	b.untilExplained("groups", got)
	same(t, "all in the best node", []string{gpu(1, 0), gpu(1, 1), gpu(1, 2), gpu(1, 3)}, got)
	b.purge("groups")
}

// A gang that is larger than the free GPUs holds none of them, and starts when
// GPUs become free.
func testWaits(t *testing.T, b *bed) {
	b.fill("first", 3)
	b.run(gang("second", 2, 4).hcl())
	b.untilWaits("second", "8 GPUs")
	b.waitsOn("second")
	b.purge("first")
	b.untilGPUs("second", 8)
	b.purge("second")
}

// Running the same file again adds the gate to a placed job. No member
// restarts.
func testRunAgain(t *testing.T, b *bed) {
	j := gang("again", 2, 2)
	b.runs(j, 4)
	before := b.members("again")
	for range 2 {
		b.run(j.hcl())
		b.until("the gate is off again", func() string {
			info, _, err := b.API().Jobs().Info("again", nil)
			if err != nil {
				return err.Error()
			}
			if rewrite.Gated(info) || *info.Version%2 == 0 {
				return fmt.Sprintf("version %d, gate on: %v", *info.Version, rewrite.Gated(info))
			}
			return ""
		})
	}
	b.holds("the same allocations run", func() string {
		after := b.members("again")
		for i := range after {
			after[i].Version = before[0].Version
		}
		return cmp.Diff(before, after)
	})
	b.untilState("again", "running")
	b.purge("again")
}

func testStoppedWhileWaiting(t *testing.T, b *bed) {
	b.fill("blocker", 4)
	b.run(gang("quitter", 1, 1).hcl())
	b.run(gang("patient", 1, 1).hcl())
	b.untilSays("queue", "quitter")
	b.untilSays("queue", "patient")
	b.deregister("quitter", false)
	b.purge("blocker")
	b.untilGPUs("patient", 1)
	b.waitsOn("quitter")
	b.purge("patient", "quitter")
}

// Two gangs each need 3 of the same 4 nodes: one runs complete, the other holds
// no GPU.
func testTwoWantTheSame(t *testing.T, b *bed) {
	b.run(gang("left", 3, 4).hcl())
	b.run(gang("right", 3, 4).hcl())
	b.untilGPUs("left", 12)
	b.waitsOn("right")
	b.purge("left")
	b.untilGPUs("right", 12)
	b.purge("right")
}

func testBadInput(t *testing.T, b *bed) {
	bad := gang("bad-class", 1, 1)
	bad.meta = `pal_class = "Z"`
	out, code := b.palJob("run", bad.hcl(), "-detach")
	if code == 0 || !strings.Contains(out, `pal_class = "Z"`) {
		t.Errorf("run of a bad class: exit code %d: %s", code, out)
	}
	b.run(gang("too-large", 5, 4).hcl())
	b.until("too large for the cluster", func() string {
		if e := b.explain("too-large"); !strings.Contains(e.Reason, "needs 20 GPUs; the cluster has 16") {
			return e.Reason
		}
		return ""
	})
	// The unschedulable job holds up no other.
	b.runs(gang("small", 1, 1), 1)
	b.purge("too-large", "small")
}

func testPlan(t *testing.T, b *bed) {
	out, code := b.palJob("plan", gang("planned", 1, 2).hcl())
	if code != 1 || !strings.Contains(out, "would start now") || !strings.Contains(out, "node-1:0") {
		t.Errorf("plan of a job that fits: exit code %d: %s", code, out)
	}
	out, code = b.palJob("plan", gang("planned", 5, 4).hcl())
	if code != 2 || !strings.Contains(out, "needs 20 GPUs") {
		t.Errorf("plan of a job that never fits: exit code %d: %s", code, out)
	}
	if jobs, _, err := b.API().Jobs().List(nil); err != nil || slices.ContainsFunc(jobs, func(j *jobStub) bool { return j.ID == "planned" }) {
		t.Errorf("plan registered the job: %v", err)
	}
}

// A waiting gang is released: all its members start when they fit. Then the job is as its author
// wrote it, and no member was restarted. A running gang is released without a restart.
func testRelease(t *testing.T, b *bed) {
	fills := b.runs(gang("fills", 3, 4), 12)
	b.run(gang("whole", 2, 4).hcl())
	type ended struct {
		out  string
		code int
	}
	end := make(chan ended, 1)
	go func() {
		out, code := b.pal("release", "whole")
		end <- ended{out, code}
	}()
	b.until("the agent knows of the release", func() string {
		out, _ := b.pal("explain", "-verbose", "whole")
		if !strings.Contains(strings.Join(strings.Fields(out), " "), "handed over to Nomad") {
			return out
		}
		return ""
	})
	if got := b.gpusOf("whole"); len(got) > 0 {
		t.Errorf("members started before all fit: %v", got)
	}
	if out, code := b.pal("release", "fills"); code != 0 || !strings.Contains(out, "Released default/fills") {
		t.Errorf("exit code %d: %s", code, out)
	}
	same(t, "the GPUs of a running gang after its release", fills, b.untilGPUs("fills", 12))
	b.purge("fills")
	if e := <-end; e.code != 0 || !strings.Contains(e.out, "Released default/whole") {
		t.Errorf("exit code %d: %s", e.code, e.out)
	}
	info := b.info("whole")
	g := info.TaskGroups[0]
	if len(info.Constraints) > 0 || len(g.Constraints) > 0 || len(g.Tasks[0].Resources.Devices[0].Constraints) > 0 {
		t.Errorf("constraints are left: %v %v", info.Constraints, g.Constraints)
	}
	b.untilGPUs("whole", 8)
	if all, _, err := b.API().Jobs().Allocations("whole", true, nil); err != nil || len(all) != 2 {
		t.Errorf("%d allocations, want the 2 that started: %v", len(all), err)
	}
	b.purge("whole")
}

// The placer is killed with SIGKILL. The next one completes the job, and gives
// no GPU twice.
func testKilled(t *testing.T, b *bed, at string) {
	b.startAgent("nomad-pal-fault", "NOMAD_PAL_FAULT="+at)
	b.run(gang("victim", 2, 2).hcl())
	b.waitDead()
	b.run(gang("other", 2, 2).hcl())
	b.startAgent("nomad-pal")
	victim, other := b.untilGPUs("victim", 4), b.untilGPUs("other", 4)
	for _, id := range other {
		if slices.Contains(victim, id) {
			t.Fatalf("GPU %s was given twice", id)
		}
	}
	b.untilExplained("victim", victim)
	b.holds("one version, one gang", func() string { return cmp.Diff(victim, b.gpusOf("victim")) })
	b.purge("victim", "other")
}
