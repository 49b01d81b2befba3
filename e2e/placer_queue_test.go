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

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestPlacerQueue: what the placer remembers about jobs, and how it handles
// jobs that change meanwhile.
func TestPlacerQueue(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores, cluster.Options{})
	const fifo = "queue {\n  order = \"fifo\"\n}\n"
	b.tell([]scene{
		{"an edit keeps its place", fifo, testEditKeepsPlace},
		{"run times outlive the placer", "", testRunTimesSurvive},
		{"only the lost member is replaced", "", testMemberReplaced},
		{"elastic", "queue {\n  restart_cost = \"1s\"\n}\n", testElastic},
	})
	b.tellLong([]scene{
		{"more GPUs go to the end", fifo, testMoreGoToTheEnd},
		{"purged while it is placed", "", testPurgedWhilePlaced},
		{"tried once more as explain says", "", testTriedOnceMore},
		{"reasons are said once", "", testReasons},
	})
}

// killAgent kills the placer without warning.
func (b *bed) killAgent() {
	b.t.Helper()
	if err := b.placer.Kill(); err != nil {
		b.t.Fatal(err)
	}
}

// A waiting job that is registered again stays before a job that came later,
// also for a placer that was started afterwards.
func testEditKeepsPlace(t *testing.T, b *bed) {
	b.fill("full", 4)
	early := gang("early", 4, 4)
	b.run(early.hcl())
	b.untilWaits("early")
	b.run(gang("late", 4, 4).hcl())
	b.untilWaits("late")
	early.seconds = 4000
	b.run(early.hcl())
	b.killAgent()
	early.seconds, early.groups[0].count = 4001, 3
	b.run(early.hcl())
	b.startAgent("nomad-pal")
	b.purge("full")
	b.untilGPUs("early", 12)
	b.waitsOn("late")
	b.purge("early")
	b.untilGPUs("late", 16)
	b.purge("late")
}

// A job that is registered again with a larger request goes to the end of the
// queue.
func testMoreGoToTheEnd(t *testing.T, b *bed) {
	b.fill("full", 4)
	b.run(gang("greedy", 3, 4).hcl())
	b.untilWaits("greedy")
	b.run(gang("patient", 4, 4).hcl())
	b.untilWaits("patient")
	b.run(gang("greedy", 4, 4).hcl())
	b.purge("full")
	b.untilGPUs("patient", 16)
	b.waitsOn("greedy")
	b.purge("patient", "greedy")
}

// The placer learns how long jobs of a name run, and the next placer knows it. Of two waiting
// jobs, the one that is known to be short goes first.
func testRunTimesSurvive(t *testing.T, b *bed) {
	quick := gang("quick", 4, 4)
	quick.script = "exec sleep 1"
	b.run(quick.hcl())
	b.until("its run is recorded", func() string {
		vars, _, err := b.API().Variables().PrefixList("nomad-pal/history/", nil)
		if err != nil {
			return err.Error()
		}
		for _, meta := range vars {
			v, _, err := b.API().Variables().Read(meta.Path, nil)
			if err == nil && strings.Contains(v.Items["runs"], `"name":"default/quick"`) {
				return ""
			}
		}
		return fmt.Sprintf("%d variables", len(vars))
	})
	b.killAgent()
	b.purge("quick")
	b.startAgent("nomad-pal")
	b.fill("full", 4)
	b.run(gang("unknown", 4, 4).hcl())
	b.untilWaits("unknown")
	quick.script = "" // this run takes long, but the placer expects a short one
	b.run(quick.hcl())
	b.untilWaits("quick")
	b.purge("full")
	b.untilGPUs("quick", 16)
	b.waitsOn("unknown")
	b.purge("quick", "unknown")
}

// A job that is purged or stopped at the moment when GPUs become free for it
// does not come back.
func testPurgedWhilePlaced(t *testing.T, b *bed) {
	for i := range 8 {
		full, next := fmt.Sprintf("full-%d", i), fmt.Sprintf("next-%d", i)
		b.fill(full, 4)
		b.run(gang(next, 4, 4).hcl())
		b.untilWaits(next)
		b.deregister(full, true)
		b.until("its GPUs are free, or taken", func() string {
			if g := b.gpusOf(full); len(g) > 0 {
				return fmt.Sprint(g)
			}
			return ""
		})
		purge := i%2 == 0
		b.deregister(next, purge)
		b.until(next+" is gone", func() string {
			if info, _, err := b.API().Jobs().Info(next, nil); err == nil && !*info.Stop {
				return *info.Status
			}
			return strings.Join(b.gpusOf(next), " ")
		})
		b.purge(full, next)
	}
}

// A member whose retries Nomad has used up comes back if its owner follows explain's advice.
func testTriedOnceMore(t *testing.T, b *bed) {
	flag := filepath.Join(b.dir, "fails-once-more")
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	j := gang("retried", 2, 1)
	j.meta = `pal_on_failure = "member"`
	j.script = "[ $NOMAD_ALLOC_INDEX = 0 ] && [ -e " + flag + " ] && exit 1; exec sleep 3600"
	j.groups[0].extra = "restart {\n attempts = 0\n mode = \"fail\"\n}\nreschedule {\n attempts = 1\n interval = \"1h\"\n delay = \"5s\"\n delay_function = \"constant\"\n unlimited = false\n}\n"
	b.run(j.hcl())
	// Only now has Nomad no retry left. Right after the first failure, it has not yet announced its
	// retry.
	b.until("both tries have failed", func() string {
		stubs, _, err := b.API().Jobs().Allocations("retried", true, nil)
		failed := 0
		for _, s := range stubs {
			if s.ClientStatus == "failed" {
				failed++
			}
		}
		if err == nil && failed == 2 {
			return ""
		}
		return fmt.Sprint(failed, " failed ", err)
	})
	const advice = "nomad job eval -force-reschedule"
	b.untilSays("explain retried", advice)
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	b.types("retried", advice)
	b.untilRunning("retried", 2)
	b.purge("retried")
}

