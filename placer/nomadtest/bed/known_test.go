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
