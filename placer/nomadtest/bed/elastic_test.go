// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// stretch returns an elastic gang of 1 to 4 members.
func stretch(name string, runs time.Duration) Gang {
	return Gang{Name: name, Members: 2, GPUs: 1, Runs: runs, Change: elastic(1, 4), Meta: map[string]string{"pal_duration": "10h"}}
}

func ids(ms []nomadtest.Member) []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.ID)
	}
	slices.Sort(out)
	return out
}

func (w *World) expectMembers(name string, n int) []string {
	w.T.Helper()
	w.Expect(name+" has its new size", 10*time.Minute, func() bool { return len(w.Members(Key(name))) == n && w.Running(Key(name)) })
	return ids(w.Members(Key(name)))
}

// An elastic gang starts with as many members as fit, grows when GPUs become free, and shrinks
// again for others. The remaining members keep running, even when the placer restarts.
func TestElasticGang(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "other", Members: 2, GPUs: 1, Runs: 10 * time.Minute, Change: on(0)})
		w.ExpectRunning("other", 10*time.Second)
		w.Submit(stretch("a", 10*time.Hour))
		small := w.expectMembers("a", 2)
		w.RunFor(5 * time.Minute)
		w.ExpectFinished("other", 10*time.Minute)
		large := w.expectMembers("a", 4)
		for _, id := range small {
			if !slices.Contains(large, id) {
				t.Errorf("member %s did not keep running: %v", id, large)
			}
		}
		w.placers[0].Kill()
		w.StartPlacer()
		w.RunFor(5 * time.Minute)
		if got := ids(w.Members(Key("a"))); !slices.Equal(got, large) {
			t.Errorf("after a restart of the placer its members are %v, were %v", got, large)
		}
		w.Submit(Gang{Name: "short", Members: 3, GPUs: 1, Runs: time.Minute, Meta: map[string]string{"pal_duration": "1m"}})
		w.ExpectRunning("short", 10*time.Minute)
		got := ids(w.Members(Key("a")))
		if len(got) != 1 || !slices.Contains(large, got[0]) {
			t.Errorf("it shrinks from %v to %v", large, got)
		}
		if e := w.explained("a"); !strings.Contains(e.Note, "the gang runs with 1 member (1 to 4 allowed)") {
			t.Errorf("explained as %+v", e)
		}
		w.ExpectFinished("short", 10*time.Minute)
		w.expectMembers("a", 4)
	})
}

// An elastic gang finishes while the registration of its new size is on its way to Nomad, so Nomad
// starts it again. The placer does not wait for events: it looks right after the registration, and
// stops the gang (walk 105833).
func TestElasticGangFinishesWhileItShrinks(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(3, 2)
		w.StartPlacer()
		w.Submit(stretch("a", 6*time.Minute))
		w.expectMembers("a", 4)
		w.RunFor(5*time.Minute + 55*time.Second)
		slow := w.Nomad.Fail("placer-1", "PUT /v1/jobs", nomadtest.SlowWrite, 1)
		w.Submit(Gang{Name: "b", Members: 3, GPUs: 1, Runs: time.Minute, Meta: map[string]string{"pal_duration": "1m"}})
		w.RunFor(time.Second)
		w.Nomad.SetEventFaults(nomadtest.EventFaults{Late: 1, Delay: time.Hour})
		w.ExpectFinished("a", 10*time.Second)
		w.Expect("its new size is registered after it has finished", 10*time.Second, func() bool { return *w.Nomad.Job(Key("a")).Version > 1 })
		w.RunFor(2 * time.Second)
		w.ExpectGone("a", 0)
		if slow() != 1 || !*w.Nomad.Job(Key("a")).Stop {
			t.Errorf("it was not stopped:\n%s", w.Describe())
		}
		w.Nomad.SetEventFaults(nomadtest.EventFaults{})
		w.Submit(Gang{Name: "after", Meta: map[string]string{"pal_after": "a"}})
		w.ExpectRunning("after", 10*time.Second) // it has finished successfully
	})
}

// Nomad numbers members as it likes. From the first change of size on, the placer uses these
// numbers: it frees what a waiting gang needs in one step.
func TestElasticGangShrinksOnce(t *testing.T) {
	for seed := range uint64(8) {
		Run(t, Options{Seed: seed}, func(w *World) {
			w.AddNodes(2, 4)
			w.StartPlacer()
			all := stretch("a", 10*time.Hour)
			all.Change = elastic(1, 8)
			w.Submit(all)
			w.expectMembers("a", 8)
			w.RunFor(10 * time.Minute)
			was := *w.Nomad.Job(Key("a")).Version
			w.Submit(Gang{Name: "b", Members: 1, GPUs: 4, Runs: time.Minute, Meta: map[string]string{"pal_duration": "1m"}})
			w.ExpectRunning("b", 10*time.Minute)
			if n := *w.Nomad.Job(Key("a")).Version - was; n != 1 {
				t.Errorf("seed %d: it shrank in %d steps", seed, n)
			}
		})
	}
}
