// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// With pins to a class, Nomad chooses the GPUs. Explain shows the GPUs that a service has, at its
// start and after Nomad has replaced a member, and the GPUs that the placer chose if they differ.
func TestPredictedAndGot(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(1, 8)
		w.StartPlacer()
		others := 0
		check := func(name string) *palapi.Explanation {
			e, err := snapshot(w).Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: name})
			if err != nil || e.Decision == nil || e.Decision.Chosen == nil || len(e.Allocations) != 1 {
				t.Fatalf("%s: %+v, %v", name, e, err)
			}
			if got := chosenIDs(e.Decision.Chosen); !slices.Equal(got, e.Allocations[0].GPUs) {
				t.Errorf("%s: explain shows %v as chosen, but it has %v", name, got, e.Allocations[0].GPUs)
			}
			if e.Predicted != nil {
				if others++; slices.Equal(chosenIDs(e.Predicted), e.Allocations[0].GPUs) {
					t.Errorf("%s: predicted is what it has", name)
				}
			}
			return e
		}
		for i := range 4 {
			name := fmt.Sprint("svc-", i)
			w.Submit(bed.Gang{Name: name, GPUs: 1, Service: true})
			w.ExpectRunning(name, 10*time.Second)
			w.RunFor(5 * time.Second)
			check(name)
		}
		if others == 0 {
			t.Error("Nomad gave each member the predicted GPU: the test proves nothing")
		}
		c, err := nomad.NewClient(w.Nomad.Config("author", ""), "")
		if err != nil {
			t.Fatal(err)
		}
		moved := false
		for range 5 {
			was := check("svc-0").Allocations[0]
			if err := c.StopAlloc(t.Context(), cluster.JobKey{Namespace: "default", ID: "svc-0"}, was.ID); err != nil {
				t.Fatal(err)
			}
			w.RunFor(15 * time.Second)
			moved = moved || !slices.Equal(check("svc-0").Allocations[0].GPUs, was.GPUs)
		}
		if !moved {
			t.Error("each replacement got the same GPU as before: the test proves nothing")
		}
	})
}

func chosenIDs(c *pal.Choice) (ids []string) {
	for _, m := range c.Members {
		for _, u := range m.GPUs {
			ids = append(ids, u.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// After the author removed members and changed the class, explain shows only those parts of the
// decision that still hold.
func TestChangedSincePlaced(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(1, 8)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "train", Members: 3, GPUs: 1, Runs: time.Hour, Meta: map[string]string{"pal_class": "A"}})
		w.ExpectRunning("train", 10*time.Second)
		explained := func(err error) *palapi.Explanation {
			if err != nil {
				t.Fatal(err)
			}
			w.RunFor(20 * time.Second)
			e, err := snapshot(w).Explain(t.Context(), bed.Key("train"))
			if err != nil || e.State != palapi.Running {
				t.Fatalf("%+v, %v", e, err)
			}
			return e
		}
		e := explained(w.Edit(bed.Key("train"), func(j *api.Job) { j.Meta["pal_class"] = "C" }))
		if e.Decision.Demand != 3 || e.Decision.Class != "A" || !strings.HasSuffix(e.ClassFrom, "the job's class is now C, which counts when the gang is placed again") {
			t.Errorf("%+v: class %s: %s", e.Decision, e.Decision.Class, e.ClassFrom)
		}
		one := 1
		job := w.Nomad.Job(bed.Key("train"))
		job.TaskGroups[0].Count = &one
		e = explained(w.Register(job)) // with its pins, as nomad job scale does
		if e.Decision.Demand != 1 || len(chosenIDs(e.Decision.Chosen)) != 1 {
			t.Errorf("%+v", e.Decision)
		}
	})
}
