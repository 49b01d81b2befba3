// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := filepath.Join(dir, "scale.json")
	r := &report{Command: []string{"scale", "-nomad", "/n", "-nodes", "100"}, Points: []point{
		{Nodes: 100, GPUs: 800, Burst: 50, P50: 50, P99: 100, PlainP50: 40, PlainP99: 80, GangsPerS: 30, PlainGangsPerS: 70, PlacerRSS: 30, ServerRSS: 150, PlacerCPU: 0.2, ServerCPU: 0.8, PlainServerCPU: 0.4},
		{Nodes: 10000, GPUs: 80000, Burst: 200, P50: 500, P99: 1000, PlainP50: 400, PlainP99: 800, GangsPerS: 10, PlainGangsPerS: 9, PlacerRSS: 300, ServerRSS: 1500, PlacerCPU: 2, ServerCPU: 8, PlainServerCPU: 4},
	}, Extremes: &extremes{WideGPUs: 1000, WideMS: 1234}}
	if err := r.write(from); err != nil {
		t.Fatal(err)
	}
	again, err := readReport(from)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := again.page().Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Command: scale -nodes 100.", "<td>one gang of 1000 GPUs placed</td><td>1234 ms</td>", "plain Nomad, p99", "Nomad&#39;s server alone"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	o := options{from: from, html: filepath.Join(dir, "r.html"), svg: filepath.Join(dir, "svg")}
	if err := o.show(again); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"r.html", "svg/scale-latency.svg", "svg/scale-rate.svg", "svg/scale-memory.svg", "svg/scale-cpu.svg"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() < 500 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readReport(filepath.Join(dir, "none.json")); err == nil {
		t.Error("a file that is not there is read")
	}
}
