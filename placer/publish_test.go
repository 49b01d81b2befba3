// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"testing"
	"time"
)

// A reader waits for a newer snapshot only if the placer should have made one already. On a large
// cluster the placer makes snapshots less often, and readers must not change that.
func TestBehind(t *testing.T) {
	for what, c := range map[string]struct {
		old, inVain bool
		took, age   time.Duration
		want        bool
	}{
		"without changes":   {age: time.Minute},
		"recent":            {old: true, age: 1900 * time.Millisecond},
		"old":               {old: true, age: 2100 * time.Millisecond, want: true},
		"waited in vain":    {old: true, inVain: true, age: time.Minute},
		"slow to make":      {old: true, took: 100 * time.Millisecond, age: 2500 * time.Millisecond},
		"slow to make, old": {old: true, took: 100 * time.Millisecond, age: 3100 * time.Millisecond, want: true},
	} {
		p := &pictures{}
		s := &p.published
		s.old, s.inVain, s.took, s.seen = c.old, c.inVain, c.took, time.Now().Add(-c.age)
		if _, got := p.behind(); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
