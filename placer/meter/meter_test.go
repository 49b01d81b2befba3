// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package meter_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/placer/meter"
)

// Counters whose labels are known start at 0. If one started at 1, Prometheus' rate and increase
// would miss the first event. Only the labels of registrations are not known in advance.
func TestCountersBeginAtZero(t *testing.T) {
	m := meter.New("1.0.0", "abc", nil)
	text, err := m.Gather(false)
	if err != nil {
		t.Fatal(err)
	}
	begins := map[string][]string{}
	for _, line := range regexp.MustCompile(`(?m)^(nomad_pal_\w+_total)\{(.*)\} 0$`).FindAllStringSubmatch(string(text), -1) {
		begins[line[1]] = append(begins[line[1]], line[2])
	}
	for _, c := range m.Metrics() {
		if c.Kind == "counter" && c.Name != "nomad_pal_registrations_total" && begins[c.Name] == nil {
			t.Errorf("%s does not begin at 0", c.Name)
		}
	}
	if d := cmp.Diff(map[string][]string{
		"nomad_pal_allocation_failures_total": {`cause="infrastructure"`, `cause="unknown"`, `cause="user"`},
		"nomad_pal_placements_total":          {`app_class="A"`, `app_class="B"`, `app_class="C"`, `app_class="D"`},
		"nomad_pal_stops_total":               {`reason="moved"`, `reason="preempted"`, `reason="requeued"`, `reason="resized"`},
	}, begins); d != "" {
		t.Errorf("series that begin at 0 (-want +got):\n%s", d)
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
