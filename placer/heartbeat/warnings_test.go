// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package heartbeat

import (
	"strings"
	"testing"
	"time"
)

// The agent warns before one of its certificates expires, and afterwards.
func TestWarnsOfCertificates(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name        string
		lives, left time.Duration
		want        string
	}{
		{"a year's, in spring", 365 * day, 200 * day, ""},
		{"a year's, 15 days before its end", 365 * day, 15 * day, ""},
		{"a year's, 13 days before its end", 365 * day, 13 * day, "expires on 2026-12-13 03:00 UTC: renew it, and reload the agent"},
		{"a day's, renewed after two thirds", day, 8 * time.Hour, ""},
		{"a day's, not renewed", day, 2 * time.Hour, "expires on 2026-11-30 05:00 UTC"},
		{"expired", 365 * day, 0, "the agent's certificate /x.pem (http { cert_file }) expired on 2026-11-30 03:00 UTC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w Warnings
			until := now.Add(c.left)
			w.Certificates([]Credential{{Name: "certificate /x.pem (http { cert_file })", From: until.Add(-c.lives), Until: until}})
			all := strings.Join(w.All(now), "; ")
			if !strings.Contains(all, c.want) || (all == "") != (c.want == "") {
				t.Errorf("%q, want %q", all, c.want)
			}
		})
	}
}
