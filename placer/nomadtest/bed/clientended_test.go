// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// A node is purged and comes back, so its client kills a member that Nomad has not stopped. Nomad
// counts this member as finished. While the gang is preempted, its other member succeeds. The gang
// does not run again.
func TestClientEndedOneBeforeAPreemption(t *testing.T) {
	Run(t, Options{Placer: preempting}, func(w *World) {
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, GPUs: 2, Runs: 20 * time.Minute, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}})
		w.ExpectRunning("a", 5*time.Second)
		began := time.Now()
		w.Nomad.ForgetNode(w.Members(Key("a"))[0].Node, time.Second, time.Minute)
		w.Expect("the client has killed a member", 30*time.Second, func() bool { return len(w.Members(Key("a"))) == 1 })
		w.RunFor(20*time.Minute - 3*time.Second - time.Since(began))
		end := w.Nomad.Fail("", "PUT /v1/allocation/*/stop", nomadtest.TooMany, -1)
		w.Submit(Gang{Name: "b", Members: 2, GPUs: 2, Runs: time.Minute, Priority: 90})
		w.Expect("the other member has succeeded", time.Minute, func() bool { return len(w.Members(Key("a"))) == 0 })
		if end() == 0 {
			t.Error("the gang was not preempted")
		}
		w.ExpectFinished("b", 2*time.Minute)
		w.ExpectGone("a", 2*time.Minute)
		if n := *w.Nomad.Job(Key("a")).Version; n != 3 {
			t.Errorf("version %d, want 3: started, gated, stopped\n%s", n, w.Describe())
		}
	})
}
