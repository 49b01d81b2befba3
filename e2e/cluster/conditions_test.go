// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// patience is how long a condition may take on a busy machine before the test calls it a failure.
const patience = time.Minute

// running is the condition that exactly n allocations of the job run.
func running(c *cluster.Cluster, job string, n int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		allocs, _, err := c.API().Jobs().Allocations(job, false, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return "", err
		}
		up := 0
		for _, a := range allocs {
			if a.ClientStatus == api.AllocClientStatusRunning {
				up++
			}
		}
		if up != n {
			return fmt.Sprintf("%d of %d run", up, n), nil
		}
		return "", nil
	}
}

// sleepers are the pids of sleeper tasks whose working directory is below dir. It reads /proc by itself, so that it
// can contradict the code under test.
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
