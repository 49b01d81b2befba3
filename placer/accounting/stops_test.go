// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// Each stop counts once, for the stopped job and for the one that gets its GPUs: also if its first
// write failed, the database was opened again, or the queue started again.
func TestStopsCountOnce(t *testing.T) {
	c, err := pal.NewCluster([]pal.Node{{ID: "n", Groups: []pal.DeviceGroup{{Name: "nvidia/gpu/H100", GPUs: []pal.GPU{{ID: "g"}}}}}}, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	m := &model.Model{State: cluster.NewState(), View: &request.View{Ledger: &ledger.Ledger{Cluster: c}}, Jobs: map[cluster.JobKey]*model.Tracked{}}
	for _, id := range []string{"long", "short"} {
		j := batchJob()
		j.ID, j.SubmitTime, j.Status = &id, new(at(0).UnixNano()), new("running")
		m.State.Jobs[cluster.KeyOf(j)] = j
	}
	stop := func(hours float64) { // long has run for this time, and is stopped for short
		if m.Queue, err = queue.New(queue.Default()); err != nil {
			t.Fatal(err)
		}
		m.Time = at(hours)
		now := gang.QueueTime(m.Time)
		one := func(id string) queue.Job {
			return queue.Job{ID: "research/" + id, Gang: pal.SingleGPUs(id, pal.ClassA, 1), Preemptible: id == "long", RestartCost: time.Minute, Estimate: time.Minute, Submitted: now}
		}
		long := one("long")
		long.Estimate = 10 * time.Hour
		busy := c.Clone()
		at := pal.Placement{PMScore: 1, Penalty: 1, Members: []pal.Member{{GPUs: []int{0}}}}
		busy.Take(long.Gang, at)
		if err := m.Queue.Restore(long, at, now-2*time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := m.Queue.Submit(now, one("short")); err != nil {
			t.Fatal(err)
		}
		if as := m.Queue.Decide(now, busy); len(as) != 1 || as[0].Kind != queue.Preempt {
			t.Fatalf("decided %v", as)
		}
		m.Queue.Stopped(now, long.ID)
	}
	r := NewRecorder(nil, nil, 0)
	look := func() Batch { return r.Look(m, nil) }
	wants := func(when string, n int) {
		t.Helper()
		for _, of := range []struct {
			id   string
			want queue.Stops
		}{{"long", queue.Stops{Stops: n, LostGPUSeconds: float64(n) * 60}}, {"short", queue.Stops{SavedSeconds: float64(n) * 8 * 3600}}} {
			if got := r.runs[cluster.JobKey{Namespace: "research", ID: of.id}].Stops; got != of.want {
				t.Errorf("%s: stops of %s are %+v, want %+v", when, of.id, got, of.want)
			}
		}
	}
	stop(1)
	look() // the write fails
	r.Written(look(), m)
	wants("after the first stop", 1)
	if b := look(); len(b.Runs) != 0 {
		t.Errorf("without changes, these are written: %+v", b.Runs)
	}
	was := r
	r = NewRecorder([]palapi.Run{was.runs[cluster.JobKey{Namespace: "research", ID: "long"}], was.runs[cluster.JobKey{Namespace: "research", ID: "short"}]}, nil, 0)
	r.Continue(was)
	r.Written(look(), m)
	wants("after the database was opened again", 1)
	if m.Queue, err = queue.New(queue.Default()); err != nil {
		t.Fatal(err)
	}
	r.Written(look(), m)
	stop(2)
	r.Written(look(), m)
	wants("after another stop, by a queue that began again", 2)
}
