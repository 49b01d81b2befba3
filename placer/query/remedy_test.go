// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// measuredNode returns a node with one GPU for each of the times that the GPUs took for class A.
func measuredNode(n int, took ...float64) *api.Node {
	node := nomadtest.GPUNode(n, len(took))
	var ms []attr.Measurement
	for k, t := range took {
		ms = append(ms, attr.Measurement{GPU: fmt.Sprintf("GPU-%d-%d", n, k), Times: map[pal.AppClass]float64{pal.ClassA: t}})
	}
	scores, file := attr.FormatMeasurements(ms), attr.ReferenceFile
	node.NodeResources.Devices[0].Attributes[attr.Scores] = &api.Attribute{StringVal: &scores}
	node.NodeResources.Devices[0].Attributes[attr.Reference] = &api.Attribute{StringVal: &file}
	return node
}

// The suggestions follow the queue's rule for outliers: they leave out GPUs that are too slow for
// the gang, as long as it could run without them.
func TestAnswersLeaveOutOutliers(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.Nomad.AddNode(measuredNode(0, 1, 1, 1, 3))
		w.Nomad.AddNode(measuredNode(1, 1, 1, 1, 1))
		w.StartPlacer()
		classA := map[string]string{"pal_class": "A"}
		w.Submit(bed.Gang{Name: "busy", GPUs: 4, Runs: time.Hour, Meta: classA})
		w.ExpectRunning("busy", 10*time.Second)
		w.Submit(bed.Gang{Name: "seven", Members: 7, Meta: classA})
		w.RunFor(5 * time.Second)
		if is, e := shown(w, "seven").Reason.String(), explained(w, "seven"); is != "needs 7 GPUs; 3 are free, not counting 1 outlier (too slow)" || !strings.Contains(e.Reason.String(), "3 of 8 that match are free (4 allocated, 1 outlier)") {
			t.Errorf("the outlier counts as free for the queue (%s) or for explain (%s)", is, e.Reason)
		}
		if err := w.Purge(bed.Key("seven")); err != nil {
			t.Fatal(err)
		}
		w.RunFor(5 * time.Second)
		for _, g := range []bed.Gang{{Name: "one", GPUs: 4, Meta: classA}, {Name: "two", Members: 2, GPUs: 2, Meta: classA}} {
			job := g.Job()
			cluster.Canonicalize(job)
			e, err := snapshot(w).Plan(w.T.Context(), job)
			if err != nil || e.State != palapi.Waiting || e.Decision.Candidates.Outliers != 1 || e.Decision.Candidates.Free != 3 ||
				!strings.Contains(e.Reason.String(), "4 are free, but 1 is an outlier") {
				t.Errorf("%s: %+v of %+v, %v", g.Name, e, e.Decision, err)
			}
			if want := map[string]string{"one": "", "two": "With count = 1 instead of 2, the job would fit now."}[g.Name]; strings.Join(sentences(e.Remedies), " ") != want {
				t.Errorf("%s: %q", g.Name, e.Remedies)
			}
		}
	})
}

// A job that would fit together with the nodes that are being drained waits for them; one that
// would not fit even then never starts.
func TestMayStartWhenNodesAreBack(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(3, 4)
		w.StartPlacer()
		w.Nomad.SetEligible(bed.NodeID(1), false)
		w.RunFor(time.Minute)
		const why = "the node is not eligible for scheduling (1 of 3 nodes)"
		for members, state := range map[int]palapi.State{3: palapi.Waiting, 64: palapi.Unschedulable} {
			job := bed.Gang{Name: "j", Members: members, GPUs: 4}.Job()
			cluster.Canonicalize(job)
			e, err := snapshot(w).Plan(w.T.Context(), job)
			if err != nil || e.State != state || !strings.HasSuffix(e.Reason.String(), ": "+why) {
				t.Errorf("%d members: %+v, %v", members, e, err)
			}
		}
		w.Submit(bed.Gang{Name: "j", Members: 3, GPUs: 4})
		w.RunFor(3 * time.Second)
		for _, j := range snapshot(w).Jobs() {
			if j.State != palapi.Waiting || j.Reason.String() != "the job's nodes are unavailable: "+why {
				t.Errorf("the list says %s: %q", j.State, j.Reason.String())
			}
		}
		w.Submit(bed.Gang{Name: "next", Members: 2, GPUs: 4, Runs: time.Minute}) // is not delayed
		w.ExpectRunning("next", 10*time.Second)
		w.Nomad.SetEligible(bed.NodeID(1), true)
		w.ExpectRunning("j", 2*time.Minute)
	})
}
