// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// act does one of the things that authors do, at random.
func act(w *bed.World, rng *rand.Rand, n int) {
	switch rng.IntN(4) {
	case 0:
		_ = w.Purge(bed.Key(fmt.Sprint("job-", rng.IntN(n+1)))) // the job may not exist
	case 1:
		w.Submit(bed.Gang{Name: fmt.Sprint("job-", n), Members: 1 + rng.IntN(3), GPUs: 1 + rng.IntN(4), Runs: time.Duration(1+rng.IntN(300)) * time.Second, Meta: map[string]string{"pal_preempt": "true"}})
	default:
		w.Submit(bed.Gang{Name: fmt.Sprint("job-", n), Members: 1 + rng.IntN(2), GPUs: 1 + rng.IntN(4), Runs: time.Duration(1+rng.IntN(300)) * time.Second, Meta: map[string]string{"pal_duration": "3m"}})
	}
}

// A snapshot contains the waiting jobs of the queue. The holders of a GPU are those in the view
// and, for running gangs, those in the queue. Later changes do not alter it.
func TestPictureIsTheQueue(t *testing.T) {
	for seed := range uint64(2) {
		bed.Run(t, bed.Options{Seed: seed}, func(w *bed.World) {
			w.AddNodes(3, 4)
			w.StartPlacer()
			rng := rand.New(rand.NewPCG(seed, 1))
			var last *query.Snapshot
			var said []any
			for n := range 40 {
				act(w, rng, n)
				w.RunFor(time.Duration(rng.IntN(20)) * time.Second)
				if last != nil && !reflect.DeepEqual(saidBy(last), said) {
					w.T.Fatalf("seed %d, step %d: the snapshot's answer was %v, and is now %v", seed, n, said, saidBy(last))
				}
				last = w.Picture()
				said = saidBy(last)
				checkPicture(w, last)
			}
		})
	}
}

// saidBy returns the answers of a snapshot.
func saidBy(s *query.Snapshot) []any {
	return []any{s.Jobs(), s.GPUs(), s.Status(), s.Tenants(func(string) bool { return true })}
}

func checkPicture(w *bed.World, s *query.Snapshot) {
	w.T.Helper()
	m := s.Model()
	if err := bed.CheckLedger(m); err != nil {
		w.T.Error(err)
	}
	waits := map[string]queue.Wait{}
	for _, wait := range m.Queue.Clone().Waiting(gang.QueueTime(m.Time), m.View.Cluster.Clone()) {
		waits[wait.Job] = wait
	}
	holders := map[string]int{}
	for i := range m.View.Cluster.NumGPUs() {
		if k := m.View.Owner(i); k.ID != "" {
			holders[k.String()]++
		}
	}
	shown := map[string]int{}
	for _, g := range s.GPUs() {
		if g.Job != "" {
			shown[g.Job]++
		}
	}
	if !reflect.DeepEqual(shown, holders) {
		w.T.Errorf("holders are %v, the view has %v", shown, holders)
	}
	for _, j := range s.Jobs() {
		wait, waiting := waits[j.Namespace+"/"+j.Job]
		if j.State != palapi.Waiting || !waiting {
			continue
		}
		e, err := s.Explain(w.T.Context(), bed.Key(j.Job))
		if err != nil || e.State == palapi.Waiting && (e.Wait == nil || e.Wait.Reason != wait.Reason || e.Wait.Ahead != wait.Ahead || e.Wait.Free != wait.Free) {
			w.T.Errorf("%s waits for %+v, explain has %+v, %v", j.Job, wait, e, err)
		}
	}
}

// Requests during a cycle are answered, without a data race: the race detector checks.
func TestPictureWhileThePlacerWorks(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.Migrate = true }}, func(w *bed.World) {
		w.AddNodes(3, 4)
		p := w.StartPlacer()
		rng := rand.New(rand.NewPCG(1, 2))
		done := make(chan struct{})
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(300 * time.Millisecond):
					}
					s := p.Picture()
					if s == nil {
						continue
					}
					for _, j := range s.Jobs() {
						if _, err := s.Explain(w.T.Context(), bed.Key(j.Job)); err != nil {
							w.T.Errorf("%s: %v", j.Job, err)
						}
					}
					job := bed.Gang{Name: "planned", GPUs: 4}.Job()
					job.Canonicalize()
					if _, err := s.Plan(w.T.Context(), job); err != nil {
						w.T.Errorf("plan: %v", err)
					}
					saidBy(s)
					s.Map()
				}
			})
		}
		for n := range 15 {
			act(w, rng, n)
			w.RunFor(2 * time.Second)
		}
		close(done)
		readers.Wait()
	})
}

