// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestReadmeFigures: the figures of README's results are those of bench/results.
func TestReadmeFigures(t *testing.T) {
	readme := read(t, "README.md")
	plain30, plain10, ours := replayed(t, "nomad-binpack-retry30m", 1), replayed(t, "nomad-binpack-retry10m", 1), replayed(t, "pal-default", 1)
	noOutlier30, noOutlier10, noOutlier := replayed(t, "nomad-binpack-retry30m", 0), replayed(t, "nomad-binpack-retry10m", 0), replayed(t, "pal-default", 0)
	for row, figures := range map[string]string{
		"| Average completion time of 300 jobs":      fmt.Sprintf("| %.1f s (%.1f s) | %.1f s |", plain30.AvgJCT, plain10.AvgJCT, ours.AvgJCT),
		"| GPU time in which half-placed gangs wait": fmt.Sprintf("| %.0f %% (%.0f %%) | %.2f %% |", 100*plain30.Held, 100*plain10.Held, 100*ours.Held),
		"| Gangs placed per second on 1,000":         scaled(t, 1000),
		"| The same on 64 GPUs without an outlier":   fmt.Sprintf("| %.1f s (%.1f s) | %.1f s |", noOutlier30.AvgJCT, noOutlier10.AvgJCT, noOutlier.AvgJCT),
		"Three workloads of 100 jobs":                "measured on " + replayDate(t),
	} {
		_, rest, ok := strings.Cut(readme, row)
		line, _, _ := strings.Cut(rest, "\n")
		if !ok || !strings.Contains(line, figures) {
			t.Errorf("README.md, %q: want %q, have %q", row, figures, line)
		}
	}
}

func results(t *testing.T, name string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "bench/results/"+name)), into); err != nil {
		t.Fatalf("bench/results/%s: %v", name, err)
	}
}

// line has the figures of one scheduler without preemption. All jobs count.
type line struct {
	Scheduler   string
	Preemption  bool
	Outliers    int
	Repetitions int
	AvgJCT      float64 `json:"avg_jct_s"`
	Held        float64 `json:"held_in_vain"`
}

func replayed(t *testing.T, scheduler string, outliers int) line {
	t.Helper()
	var r struct {
		Jobs int
		Runs []line
	}
	results(t, "replay.json", &r)
	for _, l := range r.Runs {
		if l.Scheduler == scheduler && l.Outliers == outliers && !l.Preemption && r.Jobs*l.Repetitions == 300 {
			return l
		}
	}
	t.Fatalf("replay.json has no 300 jobs under %s", scheduler)
	return line{}
}

func replayDate(t *testing.T) string {
	var r struct{ Date string }
	results(t, "replay.json", &r)
	return r.Date
}

// scaled returns the gangs per second of plain Nomad, and of nomad-pal for jobs with the gate.
func scaled(t *testing.T, nodes int) string {
	type way struct {
		Gangs float64 `json:"gangs_per_s"`
	}
	var r struct {
		Points []struct {
			Nodes        int
			Plain, Gated way
		}
	}
	results(t, "scale.json", &r)
	for _, p := range r.Points {
		if p.Nodes == nodes {
			return fmt.Sprintf("%.0f | %.0f", p.Plain.Gangs, p.Gated.Gangs)
		}
	}
	return fmt.Sprintf("a point of %d nodes in scale.json", nodes)
}
