// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// Of several built Nomads, the one with the highest version is found, not the last by name.
func TestFindNomadFindsTheNewest(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("NOMAD_BIN", "")
	t.Setenv("PATH", "")
	t.Setenv("XDG_CACHE_HOME", cache)
	if err := os.Mkdir(filepath.Join(cache, "nomad-pal"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nomad-1.11.3", "nomad-1.9.7", "nomad-1.10.0", "nomad-x1"} {
		if err := os.WriteFile(filepath.Join(cache, "nomad-pal", name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got, err := cluster.FindNomad()
	if err != nil || filepath.Base(got) != "nomad-1.11.3" {
		t.Errorf("found %s, %v, want nomad-1.11.3", got, err)
	}
}
