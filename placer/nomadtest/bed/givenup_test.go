// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// A gang whose members have all failed is given up. explain says so as long as it is so: tomorrow, too.
func TestGivenUpIsSaidTomorrow(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Runs: 2 * time.Minute, Exit: 1})
		w.Expect("given up", time.Hour, func() bool { return w.explained("a").State == gang.Failed })
		w.RunFor(time.Hour)
		if e := w.explained("a"); e.State != gang.Failed || !strings.Contains(e.Reason, "given up after 3 tries") {
			t.Errorf("an hour later: %s: %s", e.State, e.Reason)
		}
	})
}

// A gang with a deadline of hours is given up, and run again days later, mended: the deadline counts
// from then on.
func TestDeadlineOfOneRunAgain(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: fifo}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Meta: map[string]string{"pal_deadline": "4h", "pal_duration": "1h"}, Change: func(j *api.Job) {
			runsScript(j.TaskGroups[0], "[ $NOMAD_ALLOC_INDEX = 0 ] && sleep 60 && exit 1; sleep infinity")
		}})
		w.Expect("given up", time.Hour, func() bool { return w.explained("a").State == gang.Failed })
		w.RunFor(6 * time.Hour)
		w.Submit(Gang{Name: "full", Members: 2, Runs: 30 * time.Minute})
		w.ExpectRunning("full", time.Minute)
		if err := w.Edit(Key("a"), func(j *api.Job) { runsScript(j.TaskGroups[0], "sleep 600; exit 0") }); err != nil {
			t.Fatal(err)
		}
		w.RunFor(time.Minute)
		e := w.explained("a")
		if strings.Contains(e.Note, "which it will miss") {
			t.Errorf("run again a minute ago: %s", e.Note)
		}
	})
}
