// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package jobspecs contains jobs to copy; its tests check them.
package jobspecs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Nomad's parser accepts every file, and the placer knows all hints in it. Every job has the gate,
// except the jobs for plain Nomad and the placer's own job.
func TestJobspecs(t *testing.T) {
	files, err := filepath.Glob("*.nomad.hcl")
	if err != nil || len(files) < 5 {
		t.Fatalf("found %d jobspecs: %v", len(files), err)
	}
	ungated := map[string]bool{"native-class.nomad.hcl": true, "nomad-pal.nomad.hcl": true, "nvidia-mps.nomad.hcl": true, "measure.nomad.hcl": true,
		"shared-inference.nomad.hcl": true, "shared-notebook.nomad.hcl": true, "shared-batch.nomad.hcl": true}
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			job := parse(t, name)
			if _, err := rewrite.ParseHints(job); err != nil {
				t.Error(err)
			}
			if gated := rewrite.Gated(job); gated == ungated[name] {
				t.Errorf("gated: %v", gated)
			}
			if name != "nomad-pal.nomad.hcl" && *job.ID+".nomad.hcl" != name {
				t.Errorf("job %q lies in %s", *job.ID, name)
			}
		})
	}
}

func parse(t *testing.T, name string) *api.Job {
	t.Helper()
	body, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	job, err := jobspec2.ParseWithConfig(&jobspec2.ParseConfig{Path: name, Body: body, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	job.Canonicalize()
	return job
}
