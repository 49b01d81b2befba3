// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/long"
	"github.com/nomad-pal/nomad-pal/internal/race"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// busy plays a minute in which the placer makes every kind of request: gangs start, wait, are
// preempted, fail by themselves and with their nodes, and their authors run them again.
func busy(w *bed.World) {
	w.Submit(bed.Gang{Name: "long", Members: 2, GPUs: 4, Runs: 2 * time.Minute, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}})
	w.RunFor(10 * time.Second)
	w.Submit(bed.Gang{Name: "fails", Members: 1, GPUs: 2, Runs: 2 * time.Second, Exit: 1})
	w.Submit(bed.Gang{Name: "service", Members: 1, GPUs: 1, Service: true})
	w.RunFor(10 * time.Second)
	w.Submit(bed.Gang{Name: "urgent", Members: 4, GPUs: 3, Runs: 20 * time.Second, Priority: 90, Meta: map[string]string{"pal_duration": "20s"}})
	w.RunFor(10 * time.Second)
	_ = w.Rerun(bed.Key("service"))
	w.Submit(bed.Gang{Name: "waits", Members: 3, GPUs: 4, Runs: 10 * time.Second})
	w.RunFor(10 * time.Second)
	w.Nomad.CrashNode(bed.NodeID(0))
	w.Excuse()
	w.RunFor(20 * time.Second)
	w.Nomad.RecoverNode(bed.NodeID(0))
	w.Excuse()
}

func busyOptions(seed uint64) bed.Options {
	return bed.Options{Seed: seed, Partial: 5 * time.Minute, Placer: func(c *model.Config) { c.Resync = 20 * time.Second }, Sampled: true}
}

// patternOf is a request with placeholders for the names of objects.
func patternOf(r nomadtest.Request) string {
	path := objects.ReplaceAllString(r.Path, "/$1/*$2")
	return r.Method + " " + path
}

var objects = regexp.MustCompile(`/(job|node|allocation|deployment)/[^/]+(/[a-z]+)?$`)

// requests are the kinds of requests that a busy placer makes. Each variable is a kind of its own.
func requests(t *testing.T) []string {
	seen := map[string]bool{}
	bed.Run(t, busyOptions(1), func(w *bed.World) {
		w.AddNodes(4, 4)
		var mu sync.Mutex
		w.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(r.Client, "placer") {
				seen[patternOf(r)] = true
			}
			return nomadtest.None
		})
		w.StartPlacer()
		busy(w)
	})
	return slices.Sorted(maps.Keys(seen))
}

// Each kind of request fails in each way, once or for a minute. Afterwards the placer serves every
// gang, and a new one starts within two minutes; no invariant is broken.
func TestEveryRequestFails(t *testing.T) {
	all := requests(t)
	if len(all) < 15 {
		t.Fatalf("a busy placer makes only these requests: %q", all)
	}
	t.Logf("%d kinds of requests × %d faults", len(all), len(nomadtest.EveryFault()))
	served := map[nomadtest.Fault]*tally{}
	for _, f := range nomadtest.EveryFault() {
		served[f] = &tally{}
	}
	for i, pattern := range all {
		for j, fault := range nomadtest.EveryFault() {
			for k, times := range []int{1, -1} {
				if of := sampled(); (i+j+k)%of != 0 {
					continue
				}
				name := fmt.Sprintf("%s, %v, %s", pattern, fault, map[int]string{1: "once", -1: "for a minute"}[times])
				t.Run(name, func(t *testing.T) {
					if long.Over() {
						t.Skip(long.NoTime)
					}
					bed.Run(t, busyOptions(2), func(w *bed.World) {
						w.AddNodes(4, 4)
						if times > 0 { // otherwise the fault exists from the start
							w.StartPlacer()
							w.RunFor(3 * time.Second)
						}
						end := w.Nomad.Fail("placer-1", pattern, fault, times)
						if times < 0 {
							w.StartPlacer()
						}
						busy(w)
						injected := end()
						w.Submit(bed.Gang{Name: "after", Members: 1, GPUs: 1, Runs: 10 * time.Second})
						ended := time.Now()
						w.ExpectRunning("after", 2*time.Minute)
						served[fault].add(injected, time.Since(ended), w.T.Failed())
						w.ExpectFinished("urgent", 5*time.Minute)
						w.ExpectFinished("waits", 10*time.Minute)
					})
				})
			}
		}
	}
	if path := os.Getenv("PAL_FAULTS_REPORT"); path != "" {
		if err := os.WriteFile(path, []byte(faultsReport(len(all), served)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sampled: one in this many of the worlds is tried.
func sampled() int {
	switch {
	case race.Enabled:
		return 48
	case !long.All():
		return 8
	}
	return 1
}

// tally counts the outcomes of the worlds with one fault.
type tally struct {
	worlds, injected, failed int
	slowest                  time.Duration // until a new gang ran afterwards
}

func (f *tally) add(injected int, took time.Duration, failed bool) {
	f.worlds, f.injected, f.slowest = f.worlds+1, f.injected+injected, max(f.slowest, took)
	if failed {
		f.failed++
	}
}

// faultsReport renders the tallies as a page of the docs.
func faultsReport(kinds int, served map[nomadtest.Fault]*tally) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# What lost and odd answers of Nomad do to the placer

Written by `+"`make faults`"+`. When gangs start, wait, are preempted, fail, lose their node and run again, the placer
makes %d kinds of requests. Each world is a separate in-memory Nomad in virtual time (placer/nomadtest). In each world one kind of request fails in one way:
once, or for a minute that begins before the placer starts. Afterwards a new gang must run within two minutes, the placer must serve all waiting gangs,
and the invariants of [random faults](simulate-faults.md) must hold.

With "429", "500", "refused" and "lost", Nomad does not execute the request. With "done, but 500", "broken", "half an answer" and "unanswered", Nomad executes the request, but
the placer gets an error, no answer, or half an answer. With "slow" and "slow write", Nomad executes the request, but the answer or the write takes ten seconds.

| fault | worlds | faults injected | longest time until a new gang ran afterwards | worlds that failed |
|---|---|---|---|---|
`, kinds)
	for _, f := range nomadtest.EveryFault() {
		fmt.Fprintf(&b, "| %v | %d | %d | %v | %d |\n", f, served[f].worlds, served[f].injected, served[f].slowest.Round(10*time.Millisecond), served[f].failed)
	}
	return b.String()
}
