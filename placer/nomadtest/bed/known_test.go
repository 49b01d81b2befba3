// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// known runs a story that is not yet as it should be. tell returns what is wrong;
// the test fails as soon as nothing is any more, so that the mark comes off.
func known(t *testing.T, issue string, o Options, tell func(w *World) string) {
	t.Helper()
	wrong := ""
	o.Unchecked = true
	t.Run("story", func(t *testing.T) {
		Run(t, o, func(w *World) {
			wrong = tell(w)
			if broken := w.Broken(); wrong == "" && len(broken) > 0 {
				wrong = strings.Join(broken, "; ")
			}
		})
	})
	if wrong == "" {
		t.Fatalf("this works now: make it a story without the mark of %s", issue)
	}
	t.Skipf("known, %s: %s", issue, wrong)
}

// A gang all of whose members fail at once is tried on other GPUs: Nomad calls its
// job dead, and the placer takes it for over.
func TestFailsAtOnceAndIsTriedElsewhere(t *testing.T) {
	known(t, "issue 19, 5", Options{Seed: 1}, func(w *World) string {
		w.AddNodes(8, 8)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: time.Second, Exit: 1})
		w.RunFor(3 * time.Minute)
		if n := len(w.Nomad.Members(Key("a"))); n < 4 {
			return fmt.Sprintf("%d members were started in all: it was not tried again", n)
		}
		return ""
	})
}

// A gang that was given up is not in the queue.
func TestGivenUpIsNotWaiting(t *testing.T) {
	known(t, "issue 19, 4", Options{Seed: 1}, func(w *World) string {
		w.AddNodes(4, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: 6 * time.Second, Exit: 1})
		w.RunFor(3 * time.Minute)
		for _, j := range p.Status().Jobs {
			if j.Job == "a" && j.Phase == "waiting" {
				return fmt.Sprintf("a gang that was given up is %s: %s", j.Phase, j.Reason)
			}
		}
		return ""
	})
}

// A job pinned to nodes only is not given a GPU on which a node that is back still
// runs what was lost.
func TestServiceOnANodeThatIsBack(t *testing.T) {
	known(t, "issue 19 (found by walk 172)", Options{Seed: 3, Nomad: nomadtest.Options{Kill: 10 * time.Second}}, func(w *World) string {
		w.AddNodes(1, 2)
		shared := ""
		w.Nomad.Observe(nomadtest.Observer{Shared: func(gpu string, a, b nomadtest.Member) {
			if a.Job != b.Job {
				shared = fmt.Sprintf("%s begins on GPU %s, which still runs %s", b.Job, gpu, a.Job)
			}
		}})
		w.StartPlacer()
		w.Submit(Gang{Name: "a", GPUs: 1, Priority: 20})
		w.ExpectRunning("a", 5*time.Second)
		w.Nomad.CutNode(NodeID(0))
		w.RunFor(5 * time.Second)
		if err := w.Stop(Key("a")); err != nil {
			return err.Error()
		}
		w.Submit(Gang{Name: "s", GPUs: 1, Service: true, Priority: 80})
		w.Nomad.RecoverNode(NodeID(0))
		w.RunFor(8 * time.Second)
		return shared
	})
}
