// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/bench/rank"
)

// Under Slurm, a rank knows its GPUs by their numbers on the node. Ranks on different nodes have
// the same numbers.
func TestFromSlurm(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.json")
	if err := os.WriteFile(path, []byte(`{"n0": ["a", "b"], "n1": ["c", "d", "e"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SLURM_JOB_NAME": "j", "SLURM_PROCID": "2", "SLURMD_NODENAME": "n1", "CUDA_VISIBLE_DEVICES": "2,0"}
	get := func(name string) string { return env[name] }
	got, err := fromSlurm(get, path)
	want := rank.Rank{Job: "j", Group: "ranks", Index: 2, Node: "n1", GPUs: []string{"e", "c"}}
	if err != nil || !cmp.Equal(got, want) {
		t.Error(err, cmp.Diff(want, got))
	}
	for name, bad := range map[string]string{"SLURM_PROCID": "", "SLURMD_NODENAME": "n7", "CUDA_VISIBLE_DEVICES": "0,3"} {
		was := env[name]
		env[name] = bad
		if _, err := fromSlurm(get, path); err == nil {
			t.Errorf("%s=%q is accepted", name, bad)
		}
		env[name] = was
	}
}