// settled starts a placer on a node that is full, and waits until nothing changes.
func settled(w *bed.World) *bed.Placer {
	w.AddNodes(1, 4)
	p := w.StartPlacer()
	w.Submit(bed.Gang{Name: "full", GPUs: 4, Runs: time.Hour})
	w.ExpectRunning("full", 10*time.Second)
	w.RunFor(time.Minute)
	return p
}

// While nobody asks, changes seldom lead to a snapshot. Who asks then gets a snapshot with the
// changes, because an old snapshot would surprise them.
func TestPictureOnlyIfAsked(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Unwatched: true}, func(w *bed.World) {
		t := w.T // that of the synctest bubble
		p := settled(w)
		p.Picture()
		name := ""
		for i := range 25 {
			name = fmt.Sprint("new-", i)
			w.Submit(bed.Gang{Name: name})
			w.RunFor(time.Second)
		}
		if age := time.Since(p.LastPicture().Model().Time); age < 2*time.Second {
			t.Errorf("nobody has asked, but the last snapshot is %s old", age)
		}
		w.RunFor(500 * time.Millisecond)
		s, err := p.PictureSince(t.Context(), time.Time{})
		if err != nil || !slices.ContainsFunc(s.Jobs(), func(j palapi.JobStatus) bool { return j.Job == name }) {
			t.Errorf("%s is not in the snapshot of who asks now (%v)", name, err)
		}
	})
}

// While the placer hangs, only the first reader waits for a snapshot with the last change.
func TestPictureWhileThePlacerHangs(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Unwatched: true}, func(w *bed.World) {
		p := settled(w)
		p.Picture()
		w.Submit(bed.Gang{Name: "new", GPUs: 4})
		w.RunFor(2 * time.Second)
		w.Submit(bed.Gang{Name: "newer", GPUs: 4})
		w.RunFor(3 * time.Second)
		w.Nomad.Fail(p.Name, "PUT /v1/jobs", nomadtest.Lost, -1)
		if err := w.Stop(bed.Key("full")); err != nil {
			w.T.Fatal(err)
		}
		w.RunFor(2 * time.Second)
		began := time.Now()
		for range 20 {
			p.Status()
		}
		if took := time.Since(began); took > 1100*time.Millisecond {
			w.T.Errorf("20 readers waited %s together", took)
		}
	})
}

// A job is held while the placer, in the same cycle, starts another job. Who then asks for a
// snapshot with the hold gets one.
func TestPictureHasTheOrder(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		w.Submit(bed.Gang{Name: "full", GPUs: 4, Runs: time.Hour})
		w.ExpectRunning("full", 10*time.Second)
		w.Submit(bed.Gang{Name: "waits", Members: 2, GPUs: 4})
		w.ExpectWaiting("waits", 10*time.Second)
		w.Nomad.Fail(p.Name, "PUT /v1/jobs", nomadtest.Slow, 1)
		w.Submit(bed.Gang{Name: "slow", GPUs: 4, Runs: time.Hour})
		w.RunFor(3 * time.Second)
		if _, err := p.Control(w.T.Context(), bed.Key("waits"), func(of *gang.Control) { of.Held = &gang.Said{By: "ada", At: time.Now()} }); err != nil {
			w.T.Fatal(err)
		}
		s, err := p.PictureSince(w.T.Context(), time.Now())
		if err != nil || !slices.ContainsFunc(s.Jobs(), func(j palapi.JobStatus) bool { return j.Job == "waits" && j.Held }) {
			w.T.Errorf("the snapshot lacks the hold (%v)", err)
		}
	})
}
