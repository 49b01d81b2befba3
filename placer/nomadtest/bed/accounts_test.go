// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/race"
	"github.com/nomad-pal/nomad-pal/placer/accounting"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// accounts are what the placers' pictures have been written down as, in a store that all of them share, as agents share
// a PostgreSQL; and what the machines did.
type accounts struct {
	mu       sync.Mutex
	runs     map[string]accounting.Run
	allocs   map[string]accounting.Alloc
	ran      map[string]nomadtest.Member // with GPUs
	ended    map[string]time.Time        // by Nomad's clock
	heard    map[string]time.Time        // the same, by the test's
	recorder *accounting.Recorder
	of       string // who wrote last
	wrong    []string
}

func newAccounts() *accounts {
	return &accounts{runs: map[string]accounting.Run{}, allocs: map[string]accounting.Alloc{}, ran: map[string]nomadtest.Member{}, ended: map[string]time.Time{}, heard: map[string]time.Time{}}
}

// picture writes down what a picture of a placer's shows. Whoever has not written last begins with what is stored.
func (a *accounts) picture(name string, s *query.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name != a.of {
		runs := slices.DeleteFunc(slices.Collect(maps.Values(a.runs)), func(r accounting.Run) bool { return !r.Ended.IsZero() })
		live := slices.DeleteFunc(slices.Collect(maps.Values(a.allocs)), func(l accounting.Alloc) bool { return !l.To.IsZero() })
		a.recorder, a.of = accounting.NewRecorder(runs, live, 0), name
	}
	missing := a.recorder.Missing(s.Model())
	var last []accounting.Run
	for _, k := range missing {
		last = append(last, a.lastRuns(k)...)
	}
	a.recorder.Know(missing, last)
	var b accounting.Batch
	s.Read(func(m *model.Model) { b = a.recorder.Look(m) })
	for _, r := range b.Runs {
		k := fmt.Sprint(r.Namespace, "/", r.Job, " of ", r.Submitted.UnixMilli())
		if was, ok := a.runs[k]; ok && !was.Ended.IsZero() {
			a.wrong = append(a.wrong, fmt.Sprintf("run %s has ended, and is written again: %+v, was %+v", k, r, was))
		}
		a.runs[k] = r
	}
	for _, l := range b.Allocs {
		if !a.allocs[l.ID].To.IsZero() { // as the database does: what is written by one who begins anew counts once
			continue
		}
		a.allocs[l.ID] = l
	}
	a.recorder.Written(b, s.Model())
}

func (a *accounts) lastRuns(k cluster.JobKey) (last []accounting.Run) {
	for _, r := range a.runs {
		if r.Namespace == k.Namespace && r.Job == k.ID && (len(last) == 0 || r.Submitted.After(last[0].Submitted)) {
			last = []accounting.Run{r}
		}
	}
	return last
}

func (a *accounts) observer() nomadtest.Observer {
	note := func(m nomadtest.Member) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(m.GPUs) > 0 {
			a.ran[m.ID] = m
		}
	}
	return nomadtest.Observer{Placed: note, Ended: func(m nomadtest.Member) {
		note(m)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ended[m.ID], a.heard[m.ID] = m.At, time.Now()
	}}
}

// compare is what is written down otherwise than it was. What Nomad has forgotten by now may have come and gone while
// no placer looked. Ends by a clock that was set back are not compared.
func (a *accounts) compare(has map[string]bool) (wrong []string, gpuTime time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wrong = a.wrong
	for id, m := range a.ran {
		w, ok := a.allocs[id]
		end := a.ended[id]
		switch {
		case !ok && !has[id]:
		case ok && w.Status == string(accounting.Unknown) || !end.IsZero() && end.Before(m.CreatedAt):
		case !ok:
			wrong = append(wrong, fmt.Sprintf("allocation %s of %s, placed at %v, ended at %v, is not written down", id, m.Job, m.CreatedAt, end))
		case !w.From.Equal(m.CreatedAt.Truncate(time.Millisecond)) || len(w.GPUs) != len(m.GPUs):
			wrong = append(wrong, fmt.Sprintf("allocation %s had %v from %v on, written down as %+v", id, m.GPUs, m.CreatedAt, w))
		case end.IsZero() != w.To.IsZero() && time.Since(a.heard[id]) > 10*time.Second:
			wrong = append(wrong, fmt.Sprintf("allocation %s of %s ended at %v, written down as %+v", id, m.Job, end, w))
		case !end.IsZero() && w.Status == "complete" && w.To.Sub(end).Abs() > time.Second:
			wrong = append(wrong, fmt.Sprintf("allocation %s of %s ended at %v, written down as %v", id, m.Job, end, w.To))
		}
		if ok && !w.To.IsZero() {
			gpuTime += w.To.Sub(w.From) * time.Duration(len(w.GPUs))
		}
	}
	return wrong, gpuTime
}

// What is written down is what ran: over restarts and changes of placers, requests that fail, nodes that are lost and
// authors who do what they may do.
func TestAccounts(t *testing.T) {
	seeds := uint64(6)
	if n, err := strconv.ParseUint(os.Getenv("ACCOUNTS_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	if race.Enabled {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			book := newAccounts()
			Run(t, Options{Seed: seed, Unchecked: true, Partial: 90 * time.Second, Placer: vary(seed), Published: book.picture, Sampled: true}, func(w *World) {
				w.Nomad.Observe(book.observer())
				x := NewWalk(w, DefaultMix())
				x.Go(4 * time.Minute)
				x.Settle(40 * time.Minute)
				w.RunFor(15 * time.Second) // a picture of the end
				has := map[string]bool{}
				stubs, _, err := w.Author.Allocations().List(&api.QueryOptions{Namespace: api.AllNamespacesNamespace})
				if err != nil {
					t.Fatal(err)
				}
				for _, stub := range stubs {
					has[stub.ID] = true
				}
				wrong, gpuTime := book.compare(has)
				if len(book.ran) == 0 || gpuTime == 0 {
					t.Error("nothing ran")
				}
				for _, text := range wrong {
					t.Error(text)
				}
			})
		})
	}
}
