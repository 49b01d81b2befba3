// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sleepers are the pids of sleeper tasks whose working directory is below dir. It reads /proc
// itself, independently of the code under test.
func sleepers(t *testing.T, dir string) []string {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, p := range procs {
		cwd, _ := os.Readlink(filepath.Join(p, "cwd"))
		cmdline, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if strings.HasPrefix(cwd, dir) && strings.Contains(string(cmdline), "/bin/sleep\x0086399") {
			pids = append(pids, filepath.Base(p))
		}
	}
	return pids
}
