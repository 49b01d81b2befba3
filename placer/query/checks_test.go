// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// A profile is told to be old from three months on, not before.
func TestCheckOldProfile(t *testing.T) {
	now := time.Now()
	for age, want := range map[time.Duration]Verdict{profileOld - time.Hour: OK, profileOld + time.Hour: Warn} {
		p := &profile.Profile{Version: 1, Created: now.Add(-age).UTC().Format(time.RFC3339)}
		s := &Snapshot{m: &model.Model{Time: now, Profile: p, State: nomad.NewState()}}
		if c := s.checkProfile(); c.Verdict != want || (c.Next == "") != (want == OK) {
			t.Errorf("%s old: %+v", age, c)
		}
	}
}

// Clocks that are apart are told from a heartbeat that is old.
func TestCheckClocks(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		what            string
		written, worked time.Time
		want            Verdict
	}{
		{"none", time.Time{}, time.Time{}, Warn},
		{"right", now.Add(-10 * time.Second), now.Add(-10 * time.Second), OK},
		{"an old one", now.Add(-time.Hour), now.Add(-time.Hour), OK},
		{"the agent's is behind", now.Add(-10 * time.Second), now.Add(-time.Minute), Warn},
		{"the agent's is ahead", now.Add(-10 * time.Second), now.Add(time.Minute), Warn},
		{"the servers' is ahead", now.Add(time.Minute), now.Add(time.Minute), Warn},
	} {
		if got := CheckClocks(c.written, c.worked, now); got.Verdict != c.want {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}
