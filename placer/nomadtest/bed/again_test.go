// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

func fifo(c *model.Config) { c.Queue.Order = queue.FIFO }

// position logs the queue and returns a job's position.
func (w *World) position(name string) (at int) {
	for _, j := range w.placers[0].Status().Jobs {
		w.T.Logf("%s: %s, position %d, submitted %v, %s", j.Job, j.State, j.Position, j.Submitted.Format(time.TimeOnly), j.Reason.String())
		if j.Job == name {
			at = j.Position
		}
	}
	return at
}

// waitsAgain makes gang a wait again with its old pins, before gang b: the node where it ran is
// drained, and another gang has the other node.
func (w *World) waitsAgain() {
	w.T.Helper()
	w.AddNodes(2, 2)
	w.StartPlacer()
	w.Submit(Gang{Name: "a", Members: 2, Runs: 2 * time.Hour})
	w.ExpectRunning("a", time.Minute)
	w.Submit(Gang{Name: "full", Members: 2, Runs: 5 * time.Hour})
	w.ExpectRunning("full", time.Minute)
	w.RunFor(time.Hour)
	w.Nomad.Drain(w.Members(Key("a"))[0].Node)
	w.Expect("it waits", time.Minute, func() bool { return w.explained("a").State == palapi.Waiting })
	w.Submit(Gang{Name: "b", Members: 2, Runs: time.Hour})
	w.RunFor(time.Minute)
	if at := w.position("a"); at != 1 {
		w.T.Fatalf("its position is %d, want 1", at)
	}
}

// startStopped stops a job and, an hour later, starts it unchanged, as nomad job start does.
func (w *World) startStopped(name string) {
	w.T.Helper()
	if err := w.Stop(Key(name)); err != nil {
		w.T.Fatal(err)
	}
	w.RunFor(time.Hour)
	job := copyOf(w.Nomad.Job(Key(name)))
	job.Stop = new(false)
	if err := w.Register(job); err != nil {
		w.T.Fatal(err)
	}
}

// The author stops a requeued gang. When the author starts it again, it counts as a new job: it
// goes behind those that wait. A new placer agrees.
func TestStoppedAndStartedGoesToTheEnd(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: fifo}, func(w *World) {
		w.waitsAgain()
		w.startStopped("a")
		started := time.Now()
		w.RunFor(time.Minute)
		for range 2 {
			if at := w.position("a"); at != 2 {
				t.Errorf("its position is %d, want 2", at)
			}
			if e := w.explained("a"); e.Submitted.Before(started.Add(-time.Second)) {
				t.Errorf("submitted at %v, but started at %v", e.Submitted, started)
			}
			w.placers[0].Stop()
			w.placers = nil
			w.StartPlacer()
			w.RunFor(time.Minute)
		}
	})
}

// A requeued gang that is scaled up while it waits goes behind the others, as one that waits for the
// first time.
func TestScaledUpWhileItWaitsAgain(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: fifo}, func(w *World) {
		w.waitsAgain()
		w.scale("a", 1)
		w.RunFor(time.Minute)
		if at := w.position("a"); at != 1 {
			t.Errorf("after scaling down, its position is %d, want 2", at)
		}
		w.scale("a", 2)
		w.RunFor(time.Minute)
		if at := w.position("a"); at != 2 {
			t.Errorf("after scaling up, its position is %d, want 2", at)
		}
	})
}

// A sweep waits for room for more members, and meanwhile one of its members fails. The sweep does
// not stay smaller than before: Nomad retries that member, as the reschedule block says.
func TestSweepWaitsForMoreAndLosesAMember(t *testing.T) {
	Run(t, Options{Seed: 1, Unchecked: true}, func(w *World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Reschedules: 20, Meta: map[string]string{"pal_on_failure": "member"}, Change: func(j *api.Job) {
			runsScript(j.TaskGroups[0], "[ $NOMAD_ALLOC_INDEX = 0 ] && sleep 3600 && exit 1; sleep infinity")
		}})
		w.ExpectRunning("a", time.Minute)
		w.Submit(Gang{Name: "other", Members: 2, Runs: 100 * time.Hour})
		w.ExpectRunning("other", time.Minute)
		w.RunFor(50 * time.Minute)
		ms := w.Members(Key("a"))
		stays := ms[slices.IndexFunc(ms, func(m nomadtest.Member) bool { return m.Number == 1 })].ID
		if err := w.Edit(Key("a"), func(j *api.Job) { j.TaskGroups[0].Count = new(3) }); err != nil {
			t.Fatal(err)
		}
		w.RunFor(20 * time.Minute)
		members := w.Members(Key("a"))
		if n := len(members); n != 2 || !slices.ContainsFunc(members, func(m nomadtest.Member) bool { return m.ID == stays }) {
			e := w.explained("a")
			t.Errorf("%d members: %s: %s\n%s", n, e.State, e.Reason.String(), w.Describe())
		}
		if err := w.Stop(Key("other")); err != nil {
			t.Fatal(err)
		}
		w.Expect("all three run", 10*time.Minute, func() bool { return len(w.Members(Key("a"))) == 3 })
	})
}
