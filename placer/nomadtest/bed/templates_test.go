// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// A child that is purged while it is being placed is purged again. Its first version is that of its
// template, and Nomad stores a job that comes through the RPC port with the version that it has.
func TestChildPurgedWhileItIsPlaced(t *testing.T) {
	for edits := range 3 {
		t.Run(fmt.Sprint(edits), func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(1, 2)
				w.StartPlacerOfChildren()
				w.Submit(Gang{Name: "sweep", Runs: time.Hour, Change: Parameterized})
				for n := range edits {
					if err := w.Edit(Key("sweep"), func(j *api.Job) { j.Priority = new(60 + n) }); err != nil {
						t.Fatal(err)
					}
				}
				w.RunFor(10 * time.Second)
				w.Nomad.Fail("placer-1", "PUT /v1/jobs", nomadtest.SlowWrite, 1)
				k, err := w.Dispatch("sweep", nil)
				if err != nil {
					t.Fatal(err)
				}
				w.RunFor(5 * time.Second)
				if err := w.Purge(k); err != nil {
					t.Fatal(err)
				}
				w.RunFor(time.Minute)
				if job := w.Nomad.Job(k); job != nil {
					t.Errorf("it exists again:\n%s", w.Describe())
				}
			})
		})
	}
}
