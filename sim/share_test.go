// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Jobs slow each other from the moment when the second starts until one ends.
func TestNeighboursByHand(t *testing.T) {
	running := map[int]bool{}
	repace := func(i int, _ pal.Placement, starts bool) []Pace {
		running[i] = starts
		if running[0] && running[1] {
			return []Pace{{0, 0.5}, {1, 0.6}}
		}
		return []Pace{{0, 1}}
	}
	got := timeline(t, Config{Cluster: even(t, 1, 2, 1), Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.PAL}}, Repace: repace,
		Jobs: []trace.Job{job("a", "D", 1, 0, 100), job("b", "D", 1, 10, 30)}})
	// a has done 10 of 100 s when b arrives. b takes 30/0.6 s, during which a does 25 s of work,
	// and has 65 s left.
	if d := cmp.Diff([]string{"0.0 a start [0]", "10.0 b start [1]", "60.0 b finish [1]", "125.0 a finish [0]"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A stop goes back to the last checkpoint, even if neighbours have come and gone since. The job
// works at half speed from 30 s to 90 s, and is stopped at 100 s, 20 s after a checkpoint.
func TestCheckpointsBesideNeighbours(t *testing.T) {
	e := &engine{Config: Config{CheckpointS: 40}}
	j := &simJob{left: 100, pace: []pace{{0, 100, 1}, {30, 70, 2}, {90, 40, 1}}}
	if got := j.leftAfter(e.kept(100)); got != 70-(80-30)/2. {
		t.Errorf("%v s are left", got)
	}
}
