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
	for row, figures := range map[string]string{
		"| Simulated: four workloads":        simulated(t, "nomad", "%.2f | %.2f; %.2f if jobs may be stopped"),
		"| The same, but plain Nomad's":      simulated(t, "nomad, rendezvous 30 min", "%.2f | %.2f; %.2f"),
		"| Real Nomad, 64 emulated GPUs":     replayed(t, "avg_jct_s", 1, "%.1f s | %.1f s"),
		"| The same: share of GPU time":      replayed(t, "held_in_vain", 100, "%.2g %% | %.1g %%"),
		"| Real Nomad server, 1,000 sim":     scaled(t, 1000),
		"| The same with 10,000 nodes":       scaled(t, 10000),
		"measured on " + replayDate(t) + ".": "",
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

// simulated returns the average JCTs of plain Nomad, and of nomad-pal without and with preemption.
func simulated(t *testing.T, plain, format string) string {
	var rs []struct {
		Scenario, Variant string
		Average           float64 `json:"avg_jct"`
	}
	results(t, "policies.json", &rs)
	of := map[string]float64{}
	for _, r := range rs {
		if r.Scenario == "base" {
			of[r.Variant] = r.Average
		}
	}
	return fmt.Sprintf(format, of[plain], of["ours without preemption"], of["ours with preemption"])
}

// replayed returns a figure of plain Nomad and of nomad-pal without preemption, with an outlier.
func replayed(t *testing.T, field string, factor float64, format string) string {
	var r struct{ Runs []map[string]any }
	results(t, "replay.json", &r)
	of := map[any]float64{}
	for _, run := range r.Runs {
		if run["population"] == "1 outlier" && run["preemption"] == false {
			of[run["scheduler"]] = run[field].(float64) * factor
		}
	}
	return fmt.Sprintf(format, of["nomad-binpack-retry30m"], of["pal-default"])
}

func replayDate(t *testing.T) string {
	var r struct{ Date string }
	results(t, "replay.json", &r)
	return r.Date
}

// scaled returns the gangs per second of plain Nomad and of nomad-pal.
func scaled(t *testing.T, nodes int) string {
	type way struct {
		Gangs float64 `json:"gangs_per_s"`
	}
	var r struct {
		Points []struct {
			Nodes int
			way
			Plain way
		}
	}
	results(t, "scale.json", &r)
	for _, p := range r.Points {
		if p.Nodes == nodes {
			return fmt.Sprintf("%.0f | %.0f", p.Plain.Gangs, p.Gangs)
		}
	}
	return fmt.Sprintf("a point of %d nodes in scale.json", nodes)
}
