// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"
)

// Deleting measurements that do not exist is an error, because their name may be
// misspelled.
func TestDeleteImported(t *testing.T) {
	c := newCluster(t)
	table := c.written("times.csv", "gpu,model,app,time\nGPU-0-0,NVIDIA H200,A,100\nGPU-0-1,NVIDIA H200,A,101\n")
	if code, out, said := c.does("profile", "import", table); code != 0 {
		t.Fatal(out, said)
	}
	if code, _, said := c.does("profile", "import", "-delete", "-name", "nope"); code != 1 || !strings.Contains(said, `nothing is imported under "nope"`) {
		t.Errorf("nope: %d %s", code, said)
	}
	if code, out, said := c.does("profile", "import", "-delete", "-name", "times"); code != 0 || !strings.Contains(out, `Nothing is imported under "times" now.`) {
		t.Errorf("times: %d %s%s", code, out, said)
	}
}
