// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// CheckLedger reports wrong ledgers and accepts correct ones.
func TestCheckLedger(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "runs", GPUs: 3})
		w.ExpectRunning("runs", 5*time.Second)
		w.RunFor(10 * time.Second)
		id := Key("runs").String()
		on := func(gpus ...int) func(*model.Model) {
			at := pal.Placement{Penalty: 1, PMScore: 1, Members: []pal.Member{{GPUs: gpus}}}
			return func(m *model.Model) { m.Queue.SetPlacement(gang.QueueTime(m.Time), id, at) }
		}
		for name, c := range map[string]struct {
			cook func(*model.Model)
			want string
		}{
			"right":                            {func(*model.Model) {}, ""},
			"a GPU that nobody holds":          {on(0, 1, 2, 3), "on GPUs [GPU-0-0 GPU-0-1 GPU-0-2 GPU-0-3], but the ledger has it on [GPU-0-0 GPU-0-1 GPU-0-2]"},
			"a GPU that it holds is not there": {on(0, 1), "on GPUs [GPU-0-0 GPU-0-1], "},
			"a GPU that counts as free":        {func(m *model.Model) { m.View.Cluster.SetTaken(2, false) }, "default/runs holds GPU GPU-0-2, but the GPU counts as free"},
		} {
			m := w.Picture().Model().Clone()
			c.cook(m)
			got := ""
			if err := CheckLedger(m); err != nil {
				got = err.Error()
			}
			if (got != "") != (c.want != "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	})
}
