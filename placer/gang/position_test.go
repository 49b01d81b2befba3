// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// versionsOf makes versions from words: g<count> gated, p<count> pinned, s<count> stopped while
// gated, t<count> gated over pins, x<count> stopped while gated over pins, y<count> stopped while
// pinned, - no longer kept by Nomad. Upper case means an elastic job. Version n was submitted at n.
func versionsOf(t *testing.T, words string) map[uint64]*api.Job {
	t.Helper()
	out := map[uint64]*api.Job{}
	for i, w := range strings.Fields(words) {
		if w == "-" {
			continue
		}
		j := plainJob("j", 1)
		var count int
		if _, err := fmt.Sscanf(w[1:], "%d", &count); err != nil {
			t.Fatal(err)
		}
		version, submitted := uint64(i), int64(i)
		j.TaskGroups[0].Count, j.Version, j.SubmitTime = &count, &version, &submitted
		if strings.ToUpper(w) == w {
			j.SetMeta("pal_elastic", "true")
			j.TaskGroups[0].Scaling = &api.ScalingPolicy{Min: new(int64(1)), Max: new(int64(4)), Enabled: new(true)}
			w = strings.ToLower(w)
		}
		if strings.ContainsRune("ptxy", rune(w[0])) {
			var err error
			if j, err = rewrite.Pin(j, somePins("u"), rewrite.Racks{}); err != nil {
				t.Fatal(err)
			}
		}
		if strings.ContainsRune("gstx", rune(w[0])) {
			j = rewrite.Gate(j)
		}
		if strings.ContainsRune("sxy", rune(w[0])) {
			yes := true
			j.Stop = &yes
		}
		out[uint64(i)] = j
	}
	return out
}

// A waiting job keeps its place if its author edits it, but not if the author requests more GPUs.
func TestFirstAsked(t *testing.T) {
	for _, tc := range []struct {
		versions string
		since    int64
		requeued bool
		cut      bool
	}{
		{versions: "g2", since: 0},
		{versions: "g2 g2", since: 0},
		{versions: "g2 g2 g1 g1", since: 0},
		{versions: "g2 g3", since: 1},
		{versions: "g4 g2 g3 g3", since: 2},
		{versions: "g2 p2 g2", since: 2}, // it ran in between
		{versions: "g2 s2 g2 g2", since: 2},
		{versions: "g2 - g2 g2", since: 2, cut: true}, // too long ago for Nomad
		{versions: "g2 p2 t2 g2", since: 3, requeued: true},
		{versions: "g2 p2 t2 g3", since: 3}, // requeued, then made larger
		{versions: "g2 g1 p2 g1", since: 0}, // an edit that our start replaced, and that we restored
		{versions: "g2 g3 p2 g3", since: 1},
		{versions: "g2 p2 t2 g1 p2 g1", since: 3, requeued: true},
		{versions: "g2 g1 p1 g1", since: 3}, // it ran in between
		{versions: "g3 g2 g1 p2 g1 g1", since: 0},
	} {
		t.Run(tc.versions, func(t *testing.T) {
			vs := versionsOf(t, tc.versions)
			w := firstAsked(vs[uint64(len(strings.Fields(tc.versions))-1)], vs)
			if w.since.UnixNano() != tc.since || w.requeued != tc.requeued || w.cut != tc.cut {
				t.Errorf("since %d, requeued %v, cut %v; want %d, %v, %v", w.since.UnixNano(), w.requeued, w.cut, tc.since, tc.requeued, tc.cut)
			}
		})
	}
}

