// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

func fifo(c *model.Config) { c.Queue.Order = queue.FIFO }

// positions logs the queue, and says at which place a job waits.
func (w *World) position(name string) (at int) {
	for _, j := range w.placers[0].Status().Jobs {
		w.T.Logf("%s: %s, position %d, submitted %v, %s", j.Job, j.State, j.Position, j.Submitted.Format(time.TimeOnly), j.Reason)
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
		w.Submit(Gang{Name: "full", Members: 2, Runs: 5 * time.Hour})
		w.ExpectRunning("full", time.Minute)
		w.Submit(Gang{Name: "b", Members: 2, Runs: time.Hour})
		w.RunFor(4 * time.Hour)
		if err := w.Edit(Key("a"), func(j *api.Job) { runsScript(j.TaskGroups[0], "sleep 600; exit 0") }); err != nil {
			t.Fatal(err)
		}
		w.RunFor(time.Minute)
		if at := w.position("a"); at != 2 {
			t.Errorf("run again after hours, it stands at %d of 2", at)
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
			t.Errorf("%d members: %s: %s\n%s", n, e.State, e.Reason, w.Describe())
		}
	})
}
