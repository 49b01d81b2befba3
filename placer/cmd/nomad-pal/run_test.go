// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Run repeats in plain words why Nomad refuses a job as invalid, as plan does, not Nomad's answer.
func TestRunOfInvalid(t *testing.T) {
	c := newCluster(t)
	file := filepath.Join(t.TempDir(), "empty.nomad.hcl")
	if err := os.WriteFile(file, []byte(`job "empty" { type = "batch" }`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, said := c.does("run", "-detach", file); code != 1 || said != "Error: registering job \"empty\": Nomad refuses the job: Missing job task groups\n" {
		t.Errorf("%d %q", code, said)
	}
}
