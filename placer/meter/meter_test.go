// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package meter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/meter"
)

// Counters whose labels are known start at 0. If one started at 1, Prometheus' rate and increase
// would miss the first event.
func TestCountersBeginAtZero(t *testing.T) {
	text, err := meter.New("1.0.0", "abc", nil).Gather(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`nomad_pal_allocation_failures_total{cause="user"} 0`, `nomad_pal_stops_total{reason="preempted"} 0`, `nomad_pal_stops_total{reason="resized"} 0`,
		`nomad_pal_placements_total{app_class="A"} 0`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing", want)
		}
	}
}

// Series that name namespaces are only for readers who may see names.
func TestNamedSeries(t *testing.T) {
	m := meter.New("1.0.0", "abc", nil)
	m.Placed("research", "A", 2*time.Second, 1.1)
	for _, named := range []bool{false, true} {
		text, err := m.Gather(named)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(text), `nomad_pal_namespace_wait_seconds_count{namespace="research"} 1`); got != named || !strings.Contains(string(text), `nomad_pal_placements_total{app_class="A"} 1`) {
			t.Errorf("named %v: the namespace is shown: %v\n%s", named, got, text)
		}
	}
}
