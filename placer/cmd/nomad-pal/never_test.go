// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

var rewriteStories = flag.Bool("rewrite", false, "write what is said of the jobs in testdata/never")

// TestNeverStarts plans the jobs in testdata/never on a cluster of several GPU models, and runs those
// that never start. The file beside each job has the expected output and exit code.
func TestNeverStarts(t *testing.T) {
	c := mixedCluster(t)
	jobs, err := filepath.Glob("testdata/never/*.nomad.hcl")
	if err != nil || len(jobs) == 0 {
		t.Fatal(err, jobs)
	}
	c.agent("", atAnyPort)
	for _, path := range jobs {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".nomad.hcl"), func(t *testing.T) {
			code, got, said := c.seen("plan", path)
			got = fmt.Sprintf("exit code %d\n%s%s", code, got, said)
			got = regexp.MustCompile(`(?m) +$|\x1b\[[0-9;]*m`).ReplaceAllString(got, "")
			if code == 2 {
				c.warnsDetached(path, got)
				if run, out, said := c.does("run", path); run == 0 || run == 3 {
					t.Errorf("run: %d\n%s%s", run, out, said)
				}
			}
			story := strings.TrimSuffix(path, ".nomad.hcl") + ".txt"
			if *rewriteStories {
				if err := os.WriteFile(story, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(story)
			if err != nil || string(want) != got {
				t.Errorf("%v\n%s\nwant\n%s", err, got, want)
			}
		})
	}
}

// warnsDetached runs a job that never starts with -detach. If Nomad accepts the job, the command
// warns with the first sentence of its plan.
func (c *testCluster) warnsDetached(path, plan string) {
	c.t.Helper()
	_, plan, _ = strings.Cut(plan, "\n")
	sentence, _, _ := strings.Cut(plan, "\n\n")
	code, _, said := c.does("run", "-detach", path)
	if want := "Warning: " + strings.Join(strings.Fields(sentence), " "); code == 0 && !strings.Contains(strings.Join(strings.Fields(said), " "), want) {
		c.t.Errorf("run -detach says %q, want %q", said, want)
	}
}

// mixedCluster has two nodes of 4 A100, one of 2 V100, one of MIG instances, and one without GPUs.
func mixedCluster(t *testing.T) *testCluster {
	c := newCluster(t)
	models := []string{"NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-80GB MIG 3g.40gb"}
	for i, model := range models {
		n := nomadtest.GPUNode(i, map[bool]int{true: 4, false: 2}[i < 2])
		d := n.NodeResources.Devices[0]
		d.Name = model
		memory, capability := int64(81920), int64(8)
		if i == 2 {
			memory, capability = 32768, 7
		}
		d.Attributes = map[string]*api.Attribute{
			"memory": {IntVal: &memory, Unit: "MiB"}, "compute_major": {IntVal: &capability}, "driver_version": {StringVal: new("550.54.15")},
			"ecc": {BoolVal: new(true)}, "architecture": {StringVal: new(map[bool]string{true: "volta", false: "ampere"}[i == 2])},
		}
		n.Drivers = map[string]*api.DriverInfo{"raw_exec": {Detected: true, Healthy: true}, "docker": {Detected: true, Healthy: true}}
		n.NodeResources.Cpu.TotalCpuCores, n.NodeResources.Cpu.ReservableCpuCores = 64, make([]uint16, 64)
		c.nomad.AddNode(n)
	}
	c.nomad.AddNode(&api.Node{ID: "0000000a-0000-0000-0000-000000000000", Name: "cpu-0"})
	return c
}
