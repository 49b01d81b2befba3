// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"
)

// Deleting measurements that do not exist is an error, because their name may be
// misspelled.
func TestDeleteImported(t *testing.T) {
	c := newCluster(t)
	table := c.written("times.csv", "gpu,model,app,time\nGPU-0-0,NVIDIA H200,A,100\nGPU-0-1,NVIDIA H200,A,101\n")
	c.must("profile", "import", table)
	c.says(1, `nothing is imported under "nope"`, "profile", "import", "-delete", "-name", "nope")
	c.says(0, `Nothing is imported under "times" now.`, "profile", "import", "-delete", "-name", "times")
}
