// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// What several groups lack alike is said once.
func TestObstaclesOfSeveralGroups(t *testing.T) {
	t.Parallel()
	lacks := func(group string) nomad.Obstacle {
		return nomad.Obstacle{Group: group, What: "missing drivers: docker", Nodes: 4, Total: 4}
	}
	got := withObstacles("needs 20 GPUs, the cluster has 0 that match", false, []nomad.Obstacle{lacks("a"), lacks("b")})
	if want := "needs 20 GPUs, the cluster has 0 that match: missing drivers: docker (4 of 4 nodes)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A gang that waits for nearer GPUs starts between now and the end of that, where
// nothing else can be foretold: not between 1970 and then.
func TestLocalityWaitEndsFromNow(t *testing.T) {
	m := Model{Time: time.Unix(1_000_000, 0)}
	until := gang.QueueTime(m.Time.Add(time.Hour))
	w := m.WaitsOf([]queue.Wait{{Job: "default/j", Reason: queue.ReasonLocality, Until: until}}, nil)["default/j"]
	if w.From != gang.QueueTime(m.Time) || w.To != until {
		t.Errorf("it starts between %v and %v", w.From, w.To)
	}
}

// A reason is told in one way wherever it stands behind the word that a job waits.
func TestBecause(t *testing.T) {
	for why, want := range map[string]string{
		queue.Wait{Reason: queue.ReasonQuota}.Why():                    "its tenant's quota is used up",
		queue.Wait{Reason: queue.ReasonLimit, GPUs: 2, Limit: 1}.Why(): "it needs 2 GPUs, and its tenant may hold 1 at most (quota and borrowing_limit)",
		queue.Wait{Reason: queue.ReasonLocality}.Why():                 "waits for a while for GPUs that are faster, or closer together",
		"group \"g\" waits: not the beginning":                         "group \"g\" waits: not the beginning",
	} {
		if got := Because(why); got != want {
			t.Errorf("%q: %q, want %q", why, got, want)
		}
	}
}
