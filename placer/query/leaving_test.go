// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// Explain and the list of jobs show that a gang's node is being drained, and until when.
// Afterwards, explain says since when the gang waits again.
func TestDrainIsSaid(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "a", Members: 2, GPUs: 2})
		w.ExpectRunning("a", 5*time.Second)
		if e := explained(w, "a"); e.Leaving != nil || !e.Ran.IsZero() {
			t.Errorf("nothing is drained, but %q", e.Leaving)
		}
		at := w.Members(bed.Key("a"))[0].Node
		until := time.Now().Add(2 * time.Minute)
		w.Nomad.DrainWithin(at, 2*time.Minute)
		w.RunFor(5 * time.Second)
		want := []string{"node " + nodeName(w, at) + " is being drained: Nomad stops the members on that node at " + until.UTC().Format("2006-01-02 15:04:05 MST") + " unless they end earlier"}
		if e := explained(w, "a"); !slices.Equal(said(e.Leaving), want) {
			t.Errorf("explain says %q, want %q", e.Leaving, want)
		}
		for _, j := range snapshot(w).Jobs() {
			if j.Job == "a" && j.Reason.String() != want[0] {
				t.Errorf("the list says %q", j.Reason.String())
			}
		}
		w.ExpectGone("a", 3*time.Minute)
		w.RunFor(30 * time.Second)
		e := explained(w, "a")
		if e.State != palapi.Waiting || e.Leaving != nil || e.Ran.Before(until) || e.Ran.After(time.Now()) {
			t.Errorf("%s, %q, ran until %s", e.State, e.Leaving, e.Ran)
		}
	})
}

// Nodes with the same kind of drain share one sentence. A drain without a deadline lets batch jobs
// keep running.
func TestDrainOfManyIsShort(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(3, 2)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "a", Members: 3, GPUs: 2})
		w.ExpectRunning("a", 5*time.Second)
		for n := range 3 {
			w.Nomad.DrainWithin(bed.NodeID(n), 0)
		}
		w.RunFor(5 * time.Second)
		const end = "run to their end, because the drain has no deadline"
		if e := explained(w, "a"); len(e.Leaving) != 1 || !strings.Contains(e.Leaving[0].String(), " is being drained, like 2 other nodes of the job: ") || !strings.HasSuffix(e.Leaving[0].String(), end) {
			w.T.Errorf("explain says %q", e.Leaving)
		}
	})
}

// nodeName returns a node's name in the placer's view.
func nodeName(w *bed.World, id string) string {
	return snapshot(w).Model().State.Nodes[id].Name
}

// Explain and the list of jobs show that a gang runs on a GPU which its node reports as unhealthy,
// or no longer reports.
func TestLostGPUsAreSaid(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(1, 3)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "a", GPUs: 2})
		w.ExpectRunning("a", 5*time.Second)
		w.Submit(bed.Gang{Name: "b"})
		w.ExpectRunning("b", 5*time.Second)
		node, gpus := nodeName(w, bed.NodeID(0)), w.GPUs(bed.Key("a"))
		w.Nomad.SetHealth(false, gpus[1])
		w.RunFor(5 * time.Second)
		want := "node " + node + " reports " + gpus[1] + " as unhealthy, reason: XID 79: the members on that node keep running"
		if e := explained(w, "a"); len(e.Leaving) != 1 || !strings.HasPrefix(e.Leaving[0].String(), want) {
			t.Errorf("explain says %q, want %q", e.Leaving, want)
		}
		for _, j := range snapshot(w).Jobs() {
			if strings.Contains(j.Reason.String(), "unhealthy") != (j.Job == "a") {
				t.Errorf("the list says %q of %s", j.Reason.String(), j.Job)
			}
		}
		w.Nomad.TakeAway(gpus[1])
		w.RunFor(5 * time.Second)
		want = "node " + node + " no longer lists " + gpus[1] + ", so the node's device plugin does not run or is configured without these GPUs: the members on that node keep running"
		if e := explained(w, "a"); len(e.Leaving) != 1 || !strings.HasPrefix(e.Leaving[0].String(), want) {
			t.Errorf("explain says %q, want %q", e.Leaving, want)
		}
	})
}

// One sentence covers the lost GPUs of all members on a node.
func TestLostGPUsOfManyMembersAreOneSentence(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(1, 5)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "a", Members: 5, Runs: time.Hour})
		w.ExpectRunning("a", 5*time.Second)
		gpus := slices.Sorted(slices.Values(w.GPUs(bed.Key("a"))))
		for _, id := range gpus {
			w.Nomad.TakeAway(id)
		}
		w.RunFor(5 * time.Second)
		want := "no longer lists " + strings.Join(gpus[:3], ", ") + " and 2 more, so "
		if e := explained(w, "a"); len(e.Leaving) != 1 || !strings.Contains(e.Leaving[0].String(), want) {
			t.Errorf("explain says %q, want %q", e.Leaving, want)
		}
	})
}

// A gang that was stopped for another is not shown as waiting while its members are still ending
// and hold the GPUs.
func TestEndingIsSaid(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(1, 2)
		w.StartPlacer()
		slow := func(j *api.Job) { j.TaskGroups[0].Tasks[0].KillTimeout = new(2 * time.Minute) }
		w.Submit(bed.Gang{Name: "a", Members: 2, Runs: 10 * time.Hour, Change: slow, Meta: map[string]string{"pal_duration": "10h", "pal_preempt": "true"}})
		w.ExpectRunning("a", 5*time.Second)
		w.RunFor(5 * time.Minute)
		w.Submit(bed.Gang{Name: "b", GPUs: 2, Meta: map[string]string{"pal_duration": "1m"}})
		ending := func() bool { return explained(w, "a").State == palapi.Completing }
		w.Expect("a is being stopped", time.Minute, ending)
		e := explained(w, "a")
		if !strings.HasSuffix(e.Reason.String(), " is still stopping and holds its GPUs") && !strings.HasPrefix(e.Reason.String(), "2 members are still stopping") {
			t.Errorf("explain says %q", e.Reason.String())
		}
		for _, j := range snapshot(w).Jobs() {
			if (j.State == palapi.Completing) != (j.Job == "a") || j.Job == "a" && j.Reason.String() != e.Reason.String() {
				t.Errorf("the list says %s, %q of %s", j.State, j.Reason.String(), j.Job)
			}
		}
		w.ExpectRunning("b", 5*time.Minute)
		if e := explained(w, "a"); e.State != palapi.Waiting {
			t.Errorf("then it is %s: %s", e.State, e.Reason.String())
		}
	})
}

// said returns reasons in words.
func said(rs []reason.Reason) (out []string) {
	for _, r := range rs {
		out = append(out, r.String())
	}
	return out
}

// sentences returns reasons as sentences.
func sentences(rs []reason.Reason) (out []string) {
	for _, r := range rs {
		out = append(out, r.Sentence())
	}
	return out
}
