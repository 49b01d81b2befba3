// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

func fifo(c *model.Config) { c.Queue.Order = queue.FIFO }

// positions logs the queue, and says at which place a job waits.
func (w *World) position(name string) (at int) {
	for _, j := range w.placers[0].Status().Jobs {
		w.T.Logf("%s: %s, position %d, submitted %v, %s", j.Job, j.State, j.Position, j.Submitted.Format(time.TimeOnly), j.Reason.String())
		if j.Job == name {
			at = j.Position
		}
	}
	return at
}

// One member fails again and again while its peers run, and the gang is given up. Hours later its
// author has mended it and runs it again: it had left the queue, and goes behind those that waited
// meanwhile.
func TestGivenUpInItsQueueThenRunAgain(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: fifo}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		fails := func(j *api.Job) {
			runsScript(j.TaskGroups[0], "[ $NOMAD_ALLOC_INDEX = 0 ] && sleep 60 && exit 1; sleep infinity")
		}
		w.Submit(Gang{Name: "a", Members: 2, Runs: 2 * time.Minute, Change: fails})
		w.Expect("given up", time.Hour, func() bool { return w.explained("a").State == gang.Failed })
		w.Submit(Gang{Name: "full", Members: 2, Runs: 3 * time.Hour})
		w.ExpectRunning("full", time.Minute)
		w.Submit(Gang{Name: "b", Members: 2, Runs: time.Hour})
		w.RunFor(2 * time.Hour)
		if err := w.Edit(Key("a"), func(j *api.Job) { runsScript(j.TaskGroups[0], "sleep 600; exit 0") }); err != nil {
			t.Fatal(err)
		}
		w.RunFor(time.Minute)
		if at := w.position("a"); at != 2 {
			t.Errorf("run again after hours, it stands at %d of 2", at)
		}
	})
}

// waitsAgain has gang a wait again with the pins that it had, before gang b: the node where it ran is
// drained, and another gang has what is left.
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
	w.Expect("it waits", time.Minute, func() bool { return w.explained("a").State == gang.Waiting })
	w.Submit(Gang{Name: "b", Members: 2, Runs: time.Hour})
	w.RunFor(time.Minute)
	if at := w.position("a"); at != 1 {
		w.T.Fatalf("it stands at %d", at)
	}
}

// startStopped starts a job that was stopped, as nomad job start does: as it was.
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

// A gang waits again that had run, and its author stops it. When he starts it again, it is a new job:
// it goes behind those that wait. The next placer finds the same.
func TestStoppedAndStartedGoesToTheEnd(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: fifo}, func(w *World) {
		w.waitsAgain()
		w.startStopped("a")
		started := time.Now()
		w.RunFor(time.Minute)
		for range 2 {
			if at := w.position("a"); at != 2 {
				t.Errorf("it stands at %d of 2", at)
			}
			if e := w.explained("a"); e.Submitted.Before(started.Add(-time.Second)) {
				t.Errorf("submitted at %v, and it was started at %v", e.Submitted, started)
			}
			w.placers[0].Stop()
			w.placers = nil
			w.StartPlacer()
			w.RunFor(time.Minute)
		}
	})
}

// The same of a gang that is to have more members while it waits again, as of one that waits for the
// first time.
func TestScaledUpWhileItWaitsAgain(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: fifo}, func(w *World) {
		w.waitsAgain()
		w.scale("a", 1)
		w.RunFor(time.Minute)
		if at := w.position("a"); at != 1 {
			t.Errorf("scaled down it stands at %d of 2", at)
		}
		w.scale("a", 2)
		w.RunFor(time.Minute)
		if at := w.position("a"); at != 2 {
			t.Errorf("scaled up it stands at %d of 2", at)
		}
	})
}

// A gang runs, its author stops it and starts it again when others have its GPUs: it runs nowhere, is
// requeued, and goes behind those that wait.
func TestStoppedWhileItRanGoesToTheEnd(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: fifo}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Runs: 2 * time.Hour})
		w.ExpectRunning("a", time.Minute)
		w.Submit(Gang{Name: "full", Members: 2, Runs: 9 * time.Hour})
		w.Submit(Gang{Name: "b", Members: 2, Runs: time.Hour})
		w.startStopped("a")
		w.Expect("it waits", 10*time.Minute, func() bool { return w.explained("a").State == gang.Waiting })
		w.RunFor(time.Minute)
		if at := w.position("a"); at != 2 {
			t.Errorf("it stands at %d of 2", at)
		}
	})
}

// An elastic gang waits for a larger size, and loses a member meanwhile that it needs: it does not run on
// without it.
func TestElasticGangWaitsForMoreAndLosesAMember(t *testing.T) {
	Run(t, Options{Seed: 1, Unchecked: true}, func(w *World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Meta: map[string]string{}, Change: func(j *api.Job) {
			runsScript(j.TaskGroups[0], "[ $NOMAD_ALLOC_INDEX = 0 ] && sleep 3600 && exit 1; sleep infinity")
			elastic(2, 2)(j)
		}})
		w.ExpectRunning("a", time.Minute)
		w.Submit(Gang{Name: "other", Members: 2, Runs: 100 * time.Hour})
		w.ExpectRunning("other", time.Minute)
		if err := w.Edit(Key("a"), func(j *api.Job) {
			j.TaskGroups[0].Count = new(3)
			elastic(3, 3)(j)
		}); err != nil {
			t.Fatal(err)
		}
		w.RunFor(90 * time.Minute)
		if n := len(w.Members(Key("a"))); n == 1 {
			e := w.explained("a")
			t.Errorf("%d members: %s: %s\n%s", n, e.State, e.Reason.String(), w.Describe())
		}
	})
}

// A sweep waits for room for more members, and one of those that it has fails meanwhile. It does not stay
// smaller than it was: Nomad tries that one again, as its reschedule block says.
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
