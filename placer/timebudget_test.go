// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"testing"
	"time"
)

// A namespace whose job took long pauses for longer than the job took. But it does not pause for
// minutes because Nomad did not answer once: its other jobs must be served, too (walk 43143).
func TestSlowNamespaceWaits(t *testing.T) {
	for _, c := range []struct{ took, until time.Duration }{
		{took: 500 * time.Millisecond, until: 0},
		{took: 2 * time.Second, until: 6 * time.Second},
		{took: 30 * time.Second, until: 40 * time.Second},
	} {
		var b timeBudget
		now := time.Now()
		b.begin(now)
		b.spend("slow", c.took, now)
		for _, at := range []time.Duration{max(c.took, c.until) - time.Millisecond, max(c.took, c.until)} {
			b.begin(now.Add(at))
			if ok, _ := b.has("slow"); ok != (at >= c.until) {
				t.Errorf("a job took %v: after %v its namespace has budget: %t", c.took, at, ok)
			}
		}
		if ok, _ := b.has("other"); !ok {
			t.Errorf("a job took %v, and another namespace pauses", c.took)
		}
	}
}
