// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// All pins count for a while after the placer's start, not after the job's.
func TestDistrustPins(t *testing.T) {
	t.Parallel()
	p := newPlacer(t)
	p.m.State = cluster.NewState()
	pins := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", GPUs: []string{"a"}}}}
	began := time.Now()
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {pinsGrace - 1, true}, {pinsGrace, false}, {pinsGrace + time.Hour, false}} {
		p.distrustPins(began.Add(c.after))
		if got := p.m.State.TrustsPins(cluster.JobKey{ID: "j"}, pins); got != c.want {
			t.Errorf("after %v: %v", c.after, got)
		}
	}
}
