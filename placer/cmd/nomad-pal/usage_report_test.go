// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/accounting"
)

// reportOf is a month of 64 GPUs of two models and six users.
func reportOf() usageReport {
	r := usageReport{since: "1 November 2026", until: "30 November 2026", by: map[string][]accounting.Usage{}}
	line := func(of string, h float64) accounting.Usage {
		return accounting.Usage{Of: []string{of}, GPUHours: h, FailedGPUHours: h * 0.06, HeldInVainGPUHours: h * 0.004, IdleGPUHours: h * 0.09, SavedGPUHours: h * 0.14, SavedAnyGPUHours: h * 0.05,
			Runs: int64(h / 20), Complete: int64(h / 25), Failed: int64(h / 160), Stopped: int64(h / 250), WaitedHours: h / 40, Stops: int64(h / 50), StopsLostGPUHours: h / 500, StopsSavedHours: h / 100,
			Waits: [6]int64{int64(h / 45), int64(h / 90), int64(h / 120), int64(h / 200), int64(h / 900), int64(h / 4000)}}
	}
	for day := range 30 {
		if day != 14 { // a day without runs
			r.by["day"] = append(r.by["day"], line(fmt.Sprintf("2026-11-%02d", day+1), 1000+350*math.Sin(float64(day)/3)))
		}
	}
	total := 30_000.0
	for column, values := range map[string][]string{"namespace": {"research", "vision", "default"}, "user": {"ann", "bob", "", "a-user-with-a-name-that-is-far-too-long-for-a-bar", "eve", "zoe"},
		"class": {"A", "B", "D"}, "model": {"NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"}} {
		left := total
		for i, v := range values {
			h := left * 0.55
			if i == len(values)-1 {
				h = left
			}
			left -= h
			r.by[column] = append(r.by[column], line(v, h))
		}
	}
	r.all = line("", total)
	r.all.Seen = accounting.Seen{Runs: 412, GPUHours: 8000, Slowdown: 1.11, PredictedSlowdown: 1.08, PackedSlowdown: 1.24, AnySlowdown: 1.15, SavedGPUHours: 930, SavedAnyGPUHours: 290}
	r.all.Starts, r.all.RunTimes = accounting.PredictedRanges{Told: 640, Held: 522, Early: 70}, accounting.PredictedRanges{Told: 410, Held: 339, Early: 30}
	return r
}

// The report shows what was used, wasted and saved, and loads no other file. REPORT names a file in
// which to save it.
func TestUsageReport(t *testing.T) {
	for name, c := range map[string]struct {
		report usageReport
		says   []string
	}{
		"a month": {reportOf(), []string{"GPU usage, 1 November 2026 to 30 November 2026", "30,000", "By namespace", "vision", "not given", "NVIDIA-H100-80GB-HBM3",
			"1 to 10 minutes", "30m", "15.4 %", "all kinds, user ann", "with packed placement, measured", "412 runs", "60</td>", "stopped 600 times to make room for other runs. In total, the other runs got their GPUs 300 hours sooner", "81.6 %"}},
		"nothing ran":          {usageReport{since: "1 May 2026", until: "2 May 2026"}, []string{"No run that the token may see was active"}},
		"nothing was compared": {usageReport{all: accounting.Usage{GPUHours: 3, Runs: 1}}, []string{"No savings were measured", "–"}},
		"names are text": {usageReport{all: accounting.Usage{GPUHours: 3}, by: map[string][]accounting.Usage{"user": {{Of: []string{"<b>"}, GPUHours: 2}, {Of: []string{"ann"}, GPUHours: 1}}}},
			[]string{"&lt;b&gt;"}},
	} {
		var b bytes.Buffer
		if err := c.report.page().Write(&b); err != nil {
			t.Fatal(err)
		}
		for _, text := range c.says {
			if !strings.Contains(b.String(), text) {
				t.Errorf("%s: the report does not say %q", name, text)
			}
		}
		if found := regexp.MustCompile(`(?i:<b>|<script|src=|href=|@import|url\()|NaN|Inf`).FindString(b.String()); found != "" {
			t.Errorf("%s: the report has %q", name, found)
		}
		if dir := os.Getenv("REPORT"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".html"), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
