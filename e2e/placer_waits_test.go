// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/internal/long"
)

// scene is a test under an agent with its own configuration. It leaves the
// cluster empty.
type scene struct {
	name, config string
	test         func(*testing.T, *bed)
}

// tell runs scenes one after the other.
func (b *bed) tell(scenes []scene) {
	for _, s := range scenes {
		b.scene(s.name, func(t *testing.T, b *bed) {
			b.config += s.config
			b.startAgent("nomad-pal")
			s.test(t, b)
		})
	}
}

// tellLong runs scenes that are not in the sample of make test.
func (b *bed) tellLong(scenes []scene) {
	if long.All() {
		b.tell(scenes)
		return
	}
	for _, s := range scenes {
		b.t.Run(s.name, onlyLong)
	}
}

// onlyLong skips a test that is not in the sample of make test.
func onlyLong(t *testing.T) {
	t.Helper()
	if !long.All() {
		t.Skip(long.Sampled)
	}
}

// scene runs a subtest on the cluster, without an agent. If it fails, its jobs are purged, so that
// the next scene finds the GPUs free.
func (b *bed) scene(name string, test func(*testing.T, *bed)) {
	b.t.Run(name, func(t *testing.T) {
		t.Cleanup(func() { // after the agent has stopped: cleanups run last in, first out
			if t.Failed() {
				b.purgeAll()
			}
		})
		sub := *b
		sub.t = t
		test(t, &sub)
	})
}

// killed runs a subtest for each of the two fault points around a commit; the second is not in the
// sample of make test.
func (b *bed) killed(test func(t *testing.T, b *bed, at string)) {
	b.scene("killed before-commit", func(t *testing.T, b *bed) { test(t, b, "before-commit") })
	b.scene("killed after-commit", func(t *testing.T, b *bed) {
		onlyLong(t)
		test(t, b, "after-commit")
	})
}

// runs submits a job, waits until it has n GPUs, and returns these.
func (b *bed) runs(j job, gpus int) []string {
	b.t.Helper()
	b.run(j.hcl())
	return b.untilGPUs(j.id, gpus)
}

// fill runs a job on all GPUs of n nodes with four each.
func (b *bed) fill(id string, n int) {
	b.t.Helper()
	b.runs(gang(id, n, 4), 4*n)
}

// untilWaits waits until the job is in the queue, holds no GPU, and has a reason
// with these words.
func (b *bed) untilWaits(id string, words ...string) {
	b.t.Helper()
	b.until(id+" waits, holding nothing", func() string {
		e := b.explain(id)
		if g := b.gpusOf(id); !inQueue(e.State) || len(g) > 0 {
			return fmt.Sprintf("%s on %v", e.State, g)
		}
		for _, w := range words {
			if !strings.Contains(e.Reason, w) {
				return e.Reason
			}
		}
		return ""
	})
}

// untilUnhealthy waits until the commands show n unhealthy GPUs.
func (b *bed) untilUnhealthy(n int) {
	b.t.Helper()
	b.until(fmt.Sprintf("%d GPUs are known to be unhealthy", n), func() string {
		out, code := b.pal("status", "-json")
		var status struct{ Unhealthy int }
		if err := json.Unmarshal([]byte(out), &status); code != 0 || err != nil || status.Unhealthy != n {
			return out
		}
		return ""
	})
}

// inQueue reports whether a job in this phase is in the queue. An unschedulable job is in the
// queue, because it waits for other GPUs.
func inQueue(phase string) bool { return phase == "waiting" || phase == "unschedulable" }

// untilState waits until explain shows this state of a job; the agent learns of it after Nomad.
func (b *bed) untilState(id, state string) {
	b.t.Helper()
	b.until(id+" is "+state, func() string {
		if e := b.explain(id); e.State != state {
			return e.State + ": " + e.Reason
		}
		return ""
	})
}

// untilExplained waits until explain names these GPUs: the placer records a
// decision shortly after the members start.
func (b *bed) untilExplained(id string, gpus []string) {
	b.t.Helper()
	b.until("explain names the GPUs of "+id, func() string { return cmp.Diff(gpus, b.explained(id)) })
}

// waitsOn checks that the job keeps waiting without a GPU.
func (b *bed) waitsOn(id string) {
	b.t.Helper()
	b.holds(id+" waits, holding nothing", func() string { return strings.Join(b.gpusOf(id), " ") })
}
