// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// The placer decides again at the queue's wake time, counted from the last decision; if that time
// has passed, at once.
func TestSleep(t *testing.T) {
	t.Parallel()
	q, err := queue.New(queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.PAL}, MaxWait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(1000, 0)
	c := &core{m: &model.Model{Queue: q}, lastCycle: began}
	p := &Placer{core: c, journal: journal{core: c}}
	if d, ok := p.sleep(began); ok {
		t.Errorf("nothing is due, but it wakes after %v", d)
	}
	if err := q.Submit(gang.QueueTime(began), queue.Job{ID: "a", Gang: pal.SingleGPUs("a", pal.ClassA, 1), Submitted: gang.QueueTime(began)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ after, want time.Duration }{{0, time.Minute}, {20 * time.Second, 40 * time.Second}, {2 * time.Minute, leastSleep}} {
		if d, ok := p.sleep(began.Add(c.after)); !ok || d != c.want {
			t.Errorf("after %v it sleeps for %v, %v; want %v", c.after, d, ok, c.want)
		}
	}
	// The same if a decision must be recorded.
	p.unsaved.put(gang.Record{Decided: began})
	if d, ok := p.sleep(began); !ok || d != recordAfter {
		t.Errorf("with a record to write it sleeps for %v, %v; want %v", d, ok, recordAfter)
	}
	p.lastCycle = began.Add(recordAfter) // records of a burst wait for the next tick
	if d, ok := p.sleep(p.lastCycle); !ok || d != time.Minute-recordAfter {
		t.Errorf("with a record that must wait longer it sleeps for %v, %v; want %v", d, ok, time.Minute-recordAfter)
	}
}
