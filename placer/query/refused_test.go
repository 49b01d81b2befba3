// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// A running job whose author breaks its hints is still shown with its GPUs and the class that it
// was placed with: by the placer that placed it, by the next placer, and in a snapshot. A job whose
// hints were never valid holds no GPUs.
func TestRunsOnThoughItCannotBeRead(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		w.Submit(bed.Gang{Name: "runs", Members: 2, GPUs: 2, Meta: map[string]string{"pal_class": "C"}, Runs: time.Hour})
		w.ExpectRunning("runs", 10*time.Second)
		if err := w.Edit(bed.Key("runs"), func(j *api.Job) { j.Meta["pal_locality"] = "neraby" }); err != nil {
			t.Fatal(err)
		}
		w.Submit(bed.Gang{Name: "never", GPUs: 2, Meta: map[string]string{"pal_locality": "neraby"}})
		w.RunFor(time.Minute)
		check := func(from string, jobs []palapi.JobStatus) {
			t.Helper()
			for _, j := range jobs {
				want := fmt.Sprint(palapi.Running, " 4 C")
				if j.Job == "never" {
					want = fmt.Sprint(palapi.Rejected, " 0 ")
				}
				if got := fmt.Sprintf("%s %d %s", j.State, j.GPUs, j.Class); got != want || j.Reason.IsZero() {
					t.Errorf("%s: %s is %s: %s; want %s", from, j.Job, got, j.Reason.String(), want)
				}
			}
			if len(jobs) != 2 {
				t.Errorf("%s: %+v", from, jobs)
			}
		}
		check("placer", p.Status().Jobs)
		check("snapshot", snapshot(w).Jobs())
		p.Kill()
		next := w.StartPlacer()
		w.RunFor(time.Minute)
		check("next placer", next.Status().Jobs)
	})
}