// A gang that the placer requeues keeps its place, even if its author edits it. A gang that its
// author stops and starts again, or makes larger, loses its place.
func TestAskedAnew(t *testing.T) {
	for _, tc := range []struct {
		versions string
		since    int64 // 0: the time in its record
	}{
		{"g2 p2 t2", 0},
		{"g2 p2 t2 t2", 0},
		{"g2 p2 t2 t1", 0},
		{"g2 p2 t2 t3", 3},
		{"g2 p2 t2 t1 t2", 4},
		{"g2 p2 t2 t3 p3 t3", 3},
		{"g2 p2 p3 t3", 0}, // it ran with three
		{"g2 p2 t2 x2 t2", 4},
		{"g2 p2 t2 x2 t2 t1", 4},
		{"g2 p2 y2 p2 t2", 3},
		{"g2 s2 g2 p2 t2", 0}, // the record has the time of submission
		{"G2 P2 T2 P3 T3", 0}, // the placer lets elastic gangs grow
		{"g2 p2 t2 p3 t3", 3},
		{"g2 p2 t2 - t2", 0}, // too long ago for Nomad
	} {
		t.Run(tc.versions, func(t *testing.T) {
			vs := versionsOf(t, tc.versions)
			var got int64
			if at := askedAgain(vs[uint64(len(strings.Fields(tc.versions))-1)], vs); !at.IsZero() {
				got = at.UnixNano()
			}
			if got != tc.since {
				t.Errorf("since %d, want %d", got, tc.since)
			}
		})
	}
}

// The next placer counts the same run time and wait time of a stopped gang as the placer that
// stopped it.
func TestRanAndWaitedSurvive(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	r := &Record{Submitted: start, Waited: 10 * time.Minute}
	r.stop(start.Add(70*time.Minute), reason.Reason{}, time.Hour, 1)
	g := &Lifecycle{memory: memory{known: known{Observed: Observed{Job: rewrite.Gate(plainJob("j", 1)), Nomad: palapi.Waiting, Pins: somePins("u")}, Record: r}}}
	j := g.QueueJob(0)
	if j.Attained != time.Hour || j.Done != time.Hour || j.Waited != 10*time.Minute || j.Submitted != QueueTime(start) {
		t.Errorf("in the queue: %+v", j)
	}
	if at := g.WaitsSince(); !at.Equal(start.Add(70 * time.Minute)) {
		t.Errorf("waits since %v", at)
	}
}

// A placer remembers a place for longer than Nomad keeps versions. But a job that was stopped in
// between is new, even if no placer saw it stopped.
func TestPositionIsRemembered(t *testing.T) {
	for _, tc := range []struct {
		versions string
		since    int64
	}{{"- - g2 g2", 0}, {"g2 s2 g2 g2", 2}, {"- g3 g3 g3", 1}} {
		t.Run(tc.versions, func(t *testing.T) {
			vs := versionsOf(t, tc.versions)
			now := vs[3]
			index := uint64(30)
			now.JobModifyIndex = &index
			g := &Lifecycle{memory: memory{known: known{Observed: Observed{Job: now, Nomad: palapi.Waiting}, position: position{index: 20, since: time.Unix(0, 0), gpus: 2}}}}
			w := newFakeWorld()
			if got := g.Step(Reconcile{}, w); len(got) != 1 || got[0] != (ReadVersions{}) {
				t.Fatalf("effects: %v", got)
			}
			g.Step(VersionsRead{vs}, w)
			if got := g.Submitted().UnixNano(); got != tc.since {
				t.Errorf("since %d, want %d", got, tc.since)
			}
		})
	}
}

// The run times of a job are not used for another namespace's jobs of the same name.
func TestNamesAreOfANamespace(t *testing.T) {
	t.Parallel()
	mine, theirs := hostile.Plain("train", 1, 1, 1), hostile.Plain("train", 1, 1, 1)
	other := "other"
	theirs.Namespace = &other
	of := func(job *api.Job) *Lifecycle { return new(Of(Observe(cluster.NewState(), job))) }
	if a, b := of(mine).QueueJob(0), of(theirs).QueueJob(0); a.Name == b.Name || a.Tenant == b.Tenant {
		t.Errorf("names %q and %q of tenants %q and %q", a.Name, b.Name, a.Tenant, b.Tenant)
	}
}

// A gang that runs on other GPUs than its pins name is neither preempted nor moved: it is about to
// be requeued.
func TestMisplacedIsNotMoved(t *testing.T) {
	t.Parallel()
	g := new(Of(Observe(cluster.NewState(), hostile.Plain("j", 1, 1, 1))))
	g.Request.Hints = rewrite.Hints{Preempt: true, Migrate: true}
	for _, misplaced := range []bool{false, true} {
		g.Misplaced = misplaced
		if j := g.QueueJob(0); j.Preemptible == misplaced || j.Migratable == misplaced {
			t.Errorf("misplaced %t: preemptible %t, migratable %t", misplaced, j.Preemptible, j.Migratable)
		}
	}
}
