// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// buildSimnodes builds bench/simnodes, which is a separate module. The build tag is that of
// e2e/nomad/build.sh, so that both share Go's build cache.
func buildSimnodes(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and plays a Nomad cluster: not in -short mode")
	}
	binary := filepath.Join(t.TempDir(), "simnodes")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "hashicorpmetrics", "-o", binary, ".")
	build.Dir = filepath.Join("..", "bench", "simnodes")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build simnodes: %v\n%s", err, out)
	}
	return binary
}

// simulate simulates nodes until the test ends, or until it is stopped.
func simulate(t *testing.T, binary string, c *cluster.Cluster, nodes int) *cluster.Simulated {
	t.Helper()
	ctx, cancel := clustertest.Context(t, c)
	defer cancel()
	s, err := c.Simulate(ctx, binary, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// simJob requests GPUs on simulated nodes and runs for this many seconds; "": until it is
// stopped.
func simJob(t *testing.T, id string, count int, seconds string) *api.Job {
	t.Helper()
	meta := ""
	if seconds != "" {
		meta = fmt.Sprintf("meta {\n sim_seconds = %q\n }", seconds)
	}
	job, err := jobspec2.Parse(id, strings.NewReader(fmt.Sprintf(`
job %q {
  type = "batch"
  %s
  group "g" {
    count = %d
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        device "nvidia/gpu" {
          count = 4
        }
      }
    }
  }
}`, id, meta, count)))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// TestSimulatedNodes simulates 60 nodes × 8 GPUs on a real server: allocations run and complete in
// the requested time, keep running while simnodes is down, and stop when told to.
func TestSimulatedNodes(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	binary := buildSimnodes(t)
	c := clustertest.Start(t, cluster.Options{HeartbeatTTL: time.Hour})
	sim := simulate(t, binary, c, 60)
	register(t, c, simJob(t, "short", 90, "0.2"))
	register(t, c, simJob(t, "endless", 30, ""))
	clustertest.Until(t, c, "short is complete", c.Allocations("short", api.AllocClientStatusComplete, 90))
	clustertest.Until(t, c, "endless runs", c.Allocations("endless", api.AllocClientStatusRunning, 30))

	// There are 480 GPUs. The 30 allocations of endless hold 120, so 90 of this job run and 10
	// wait.
	register(t, c, simJob(t, "rest", 100, ""))
	clustertest.Until(t, c, "the rest fills the cluster", c.Allocations("rest", api.AllocClientStatusRunning, 90))

	sim.Kill()
	again := simulate(t, binary, c, 60)
	if _, _, err := c.API().Jobs().Deregister("rest", false, nil); err != nil {
		t.Fatal(err)
	}
	clustertest.Until(t, c, "the rest stops", c.Allocations("rest", api.AllocClientStatusComplete, 90))
	clustertest.Until(t, c, "endless still runs", c.Allocations("endless", api.AllocClientStatusRunning, 30))
	if got, want := again.Stop(), (cluster.Played{Phase: "ended", Registered: 60, Stopped: 90}); got != want {
		t.Errorf("simnodes ended with %+v, want %+v", got, want)
	}
}
