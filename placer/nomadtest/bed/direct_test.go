// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// submitTo registers a gang at a placer's agent, as `nomad-pal run` does.
func (w *World) submitTo(p *Placer, g Gang) {
	w.T.Helper()
	job := g.Job()
	w.rules.submits(copyOf(job))
	_, err := p.Submit(w.T.Context(), job, func(_ context.Context, job *api.Job, isNew bool) (*api.JobRegisterResponse, error) {
		resp, _, err := w.Author.Jobs().RegisterOpts(job, &api.RegisterOptions{EnforceIndex: isNew}, &api.WriteOptions{Namespace: *job.Namespace})
		return resp, err
	})
	if err != nil {
		w.T.Fatalf("submitting %q: %v", g.Name, err)
	}
}

// A job that is registered at the placer again after its purge is a new job. Nomad shows it as dead
// for a moment, but it keeps its GPUs.
func TestPurgedAndRunAtThePlacerAgain(t *testing.T) {
	for _, pin := range []string{"gpu", "class"} {
		Run(t, Options{Seed: 1}, func(w *World) {
			w.AddNodes(2, 4)
			p := w.StartPlacer()
			w.RunFor(time.Second)
			a := Gang{Name: "a", Members: 2, GPUs: 2, Runs: time.Hour, Meta: map[string]string{"pal_pin": pin}}
			b := a
			b.Name = "b"
			w.submitTo(p, a)
			w.ExpectRunning("a", 10*time.Second)
			w.RunFor(30 * time.Second)
			if err := w.Purge(Key("a")); err != nil {
				t.Fatal(err)
			}
			w.RunFor(20 * time.Second)
			again := time.Now()
			w.submitTo(p, a)
			w.RunFor(5 * time.Millisecond) // Nomad shows a as dead, and has placed nothing yet
			w.submitTo(p, b)
			w.ExpectRunning("a", 10*time.Second)
			w.ExpectRunning("b", 10*time.Second)
			for _, name := range []string{"a", "b"} {
				if v := *w.Nomad.Job(Key(name)).Version; v != 0 {
					t.Errorf("pinned by %s: %s was registered %d times", pin, name, v+1)
				}
			}
			w.RunFor(10 * time.Second)
			if e := w.explained("a"); e.Submitted.Before(again) {
				t.Errorf("pinned by %s: submitted at %s, registered again at %s", pin, e.Submitted, again)
			}
		})
	}
}
