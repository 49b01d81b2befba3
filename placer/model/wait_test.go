// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// If several groups lack the same thing, the reason names it once.
func TestObstaclesOfSeveralGroups(t *testing.T) {
	t.Parallel()
	lacks := func(group string) palapi.Obstacle {
		return palapi.Obstacle{Group: group, What: "missing drivers: docker", Nodes: 4, Total: 4}
	}
	got := withObstacles(reason.Reason{Kind: reason.TooFew, Needs: 20}, lasting, []palapi.Obstacle{lacks("a"), lacks("b")})
	if want := "needs 20 GPUs; the cluster has none that match: missing drivers: docker (4 of 4 nodes)"; got.String() != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// If each group of a job has its own obstacle, the work grows only in proportion to the number of
// groups. Every snapshot does this work for each such job.
func TestManyObstacles(t *testing.T) {
	var found []palapi.Obstacle
	for i := range 1000 {
		found = append(found, palapi.Obstacle{Group: "g", What: fmt.Sprint("constraint ", i), Nodes: 4, Total: 4})
	}
	n := testing.AllocsPerRun(1, func() { withObstacles(reason.Reason{Kind: reason.TooFew, Needs: 20}, lasting, found) })
	if n > 100*float64(len(found)) {
		t.Errorf("%v allocations for %d obstacles", n, len(found))
	}
}

// Without an active placer, a job waits for a placer: a reason that only an active placer can
// remove is not shown. A reason that would hold under any placer is still shown.
func TestWaitsForAPlacer(t *testing.T) {
	for _, r := range queue.Reasons {
		w := Wait{Wait: queue.Wait{Job: "default/j", Reason: r, GPUs: 2, Ahead: "default/first", From: 1, To: 2}}
		was := w.Why()
		w.Idle()
		stays := false
		switch r {
		case reason.TooLarge, reason.Limit, reason.Quota, reason.Array, reason.GPUs, reason.Scattered, reason.Refused, reason.Services, reason.InWindow:
			stays = true
		}
		if got := w.Why().String(); stays && got != was.String() || !stays && got != "no agent is active" || w.From != 0 || w.To != 0 {
			t.Errorf("%s: %s", r, got)
		}
	}
}

// If nothing else is known, a gang that waits for closer GPUs starts between now and the end of
// that wait. The range does not begin in 1970, and does not end in the past.
func TestLocalityWaitEndsFromNow(t *testing.T) {
	m := Model{Time: time.Unix(1_000_000, 0)}
	now := gang.QueueTime(m.Time)
	for _, left := range []time.Duration{time.Hour, -time.Hour} {
		w := m.WaitsOf([]queue.Wait{{Job: "default/j", Reason: reason.Locality, Until: now + left}}, nil)["default/j"]
		if w.From != now || w.To != max(now, now+left) {
			t.Errorf("%v before the end of its wait, it starts between %v and %v", left, w.From, w.To)
		}
	}
}
