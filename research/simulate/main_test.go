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

// The command reads a published trace, and has the clairvoyant policy. It asks no agent.
func TestCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.csv")
	if err := os.WriteFile(path, []byte("job_id,num_gpus,submit_time,duration,model\n1,4,0,4000,resnet50\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := command().Run([]string{"-trace", path, "-policy", "clairvoyant"}, &out, &out); code != 0 || !strings.Contains(out.String(), "policy clairvoyant, 64 GPUs") {
		t.Errorf("%d: %s", code, out.String())
	}
}
