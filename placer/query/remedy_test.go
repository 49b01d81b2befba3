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
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// For a job that can never run, plan and explain list each change with which it could, in the form
// that -what-if accepts. They do not list temporary obstacles.
func TestNeverRuns(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(3, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "busy", Members: 2, GPUs: 4, Runs: time.Hour})
		w.ExpectRunning("busy", 10*time.Second)
		on := func(left, right string) func(*api.Job) {
			return func(j *api.Job) {
				j.Constraints = append(j.Constraints, &api.Constraint{LTarget: left, Operand: "=", RTarget: right})
			}
		}
		resources := func(j *api.Job) *api.Resources { return j.TaskGroups[0].Tasks[0].Resources }
		for _, c := range []struct {
			gang bed.Gang
			want string
			try  string
		}{
			{bed.Gang{Name: "members", Members: 64, GPUs: 4}, "The job could run with 3 instead of 64 members (count=3).", "count=3"},
			{bed.Gang{Name: "gpus", Members: 2, GPUs: 8}, "The job could run with 4 instead of 8 GPUs for each member (gpus=4).", "gpus=4"},
			{bed.Gang{Name: "near", Members: 3, GPUs: 2, Meta: map[string]string{"pal_locality": "node"}},
				"The job could run without pal_locality = node (pal_locality=). The job could run with 1 instead of 2 GPUs for each member (gpus=1). The job could run with 2 instead of 3 members (count=2).", "pal_locality="},
			{bed.Gang{Name: "rack", Change: on("${meta.rack}", "r9")}, "The job could run without its constraint on ${meta.rack} (without=${meta.rack}).", "without=${meta.rack}"},
			{bed.Gang{Name: "model", Change: func(j *api.Job) { resources(j).Devices[0].Name = "nvidia/gpu/H100" }},
				"The job could run on any GPU model of the cluster (NVIDIA H200) instead of nvidia/gpu/H100 (device=nvidia/gpu).", "device=nvidia/gpu"},
			{bed.Gang{Name: "pool", Change: func(j *api.Job) { pool := "other"; j.NodePool = &pool }},
				"The job could run in any node pool instead of other (node_pool=all).", "node_pool=all"},
			{bed.Gang{Name: "datacenter", Change: func(j *api.Job) { j.Datacenters = []string{"north", "south"} }},
				"The job could run in any datacenter instead of north, south (datacenters=*).", "datacenters=*"},
			{bed.Gang{Name: "cpu", Change: func(j *api.Job) { resources(j).CPU = new(1_000_000) }}, "The job could run with 100000 instead of 1000000 MHz of CPU for each member (cpu=100000).", "cpu=100000"},
			{bed.Gang{Name: "memory", Change: func(j *api.Job) { resources(j).MemoryMB = new(100_000_000) }}, "The job could run with 1048576 instead of 100000000 MB of memory for each member (memory=1048576).", "memory=1048576"},
			{bed.Gang{Name: "driver", Change: func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "docker" }},
				"Change the job, or give a node what the job needs; nomad-pal tries again when a node changes, or after a few minutes.", ""},
		} {
			job := c.gang.Job()
			cluster.Canonicalize(job)
			planned, err := snapshot(w).Plan(w.T.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			w.Submit(c.gang)
			w.RunFor(3 * time.Second)
			waits, err := snapshot(w).Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: c.gang.Name})
			if err != nil {
				t.Fatal(err)
			}
			for how, e := range map[string]*palapi.Explanation{"planned": planned, "waits": waits} {
				if got := strings.Join(sentences(e.Remedies), " "); e.State != palapi.Unschedulable || got != c.want || e.Try != c.try {
					t.Errorf("%s %s is %s: %q, try %q", c.gang.Name, how, e.State, got, e.Try)
				}
				for _, o := range e.Obstacles {
					if o.Now {
						t.Errorf("%s %s: %s is irrelevant", c.gang.Name, how, o)
					}
				}
			}
			if c.try == "" {
				continue
			}
			changes, err := query.ParseChanges(c.try)
			if err == nil {
				err = changes.Apply(job)
			}
			if err != nil {
				t.Fatal(err)
			}
			if e, err := snapshot(w).Plan(w.T.Context(), job); err != nil || e.State != palapi.Starting && e.State != palapi.Waiting {
				t.Errorf("%s with %s: %+v, %v", c.gang.Name, c.try, e, err)
			}
		}
	})
}

// A job with hundreds of constraints does not delay the answers to others.
func TestTrialsAreBounded(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(2, 4)
		w.StartPlacer()
		job := bed.Gang{Name: "many", Change: func(j *api.Job) {
			for i := range 300 {
				j.Constraints = append(j.Constraints, &api.Constraint{LTarget: fmt.Sprintf("${meta.m%d}", i), Operand: "=", RTarget: "x"})
			}
		}}.Job()
		cluster.Canonicalize(job)
		s := snapshot(w)
		if tried := query.Tried(s.Model().View, job, 250); tried != 250 {
			t.Fatalf("only %d changes are tried with a bound of 250: the test proves nothing", tried)
		}
		if tried := query.Tried(s.Model().View, job, 100); tried != 100 {
			t.Errorf("%d changes are tried with a bound of 100", tried)
		}
		if e, err := s.Plan(t.Context(), job); err != nil || e.State != palapi.Unschedulable || query.MostTried > 100 {
			t.Errorf("%+v, %v, %d are tried", e, err, query.MostTried)
		}
	})
}

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
