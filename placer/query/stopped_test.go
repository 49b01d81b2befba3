// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// Explain names the job for which a gang was preempted. The gang's record, which its authors may
// read, names no job of another namespace: the agent adds the name from its events.
func TestStoppedFor(t *testing.T) {
	for namespace, record := range map[string]string{"default": "default/high", "research": ""} {
		t.Run(namespace, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.Order, c.Queue.Preempt = queue.FIFO, true }}, func(w *bed.World) {
				w.AddNodes(1, 4)
				p := w.StartPlacer()
				w.Submit(bed.Gang{Name: "low", GPUs: 4, Runs: 10 * time.Hour, Meta: map[string]string{"pal_preempt": "true"}})
				w.ExpectRunning("low", 10*time.Second)
				w.RunFor(10 * time.Minute)
				w.Submit(bed.Gang{Name: "high", Namespace: namespace, GPUs: 4, Runs: time.Hour, Change: func(j *api.Job) { j.Priority = new(90) }})
				w.RunFor(time.Minute)
				e := explained(w, "low")
				if e.State != palapi.Waiting || e.StoppedWhy.IsZero() || e.StoppedFor != record {
					w.T.Errorf("%s: stopped as %q, for %q", e.State, e.StoppedWhy.String(), e.StoppedFor)
				}
				if got := p.Events.StoppedFor(cluster.JobKey(bed.Key("low"))); got != namespace+"/high" {
					w.T.Errorf("by its events it was stopped for %q", got)
				}
				e.StoppedFor = namespace + "/high"
				if got := e.RedactedFor(func(string) bool { return false }).StoppedFor; got != palapi.Unseen {
					w.T.Errorf("who may not see the other job is told %q", got)
				}
			})
		})
	}
}

// GPUs that a gang already has do not count as reserved for another job when it asks for more.
func TestOwnGPUsAreNotKept(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 6)
		w.StartPlacer()
		long := map[string]string{"pal_duration": "10h"}
		w.Submit(bed.Gang{Name: "runs", Members: 3, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1h"}})
		w.Submit(bed.Gang{Name: "grows", Members: 2, Runs: 10 * time.Hour, Meta: long})
		w.ExpectRunning("runs", 10*time.Second)
		w.ExpectRunning("grows", 10*time.Second)
		w.Submit(bed.Gang{Name: "waits", Members: 6, Runs: time.Hour, Meta: long})
		w.RunFor(10 * time.Second)
		if err := w.Edit(bed.Key("grows"), func(j *api.Job) { j.TaskGroups[0].Count = new(3) }); err != nil {
			w.T.Fatal(err)
		}
		w.RunFor(time.Minute)
		if e := explained(w, "grows"); !strings.HasSuffix(e.Reason.String(), ": free GPUs are reserved for a waiting job, ahead in the queue") {
			w.T.Errorf("%s: %s", e.State, e.Reason.String())
		}
	})
}

// A gang that waits again after failures is told which nodes it avoids.
func TestAvoidedNodesAreTold(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.Order = queue.FIFO }}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "fails", GPUs: 4, Runs: time.Minute, Exit: 3})
		w.ExpectRunning("fails", 10*time.Second)
		node := w.Members(bed.Key("fails"))[0].Node
		for _, n := range snapshot(w).Model().State.Nodes {
			if n.ID == node {
				node = n.Name
			}
		}
		w.Submit(bed.Gang{Name: "next", GPUs: 4, Runs: time.Hour, Change: func(j *api.Job) { j.Priority = new(90) }})
		w.RunFor(5 * time.Second)
		if e := explained(w, "next"); strings.Contains(e.Note, "it avoids ") {
			w.T.Errorf("it has failed nowhere: %s", e.Note)
		}
		w.ExpectRunning("next", 10*time.Minute)
		e := explained(w, "fails")
		want := "nomad-pal avoids " + node + " for this job if possible, because members failed there within the last hour"
		if e.State != palapi.Waiting || !strings.Contains(e.Note, want) {
			w.T.Errorf("%s: %q, want %q", e.State, e.Note, want)
		}
	})
}