// types waits until explain names a Nomad command with this prefix, and runs it.
func (b *bed) types(id, advice string) {
	b.t.Helper()
	b.untilSays("explain "+id, advice)
	out, _ := b.pal("explain", id)
	_, rest, _ := strings.Cut(out, advice)
	line, _, _ := strings.Cut(rest, "\n")
	line, _, _ = strings.Cut(line, ". ")
	typed := strings.Fields(advice + line)
	if said, code := b.output(b.Command(b.t.Context(), "nomad", typed[1:]...)); code != 0 {
		b.t.Fatalf("%q: exit code %d: %s", typed, code, said)
	}
}

// pal_on_failure = "member": the other members keep running, and the lost member gets a GPU on
// another node.
func testMemberReplaced(t *testing.T, b *bed) {
	j := gang("elastic", 4, 1)
	j.meta = `pal_on_failure = "member"`
	flag := filepath.Join(b.dir, "die-elastic")
	j.script = "while sleep 0.2; do if [ -e " + flag + " ] && [ $NOMAD_ALLOC_INDEX = 0 ]; then exit 1; fi; done"
	j.groups[0].extra = "restart {\n attempts = 0\n mode = \"fail\"\n}\nreschedule {\n attempts = 5\n interval = \"1h\"\n delay = \"5s\"\n delay_function = \"constant\"\n unlimited = false\n}\n"
	home := b.runs(j, 4)
	b.untilRunning("elastic", 4)
	before := b.members("elastic")
	stubs, _, err := b.API().Jobs().Allocations("elastic", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	victim := ""
	for _, s := range stubs {
		if strings.HasSuffix(s.Name, "[0]") {
			victim = s.ID
		}
	}
	lost := ""
	for _, m := range before {
		if m.ID == victim {
			lost = m.GPUs[0]
		}
	}
	node, k := int(lost[4]-'0'), int(lost[6]-'0')
	b.inventory(node, placerScores[node], map[int]bool{k: true})
	b.untilUnhealthy(1)
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.until("the member is gone", func() string {
		if slices.Contains(b.gpusOf("elastic"), lost) {
			return "not yet"
		}
		return ""
	})
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	got := b.untilGPUs("elastic", 4)
	if slices.Contains(got, lost) || slices.Equal(got, home) {
		t.Errorf("it ran on %v, lost %s, and runs on %v", home, lost, got)
	}
	same(t, "members that run on", 3, kept(before, b.members("elastic")))
	b.purge("elastic")
	b.inventory(node, placerScores[node], nil)
	b.forget("nomad-pal/quarantine")
}

// An elastic gang starts with as many members as fit, grows when GPUs become free,
// and gives up the last members for a waiting gang; the other members keep running.
func testElastic(t *testing.T, b *bed) {
	b.fill("most", 3)
	j := gang("stretch", 2, 2)
	j.meta = "pal_elastic = \"true\"\npal_duration = \"10h\""
	j.groups[0].extra = "scaling {\n min = 1\n max = 6\n}\n"
	b.runs(j, 4)
	b.untilRunning("stretch", 2)
	first := b.members("stretch")

	b.purge("most")
	b.untilGPUs("stretch", 12)
	b.untilRunning("stretch", 6)
	grown := b.members("stretch")
	same(t, "members that run on as it grows", 2, kept(first, grown))
	b.says("explain -verbose stretch", "with all its members (1 to 6 allowed)")

	b.runs(gang("short", 3, 4), 12)
	b.untilGPUs("stretch", 4)
	b.untilRunning("stretch", 2)
	shrunk := b.members("stretch")
	same(t, "members that run on as it shrinks", 2, kept(grown, shrunk))
	same(t, "the first of them", 2, kept(first, shrunk))
	b.says("explain -verbose stretch", "with 2 members (1 to 6 allowed)")

	b.run(j.hcl()) // its author runs the same file again, which also requests two members
	b.until("it has its pins again", func() string {
		job, _, err := b.API().Jobs().Info("stretch", nil)
		if err != nil {
			return err.Error()
		}
		if rewrite.Gated(job) {
			return "gated"
		}
		return ""
	})
	same(t, "members that run on as it is run again", 2, kept(shrunk, b.members("stretch")))
	b.purge("short", "stretch")
}

// The reason why a job waits is one sentence, in the API and in the commands.
func testReasons(t *testing.T, b *bed) {
	b.fill("full", 4)
	b.run(gang("waits", 1, 4).hcl())
	b.untilWaits("waits")
	b.until("the API says why", func() string {
		if q := b.http("/v1/queue"); !strings.Contains(q, `"text": "needs 4 GPUs; none is free"`) {
			return q
		}
		return ""
	})
	out, _ := b.pal("explain", "-json", "waits")
	mentions(t, out, `"position": 1`, `"wait": {`, `"reason": "gpus"`)
	if strings.Contains(out, "#1 ") || strings.Contains(out, `"Position"`) {
		t.Errorf("explain: %s", out)
	}
	b.purge("full", "waits")
}
