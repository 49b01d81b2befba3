// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// If the author breaks a hint of a running job, explain says what will happen to the job, and what
// to do.
func TestBrokenWhileItRuns(t *testing.T) {
	broken := func(j *api.Job) { j.Meta = map[string]string{"pal_duration": "long"} }
	for how, breaks := range map[string]func(*bed.World) error{
		"by its file": func(w *bed.World) error { return w.Edit(bed.Key("a"), broken) },
		"in Nomad's UI": func(w *bed.World) error {
			j := w.Nomad.Job(bed.Key("a"))
			broken(j)
			return w.Register(j)
		},
	} {
		bed.Run(t, bed.Options{Seed: 1, Unchecked: true}, func(w *bed.World) {
			w.AddNodes(2, 4)
			w.StartPlacer()
			w.Submit(bed.Gang{Name: "a", Members: 2, Runs: 10 * time.Hour})
			w.ExpectRunning("a", 10*time.Second)
			if err := breaks(w); err != nil {
				w.T.Fatal(err)
			}
			w.RunFor(10 * time.Minute)
			const next = "Fix the job and run it again; until then the old version keeps running, but does not restart if it loses members."
			if e := explained(w, "a"); e.State != palapi.Running || !slices.Equal(sentences(e.Remedies), []string{next}) {
				w.T.Errorf("%s: %s: %s: %q", how, e.State, e.Reason.String(), e.Remedies)
			}
			w.Nomad.CrashNode(w.Members(bed.Key("a"))[0].Node)
			w.RunFor(30 * time.Minute)
			if e := explained(w, "a"); e.State != palapi.Rejected {
				w.T.Errorf("%s, then lost: %s: %s", how, e.State, e.Reason.String())
			}
		})
	}
}
