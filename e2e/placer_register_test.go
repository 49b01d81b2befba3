// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestPlacerRegisters: jobs that are registered with the agent instead of
// Nomad.
func TestPlacerRegisters(t *testing.T) {
	t.Parallel()
	b := newBed(t, [][]float64{{1.1, 1.2}, {1, 1.3}}, cluster.Options{})
	b.config = "queue {\n  locality_wait = false\n}\n" // otherwise a job would wait for a better GPU than the last one
	b.tell([]scene{
		{"placed while registered", "", testRegistersPlaced},
		{"waits with its gate", "", testRegistersWaiting},
		{"not for the agent", "", testRegistersElsewhere},
	})
	b.tellLong([]scene{
		{"many at once", "", testRegistersMany},
		{"run again", "", testRegistersAgain},
	})
	b.killed(testRegistersKilled)
}

// runAtAgent is like [bed.run], but registers the job with the agent. It
// returns the output.
func (b *bed) runAtAgent(hcl string) string {
	b.t.Helper()
	b.until("the agent's API listens", b.agentUp)
	out, code := b.palJob("run", hcl, "-detach", "-pal-address", b.placer.URL())
	if code != 0 {
		b.t.Fatalf("nomad-pal run through the agent: exit code %d: %s", code, out)
	}
	return out
}

func (b *bed) agentUp() string {
	if b.placer.URL() == "" || !strings.Contains(b.http("/v1/health"), `"ready": true`) {
		return "not ready"
	}
	return ""
}

