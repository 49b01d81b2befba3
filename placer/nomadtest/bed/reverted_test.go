// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// A new version of a service fails, and Nomad reverts to the previous version (auto_revert). That
// version stays in force until the author registers another.
func TestRevertedByNomad(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "serve", Service: true, Members: 3, Change: func(j *api.Job) {
			j.TaskGroups[0].Update = &api.UpdateStrategy{MaxParallel: new(1), MinHealthyTime: new(5 * time.Second), AutoRevert: new(true)}
		}})
		w.ExpectRunning("serve", time.Minute)
		w.RunFor(time.Minute)
		fails := func(j *api.Job) { runsScript(j.TaskGroups[0], "sleep 2; exit 1") }
		if err := w.Edit(Key("serve"), fails); err != nil {
			t.Fatal(err)
		}
		w.Expect("Nomad reverts it", 5*time.Minute, func() bool { return w.rules.counted().reverted == 1 })
		p.Kill()
		w.StartPlacer()
		w.RunFor(30 * time.Minute)
		w.ExpectRunning("serve", 0)
		for _, m := range w.Members(Key("serve")) {
			if *m.Version.JobModifyIndex != *w.Nomad.Job(Key("serve")).JobModifyIndex {
				t.Errorf("member %d runs version %d:\n%s", m.Number, *m.Version.Version, w.Describe())
			}
		}
		if n := w.rules.counted().reverted; n != 1 {
			t.Errorf("Nomad has reverted it %d times:\n%s", n, w.Describe())
		}
	})
}
