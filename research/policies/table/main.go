// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command table prints the results of ../policies as Markdown tables. docs/results/README.md has
// some of their rows.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
)

type result struct {
	Scenario string  `json:"scenario"`
	Variant  string  `json:"variant"`
	Preempts bool    `json:"preempts"`
	AvgJCT   float64 `json:"avg_jct"`
	Worst    float64 `json:"worst_avg_jct"`
	Makespan float64 `json:"makespan"`
	Longest  float64 `json:"longest_jct"`
	Stuck    int     `json:"never_finished"`
}

type gain struct {
	Outliers bool    `json:"outliers"`
	Slowest  float64 `json:"slowest_class_a_score"`
	NoSticky float64 `json:"packed_nonsticky"`
	PMFirst  float64 `json:"pm_first"`
	PAL      float64 `json:"pal"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: table policies.json gain.json")
		os.Exit(2)
	}
	if err := tables(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "table: %v\n", err)
		os.Exit(1)
	}
}

// tables writes all tables of the results in the two files, separated by empty lines.
func tables(w io.Writer, policies, gainOf string) error {
	var rs []result
	var gs []gain
	for file, v := range map[string]any{policies: &rs, gainOf: &gs} {
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, v)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	variants(w, rs)
	ranks(w, rs)
	gains(w, gs)
	return nil
}

// leftOut matches the variants that are in policies.json but not in the tables.
var leftOut = regexp.MustCompile(`^adaptive, |^srtf, preempting, p[am]|no moves$|no outliers avoided$|max_wait|^fifo, b|^srtf, |no locality wait$|pm-first$`)

// variants compares most variants on the evaluation workloads.
func variants(w io.Writer, rs []result) {
	fmt.Fprintln(w, "| policy | average JCT | worst workload | makespan | longest JCT |\n|---|---|---|---|---|")
	for _, r := range rs {
		if r.Scenario != "base" || leftOut.MatchString(r.Variant) {
			continue
		}
		note := ""
		if r.Stuck > 0 {
			note = fmt.Sprintf(" (%d of 640 jobs never finish)", r.Stuck)
		}
		fmt.Fprintf(w, "| %s%s | %.3f | %.3f | %.3f | %.3f |\n", r.Variant, note, r.AvgJCT, r.Worst, r.Makespan, r.Longest)
	}
}

// ranks writes the spread of the defaults over all scenarios, and the number of scenarios in which
// another policy is better than the default. A policy that stops gangs is compared with the default
// that also stops gangs.
func ranks(w io.Writer, rs []result) {
	byScenario := map[string][]result{}
	for _, r := range rs {
		if r.Scenario != "tuning workloads" {
			byScenario[r.Scenario] = append(byScenario[r.Scenario], r)
		}
	}
	var jct, makespan, average, shorter [2]string
	for i, name := range []string{"ours without preemption", "ours with preemption"} {
		low, high, least, most := math.Inf(1), 0.0, math.Inf(1), 0.0
		var lowerAverage, lowerMakespan int
		for _, all := range byScenario {
			ours := all[slices.IndexFunc(all, func(r result) bool { return r.Variant == name })]
			others := slices.DeleteFunc(slices.Clone(all), func(r result) bool {
				return r.Preempts != ours.Preempts || strings.HasPrefix(r.Variant, "ours")
			})
			low, high = min(low, ours.AvgJCT), max(high, ours.AvgJCT)
			least, most = min(least, ours.Makespan), max(most, ours.Makespan)
			if slices.ContainsFunc(others, func(r result) bool { return r.AvgJCT < ours.AvgJCT }) {
				lowerAverage++
			}
			if slices.ContainsFunc(others, func(r result) bool { return r.Makespan < ours.Makespan }) {
				lowerMakespan++
			}
		}
		n := len(byScenario)
		jct[i], makespan[i] = fmt.Sprintf("%.3f–%.3f", low, high), fmt.Sprintf("%.3f–%.3f", least, most)
		average[i], shorter[i] = fmt.Sprintf("%d of %d", lowerAverage, n), fmt.Sprintf("%d of %d", lowerMakespan, n)
	}
	fmt.Fprintln(w, "\n| | without preemption | with preemption |\n|---|---|---|")
	fmt.Fprintf(w, "| average JCT | %s | %s |\n| makespan | %s | %s |\n", jct[0], jct[1], makespan[0], makespan[1])
	fmt.Fprintf(w, "| scenarios in which another policy has a lower average JCT | %s | %s |\n", average[0], average[1])
	fmt.Fprintf(w, "| scenarios in which another policy has a shorter makespan | %s | %s |\n", shorter[0], shorter[1])
}

// outlier is the class-A score from which a GPU counts as an outlier.
const outlier = 1.5

func gains(w io.Writer, gs []gain) {
	fmt.Fprintln(w, "\n| populations | packed, moved every round | PM-First | PAL |\n|---|---|---|---|")
	for _, kind := range []struct {
		name string
		is   func(gain) bool
	}{
		{"with an outlier", func(g gain) bool { return g.Slowest >= outlier }},
		{"as drawn, without one", func(g gain) bool { return g.Outliers && g.Slowest < outlier }},
		{"scores capped at 1.15", func(g gain) bool { return !g.Outliers }},
	} {
		var n, move, pm, pal float64
		for _, g := range gs {
			if kind.is(g) {
				n, move, pm, pal = n+1, move+math.Log(g.NoSticky), pm+math.Log(g.PMFirst), pal+math.Log(g.PAL)
			}
		}
		fmt.Fprintf(w, "| %s (%.0f) | %.3f | %.3f | %.3f |\n", kind.name, n, math.Exp(move/n), math.Exp(pm/n), math.Exp(pal/n))
	}
}