// registeredAs checks how often a job was registered, and how many of its
// evaluations found no room: one of the numbers blocked.
func (b *bed) registeredAs(id string, versions int, blocked ...int) {
	b.t.Helper()
	all, _, _, err := b.API().Jobs().Versions(id, false, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	n := 0
	b.until("Nomad has evaluated "+id, func() string {
		evals, _, err := b.API().Jobs().Evaluations(id, nil)
		if err != nil {
			return err.Error()
		}
		n = 0
		for _, e := range evals {
			switch {
			case e.Status == api.EvalStatusPending:
				return "not yet"
			case e.BlockedEval != "":
				n++
			}
		}
		return ""
	})
	if len(all) != versions || !slices.Contains(blocked, n) {
		b.t.Errorf("job %s has %d versions, want %d; %d of its evaluations found no room, want one of %v", id, len(all), versions, n, blocked)
	}
}

func testRegistersPlaced(t *testing.T, b *bed) {
	out := b.runAtAgent(gang("direct", 1, 1).hcl())
	if strings.Contains(out, "did not take") {
		t.Fatalf("the agent refused: %s", out)
	}
	got := b.untilGPUs("direct", 1)
	same(t, "the fastest GPU", []string{gpu(1, 0)}, got)
	b.registeredAs("direct", 1, 0)
	b.until("explained and ready", func() string {
		if e := b.explain("direct"); e.Ready == "" {
			return "not ready"
		}
		return cmp.Diff(got, b.explained("direct"))
	})
	// Nomad stores the author's source.
	sub, _, err := b.API().Jobs().Submission("direct", 0, nil)
	if err != nil || !strings.Contains(sub.Source, `job "direct"`) {
		t.Errorf("the job's source: %v, %v", sub, err)
	}
	b.purge("direct")
}

func testRegistersWaiting(t *testing.T, b *bed) {
	b.runAtAgent(gang("full", 2, 2).hcl())
	b.untilGPUs("full", 4)
	b.runAtAgent(gang("later", 1, 2).hcl())
	b.untilWaits("later")
	b.registeredAs("later", 1, 1)
	b.purge("full")
	b.untilGPUs("later", 2)
	b.registeredAs("later", 2, 1)
	b.purge("later")
}

// Jobs that are registered at the same time share no GPU, and those that do not
// fit wait.
func testRegistersMany(t *testing.T, b *bed) {
	b.until("the agent's API listens", b.agentUp)
	ids := []string{"m0", "m1", "m2", "m3", "m4", "m5"}
	done := make(chan string, len(ids))
	for _, id := range ids {
		go func() {
			out, code := b.palJob("run", gang(id, 1, 1).hcl(), "-detach", "-pal-address", b.placer.URL())
			done <- fmt.Sprintf("exit code %d, %s", code, out)
		}()
	}
	for range ids {
		if out := <-done; !strings.HasPrefix(out, "exit code 0") || strings.Contains(out, "did not take") {
			t.Error(out)
		}
	}
	var all []string
	b.until("four run and two wait", func() string {
		all = nil
		for _, id := range ids {
			all = append(all, b.gpusOf(id)...)
		}
		if len(all) != 4 {
			return fmt.Sprint(all)
		}
		return ""
	})
	slices.Sort(all)
	same(t, "each GPU once", []string{gpu(0, 0), gpu(0, 1), gpu(1, 0), gpu(1, 1)}, slices.Compact(all))
	b.purge(ids...)
}

// A running job is left alone.
func testRegistersAgain(t *testing.T, b *bed) {
	j := gang("twice", 1, 2)
	b.runAtAgent(j.hcl())
	b.untilGPUs("twice", 2)
	before := b.members("twice")
	b.runAtAgent(j.hcl())
	b.until("the gate is off again", func() string {
		info, _, err := b.API().Jobs().Info("twice", nil)
		if err != nil {
			return err.Error()
		}
		if rewrite.Gated(info) || *info.Version != 2 {
			return fmt.Sprintf("version %d, gate on: %v", *info.Version, rewrite.Gated(info))
		}
		return ""
	})
	b.holds("the same allocation runs", func() string {
		if after := b.members("twice"); len(after) != 1 || after[0].ID != before[0].ID {
			return fmt.Sprint(after)
		}
		return ""
	})
	b.purge("twice")
}

// If the agent cannot register a job, the command registers it with Nomad. If Nomad refuses the
// job, it is not registered at all.
func testRegistersElsewhere(t *testing.T, b *bed) {
	b.until("the agent's API listens", b.agentUp)
	out, code := b.palJob("run", gang("nobody", 1, 1).hcl(), "-detach", "-pal-address", "http://127.0.0.1:1")
	if code != 0 || !strings.Contains(out, "registering the job at Nomad") {
		t.Errorf("with no agent: exit code %d: %s", code, out)
	}
	b.untilGPUs("nobody", 1)
	b.registeredAs("nobody", 2, 0, 1) // 0 if the agent placed it before Nomad evaluated its first version
	tooUrgent := gang("bad", 1, 1)
	tooUrgent.extra = "priority = 1000"
	out, code = b.palJob("run", tooUrgent.hcl(), "-detach", "-pal-address", b.placer.URL())
	if code == 0 || !strings.Contains(out, "priority") {
		t.Errorf("a job that Nomad refuses: exit code %d: %s", code, out)
	}
	resp, err := http.Post(b.placer.URL()+"/v1/jobs", "application/json", strings.NewReader(`{"Job": {"ID": "x", "TaskGroups": []}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a job without a gate: %s", resp.Status)
	}
	b.purge("nobody")
}

// An agent that is killed while it registers jobs leaves at most one gang
// incomplete, and the next agent completes it.
func testRegistersKilled(t *testing.T, b *bed, at string) {
	b.startAgent("nomad-pal-fault", "NOMAD_PAL_FAULT="+at)
	out := b.runAtAgent(gang("victim", 1, 2).hcl())
	mentions(t, out, "registering the job at Nomad")
	b.waitDead()
	b.run(gang("other", 1, 2).hcl())
	b.startAgent("nomad-pal")
	victim, other := b.untilGPUs("victim", 2), b.untilGPUs("other", 2)
	for _, id := range other {
		if slices.Contains(victim, id) {
			t.Fatalf("GPU %s was given twice", id)
		}
	}
	b.holds("one gang", func() string { return cmp.Diff(victim, b.gpusOf("victim")) })
	b.purge("victim", "other")
}
