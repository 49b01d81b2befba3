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
		{"run again", "", testRunAgain},
		{"release", "", testRelease},
		{"elastic", "queue {\n  restart_cost = \"1s\"\n}\n", testElastic},
	})
	b.tellLong([]scene{
		{"tried once more as explain says", "", testTriedOnceMore},
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
