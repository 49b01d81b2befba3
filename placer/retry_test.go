// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// A gang that fails through its own fault is tried on other nodes each time, as long as there are
// nodes on which its members have not failed.
func TestRetriesGoElsewhere(t *testing.T) {
	oneFails, allFail := "sleep 5; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 3; sleep infinity", "sleep 5; exit 3"
	for _, c := range []struct {
		name                  string
		script                string
		restarts, reschedules int
		want                  int
	}{
		{"one member fails", oneFails, 0, 0, 3},
		{"one member fails, is rescheduled", oneFails, 0, 1, 3},
		{"one member fails, is restarted and rescheduled", oneFails, 2, 1, 3},
		{"all fail, are rescheduled", allFail, 0, 1, 3},
		{"all fail, are rescheduled often", allFail, 0, 5, 3},
		{"all fail", allFail, 0, 0, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
				w.AddNodes(8, 4)
				w.StartPlacer()
				w.Submit(bed.Gang{Name: "broken", Members: 2, GPUs: 2, Restarts: c.restarts, Reschedules: c.reschedules, Change: func(j *api.Job) {
					j.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", c.script}
				}})
				var tries []string
				for range 600 {
					w.RunFor(200 * time.Millisecond)
					nodes := map[string]bool{}
					for _, id := range w.GPUs(bed.Key("broken")) {
						nodes[id[:strings.LastIndex(id, "-")]] = true
					}
					if on := strings.Join(slices.Sorted(maps.Keys(nodes)), " "); on != "" && !slices.Contains(tries, on) {
						tries = append(tries, on)
					}
				}
				if len(tries) != c.want {
					w.T.Errorf("tried on nodes %q, want %d nodes", tries, c.want)
				}
			})
		})
	}
}
