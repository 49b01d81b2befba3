// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/long"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

func (w *World) decision(name string) gang.Record {
	w.T.Helper()
	r, err := store.In(w.client()).Decision(cluster.JobKey{Namespace: "default", ID: name}).Read(w.T.Context())
	if err != nil || !r.There {
		w.T.Fatalf("the record of %s: %+v, %v", name, r, err)
	}
	return r.Of
}

// days is how long tests about days wait; it is only hours if not all tests run.
func days() time.Duration {
	if long.All() {
		return 70 * time.Hour
	}
	return 2 * time.Hour
}

// A gang fails through its own fault and is given up. Days later its author runs a corrected
// version. It waits from then on, behind gangs that have waited longer.
func TestGivenUpThenRunAgain(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.Order = queue.FIFO }}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Runs: 2 * time.Minute, Exit: 1, OneExit: true})
		w.Expect("given up", time.Hour, func() bool { return w.explained("a").State == palapi.Failed })
		w.Submit(Gang{Name: "full", Members: 2, Runs: 72 * time.Hour})
		w.ExpectRunning("full", time.Minute)
		w.RunFor(time.Hour)
		w.Submit(Gang{Name: "b", Members: 2, Runs: time.Hour})
		w.RunFor(days())
		w.Submit(Gang{Name: "a", Members: 2, Runs: time.Hour})
		again := time.Now()
		w.RunFor(time.Minute)
		for _, j := range w.placers[0].Status().Jobs {
			t.Logf("%s: %s, position %d, submitted %v, %s", j.Job, j.State, j.Position, j.Submitted, j.Reason.String())
			if j.Job == "a" && j.Submitted.Before(again.Add(-time.Minute)) {
				t.Errorf("a has waited since %v before it was run again", again.Sub(j.Submitted))
			}
			if j.Job == "b" && j.Position != 1 {
				t.Errorf("b has position %d, want 1", j.Position)
			}
		}
	})
}

// During the third try of a gang, its author corrects what failed and runs it again. The new
// program has its own tries.
func TestMendedWhileItRuns(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Runs: 2 * time.Minute, Exit: 1, OneExit: true})
		w.Expect("two failures", time.Hour, func() bool { return w.Nomad.Job(Key("a")) != nil && w.failures("a") == 2 && w.Running(Key("a")) })
		w.RunFor(time.Minute)
		if err := w.Edit(Key("a"), func(j *api.Job) {
			runsScript(j.TaskGroups[0], "sleep 7200; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 3; exit 0")
		}); err != nil {
			t.Fatal(err)
		}
		w.ExpectRunning("a", time.Minute)
		w.RunFor(2*time.Hour + 5*time.Minute)
		if e := w.explained("a"); e.State == palapi.Failed {
			t.Errorf("%s: %s", e.State, e.Reason.String())
		}
	})
}

func (w *World) failures(name string) int {
	r, err := store.In(w.client()).Decision(cluster.JobKey{Namespace: "default", ID: name}).Read(w.T.Context())
	if err != nil || !r.There {
		return 0
	}
	return r.Of.UserFailures
}

// A gang was stopped for another gang after two hours. It runs again and gets another count that
// fits beside the other gang. Its earlier run time still counts.
func TestResizedKeepsWhatItRan(t *testing.T) {
	for name, beside := range map[string]bool{"beside": true, "over its own": false} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: preempting}, func(w *World) {
				n := 4
				if beside {
					n = 8
				}
				w.AddNodes(1, n)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 2, Runs: 50 * time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}})
				w.ExpectRunning("a", 10*time.Second)
				w.RunFor(2 * time.Hour)
				w.Submit(Gang{Name: "urgent", Members: n, Runs: 10 * time.Minute, Priority: 90})
				w.ExpectFinished("urgent", 20*time.Minute)
				w.ExpectRunning("a", 5*time.Minute)
				w.RunFor(time.Minute)
				was := w.decision("a")
				if err := w.Edit(Key("a"), func(j *api.Job) { j.TaskGroups[0].Count = new(4) }); err != nil {
					t.Fatal(err)
				}
				w.ExpectRunning("a", 5*time.Minute)
				w.RunFor(time.Minute)
				is := w.decision("a")
				t.Logf("was %v %v %v, is %v %v %v", was.Attained, was.Done, was.Waited, is.Attained, is.Done, is.Waited)
				if is.Attained < was.Attained {
					t.Errorf("it ran %v, but %v are recorded: %+v\n%s", was.Attained, is.Attained, is, w.Describe())
				}
			})
		})
	}
}

// A job comes after one that its author has scaled to no members.
func TestAfterNothing(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "prepare", Ungated: true, Runs: time.Minute, Change: func(j *api.Job) {
			j.TaskGroups[0].Tasks[0].Resources.Devices = nil
			j.TaskGroups[0].Count = new(0)
		}})
		w.RunFor(time.Minute)
		w.Submit(Gang{Name: "a", Runs: time.Minute, Meta: map[string]string{"pal_after": "prepare"}})
		w.RunFor(10 * time.Minute)
		if e := w.explained("a"); e.State == palapi.Waiting {
			t.Errorf("%s: %s", e.State, e.Reason.String())
		}
	})
}
