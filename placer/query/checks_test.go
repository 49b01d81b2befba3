// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"
	"time"
)

// Clocks that are apart are told from a heartbeat that is old.
func TestCheckClocks(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		what            string
		written, worked time.Time
		want            Verdict
	}{
		{"none", time.Time{}, time.Time{}, Warn},
		{"right", now.Add(-10 * time.Second), now.Add(-10 * time.Second), OK},
		{"an old one", now.Add(-time.Hour), now.Add(-time.Hour), OK},
		{"the agent's is behind", now.Add(-10 * time.Second), now.Add(-time.Minute), Warn},
		{"the agent's is ahead", now.Add(-10 * time.Second), now.Add(time.Minute), Warn},
		{"the servers' is ahead", now.Add(time.Minute), now.Add(time.Minute), Warn},
	} {
		if got := CheckClocks(c.written, c.worked, now); got.Verdict != c.want {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}
