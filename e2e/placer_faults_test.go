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

// once disables Nomad's own retries.
const once = "restart {\n attempts = 0\n mode = \"fail\"\n}\nreschedule {\n attempts = 0\n unlimited = false\n}\n"

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
	if out, code := b.pal("quarantine", "-lift", gpu(0, 0)); code == 0 || !strings.Contains(out, `"GPU-0-0" matches no GPU in quarantine`) {
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
