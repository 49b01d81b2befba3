// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// A gang that loses three of its four members, because their nodes crash, is always shown with a
// reason until it runs again on other nodes.
func TestLostMembersAreTold(t *testing.T) {
	for name, meta := range map[string]map[string]string{"gang": nil, "members alone": {"pal_on_failure": "member"}} {
		t.Run(name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
				w.AddNodes(4, 1)
				w.StartPlacer()
				w.Submit(bed.Gang{Name: "train", Members: 4, Runs: 10 * time.Hour, Reschedules: 3, Meta: meta})
				w.ExpectRunning("train", 10*time.Second)
				for _, m := range w.Members(bed.Key("train"))[1:] {
					w.Nomad.CrashNode(m.Node)
				}
				told := map[palapi.State]string{}
				for range 180 {
					w.RunFor(time.Second)
					j := shown(w, "train")
					if j.State != palapi.Running && j.Reason.IsZero() {
						w.T.Fatalf("%s, and no reason; before: %q", j.State, told)
					}
					told[j.State] = j.Reason.String()
				}
				if told[palapi.Starting]+told[palapi.Waiting] == "" {
					w.T.Errorf("it lost three members and was %q", told)
				}
			})
		})
	}
}
