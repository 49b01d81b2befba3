// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/sim/population"
)

// four returns two nodes with two GPUs each. One GPU has the score bad.
func four(bad float64) *GPUs {
	g := &GPUs{}
	for i := range 4 {
		u := population.GPU{Node: i / 2}
		for k := range u.Scores {
			u.Scores[k] = 1
		}
		g.All = append(g.All, u)
	}
	g.All[3].Scores[0] = bad
	return g
}

func TestFloor(t *testing.T) {
	t.Parallel()
	j := func(at, allocations, each, seconds int) Job {
		return Job{Submit: time.Duration(at) * time.Second, Allocations: allocations, GPUsEach: each, Iterations: seconds, Iteration: time.Second}
	}
	for _, c := range []struct {
		name string
		jobs []Job
		bad  float64
		want time.Duration
	}{
		{"one job with its overhead", []Job{j(3, 1, 1, 10)}, 1, 11 * time.Second},
		{"across nodes it pays", []Job{j(3, 2, 2, 10)}, 1, 21 * time.Second},
		{"a full cluster", []Job{j(0, 1, 2, 9), j(0, 1, 2, 9), j(0, 1, 2, 9), j(0, 1, 2, 9)}, 1, 20 * time.Second},
		{"the last job", []Job{j(0, 1, 1, 9), j(30, 1, 1, 9)}, 1, 40 * time.Second},
		{"two halves fit at the same time", []Job{j(0, 1, 2, 9), j(0, 1, 2, 9)}, 1, 10 * time.Second},
		{"but not with an outlier", []Job{j(0, 1, 2, 9), j(0, 1, 2, 9)}, 3, 20 * time.Second},
	} {
		if got := four(c.bad).Floor(c.jobs, 2, time.Second); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
