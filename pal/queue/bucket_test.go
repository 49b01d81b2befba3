// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"runtime"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
)

// TestHugeGang: the memory that the queue uses for a gang does not grow with the number of members.
func TestHugeGang(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := q.Submit(0, Job{ID: "huge", Gang: pal.SingleGPUs("huge", pal.ClassA, 1<<20)}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("the queue uses %d bytes", got)
	}
}
