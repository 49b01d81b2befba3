// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/bench/command"
)

func TestReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := filepath.Join(dir, "scale.json")
	r := &report{Provenance: command.Provenance{Command: []string{"scale", "-nodes", "100"}}, Points: []point{
		{Nodes: 100, GPUs: 800, Burst: 50, PlacerRSS: 30, ServerRSS: 150, Plain: way{GangsPerS: 70, P50: 40, P99: 80, ServerCPU: 0.4},
			Gated: way{GangsPerS: 30, P50: 50, P99: 100, PlacerCPU: 0.2, ServerCPU: 0.8}},
		{Nodes: 10000, GPUs: 80000, Burst: 200, PlacerRSS: 300, ServerRSS: 1500, Plain: way{GangsPerS: 9, P50: 400, P99: 800, ServerCPU: 4},
			Gated: way{GangsPerS: 8, P50: 500, P99: 1000, PlacerCPU: 2, ServerCPU: 8}},
	}, Extremes: &extremes{WideGPUs: 1000, WideMS: 1234},
		Clients: &clients{Nodes: 16, GPUs: 1024, Plain: []crowd{{Jobs: 100, P50: 800}}, Gated: []crowd{{Jobs: 100, P50: 960}},
			PlainGangs: &gangs{P50: 70, P99: 90, PerS: 20, Low: 18, High: 21}, GatedGangs: &gangs{PerS: 1}, SlurmGangs: &gangs{P50: 210, P99: 230, PerS: 9, Low: 8, High: 10}}}
	if err := r.write(from); err != nil {
		t.Fatal(err)
	}
	again := &report{}
	if err := command.Read(from, again); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := again.Page().Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Command: scale -nodes 100.", "<td>one gang of 1000 GPUs placed</td><td>1234 ms</td>", "<td>100</td><td>800</td><td>960</td>", "plain Nomad, p99", "Nomad&#39;s server alone"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	b.Reset()
	command.Print(&b, again.Page())
	for _, want := range []string{"Bursts of jobs on 16 real clients with 1024 GPUs\n", "100           800       960       1.20\n",
		"Gangs of 2 × 4 GPUs, on 16 real nodes\n", "Slurm  210                          230     9.0      8.0–10.0\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the terminal lacks %q:\n%s", want, b.String())
		}
	}
	o := options{Results: command.Results{From: from, HTML: filepath.Join(dir, "new", "r.html"), SVG: filepath.Join(dir, "svg")}}
	if err := o.Show(again.Page()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new/r.html", "svg/scale-latency.svg", "svg/scale-rate.svg", "svg/scale-memory.svg", "svg/scale-cpu.svg"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() < 500 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
