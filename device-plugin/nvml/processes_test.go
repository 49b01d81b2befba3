// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

// Processes come from the real library's call, by GPU; those of a GPU that is
// lost, or that has none, are not listed.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	state := nvmltest.H200(4)
	state.Set("gpu0", "processes", "4712,4711")
	state.Set("gpu2", "processes", "4713")
	state.Set("sys", "pids", dir)
	for _, name := range []string{fmt.Sprintf("%s.%d", nvmltest.UUID(3), os.Getpid()), nvmltest.UUID(3) + ".99999999"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	n := open(t, state)
	if got := n.Processes([]string{nvmltest.UUID(0)}); len(got) != 0 {
		t.Errorf("before the first scan: %v", got)
	}
	n.scan()
	n.set("gpu2", "lost", "1")
	got := n.Processes([]string{nvmltest.UUID(0), nvmltest.UUID(1), nvmltest.UUID(2), nvmltest.UUID(3), "GPU-none"})
	want := map[string][]int{nvmltest.UUID(0): {4711, 4712}, nvmltest.UUID(3): {os.Getpid()}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
