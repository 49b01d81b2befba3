// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"
)

// Agent and Nomad give the same answer about the current use of GPUs: of all GPUs, of a node's,
// of a job's. explain shows it for the job's members. Nodes that do not answer are named.
func TestLiveGPUs(t *testing.T) {
	c := newCluster(t)
	for _, gpu := range []string{"GPU-0-0", "GPU-1-0"} {
		c.nomad.SetUse(gpu, 63)
	}
	c.nomad.SetUse("GPU-0-1", 0)
	c.nomad.SetUse("GPU-1-1", 0)
	url := c.agent("", "http {\n  bind_port = 0\n}\n")
	c.must("run", c.job("default", "train", 4))
	for _, at := range []string{url} {
		code, out, said := c.does("gpus", "-live", "-pal-address", at)
		if code != 0 || strings.Count(out, " 63%") != 2 || strings.Count(out, "  0%") != 2 || strings.Count(out, "1/16 GiB") != 4 || strings.Count(out, "unknown") != 4 || strings.Count(out, "default/train") != 4 {
			t.Errorf("%s: %d\n%s%s", at, code, out, said)
		}
		if !strings.Contains(said, "Warning: the plugin on node node-1 sends no statistics of this GPU") {
			t.Errorf("%s: %s", at, said)
		}
		if _, out, _ := c.does("gpus", "-live", "-pal-address", at, "-node", "node-1"); strings.Contains(out, "GPU-0-") || !strings.Contains(out, "GPU-1-3") {
			t.Errorf("%s: of a node:\n%s", at, out)
		}
		if _, out, said := c.does("gpus", "-live", "-pal-address", at, "-job", "train"); strings.Count(out, "default/train") != 4 || strings.Count(out, "GPU-") != 4 {
			t.Errorf("%s: of a job:\n%s%s", at, out, said)
		}
		for _, live := range []string{"-live", "-live=false"} {
			if _, out, said := c.does("gpus", live, "-pal-address", at, "-node", "node-1", "-job", "nosuch"); out != "No GPU matches.\n" {
				t.Errorf("%s %s: of a job that does not exist: %s%s", at, live, out, said)
			}
		}
		if code, out, _ := c.does("gpus", "-live", "-json", "-pal-address", at); code != 0 || strings.Count(out, `"utilization_percent": 63`) != 2 {
			t.Errorf("%s: %d\n%s", at, code, out)
		}
	}
}
