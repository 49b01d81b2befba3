// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command table prints the results of ../policies as the Markdown tables of
// bench/README.md.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
)

type result struct {
	Scenario string  `json:"scenario"`
	Variant  string  `json:"variant"`
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
	var rs []result
	var gs []gain
	for i, v := range []any{&rs, &gs} {
		b, err := os.ReadFile(os.Args[i+1])
		if err == nil {
			err = json.Unmarshal(b, v)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "table: %v\n", err)
			os.Exit(1)
		}
	}
	variants(rs)
	ranges(rs)
	gains(gs)
}

// variants compares all of them on the evaluation and the tuning workloads.
func variants(rs []result) {
	tuning := map[string]result{}
	for _, r := range rs {
		if r.Scenario == "tuning workloads" {
			tuning[r.Variant] = r
		}
	}
	fmt.Println("| policy | avg JCT | worst workload | makespan | longest JCT | tuning: avg JCT | tuning: makespan |\n|---|---|---|---|---|---|---|")
	for _, r := range rs {
		if r.Scenario != "base" {
			continue
		}
		t, note := tuning[r.Variant], ""
		if r.Stuck > 0 {
			note = fmt.Sprintf(" (%d of 640 jobs never finish)", r.Stuck)
		}
		fmt.Printf("| %s%s | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f |\n", r.Variant, note, r.AvgJCT, r.Worst, r.Makespan, r.Longest, t.AvgJCT, t.Makespan)
	}
}

// ranges gives the spread of the defaults over each kind of scenario.
func ranges(rs []result) {
	fmt.Println("\n| | without preemption: avg JCT | makespan | with preemption: avg JCT | makespan |\n|---|---|---|---|---|")
	for _, kind := range []string{"GPUs of seed", "whole GPUs", "load", "locality penalty", "estimates"} {
		fmt.Printf("| %s |", kind)
		for _, v := range []string{"ours without preemption", "ours with preemption"} {
			low, high := result{AvgJCT: math.Inf(1), Makespan: math.Inf(1)}, result{}
			for _, r := range rs {
				if r.Variant == v && strings.HasPrefix(r.Scenario, kind) {
					low.AvgJCT, low.Makespan = min(low.AvgJCT, r.AvgJCT), min(low.Makespan, r.Makespan)
					high.AvgJCT, high.Makespan = max(high.AvgJCT, r.AvgJCT), max(high.Makespan, r.Makespan)
				}
			}
			fmt.Printf(" %.3f–%.3f | %.3f–%.3f |", low.AvgJCT, high.AvgJCT, low.Makespan, high.Makespan)
		}
		fmt.Println()
	}
}

// outlier is the class-A score from which a population counts as having one.
const outlier = 1.5

func gains(gs []gain) {
	fmt.Println("\n| populations | packed, moved every round | PM-First | PAL |\n|---|---|---|---|")
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
		fmt.Printf("| %s (%.0f) | %.3f | %.3f | %.3f |\n", kind.name, n, math.Exp(move/n), math.Exp(pm/n), math.Exp(pal/n))
	}
}
