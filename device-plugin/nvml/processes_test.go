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

// Processes come from the real library's call, by GPU. A GPU that has none is not
// one that does not answer: that may be in use.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	state := nvmltest.H200(5)
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
	n.set("gpu4", "ret.nvmlDeviceGetComputeRunningProcesses_v3", "3") // not supported
	got := n.Processes([]string{nvmltest.UUID(0), nvmltest.UUID(1), nvmltest.UUID(2), nvmltest.UUID(3), nvmltest.UUID(4), "GPU-none"})
	want := map[string][]int{nvmltest.UUID(0): {4711, 4712}, nvmltest.UUID(1): nil, nvmltest.UUID(3): {os.Getpid()}, nvmltest.UUID(4): nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
