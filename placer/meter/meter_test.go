// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package meter_test

import (
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/meter"
)

// Counters whose labels are known show as 0 from the start: of one that begins at 1,
// Prometheus' rate and increase miss the first event.
func TestCountersBeginAtZero(t *testing.T) {
	text, err := meter.New("1.0.0", "abc", nil).Gather(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`nomad_pal_allocation_failures_total{cause="user"} 0`, `nomad_pal_stops_total{reason="preempted"} 0`,
		`nomad_pal_placements_total{app_class="A"} 0`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not there", want)
		}
	}
}
