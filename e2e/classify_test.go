// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// palCommand is the nomad-pal of make build, or one built here, as a command
// on the cluster.
func palCommand(t *testing.T, c *cluster.Cluster) func(args ...string) (out string, code int) {
	t.Helper()
	path := filepath.Join(os.Getenv("E2E_BIN"), "nomad-pal")
	if os.Getenv("E2E_BIN") == "" {
		path = filepath.Join(t.TempDir(), "nomad-pal")
		if out, err := exec.Command("go", "build", "-o", path, "../placer/cmd/nomad-pal").CombinedOutput(); err != nil {
			t.Fatalf("building nomad-pal: %v\n%s", err, out)
		}
	}
	return func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(path, args...)
		cmd.Env = c.Env()
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
}

// What GPUs do while a job runs says its application class: first a job that
// draws all the power it may, then one that streams memory; what is remembered
// goes into the next run.
func TestClassify(t *testing.T) {
	t.Parallel()
	box := newGPUBox(t, nvmltest.H200(2), "")
	box.Client.HCL = `telemetry { collection_interval = "500ms" }`
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{box.Client}})
	untilGPUs(t, c, c.Clients()[0].Name, "two GPUs", count(2))
	pal := palCommand(t, c)
	if out, code := pal("classify", "-for=1s", "-every=1s", "train"); code != 1 || !strings.Contains(out, `job "train" in namespace "default" has no running allocation with GPUs`) {
		t.Errorf("a job that does not exist: exit code %d\n%s", code, out)
	}
	register(t, c, gpuJob("train", 2))
	running(t, c, "train")
	if out, code := pal("classify", "-for=3s", "-every=1s", "train"); code != 1 || !strings.Contains(out, "0 readings of working GPUs, want at least 10") {
		t.Errorf("a job that does nothing: exit code %d\n%s", code, out)
	}
	for _, step := range []struct {
		values map[string]string
		want   string
	}{
		{map[string]string{"utilization": "99", "power_mw": "680000", "gpm.5": "75", "gpm.10": "20"}, "Application class  = A"},
		{map[string]string{"utilization": "99", "power_mw": "400000", "gpm.5": "3", "gpm.10": "88"}, "Application class  = C"},
	} {
		for i := range 2 {
			for k, v := range step.values {
				box.set(fmt.Sprintf("gpu%d", i), k, v)
			}
		}
		out, code := pal("classify", "-for=12s", "-every=500ms", "-save", "train")
		if code != 0 || !strings.Contains(out, step.want) || !strings.Contains(out, `Remembered for the next runs of "train"`) {
			t.Errorf("%v: exit code %d\n%s", step.values, code, out)
		}
	}
	stop(t, c, "train")

	spec := filepath.Join(t.TempDir(), "train.nomad.hcl")
	if err := os.WriteFile(spec, []byte(`job "train" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
      resources {
        device "nvidia/gpu" {}
      }
    }
  }
}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, code := pal("run", "-detach", "-learned", spec); code != 0 || !strings.Contains(out, "Application class C, as remembered: 88 % of the memory bandwidth") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	job, _, err := c.API().Jobs().Info("train", nil)
	if err != nil || job.Meta["pal_class"] != "C" {
		t.Errorf("the job says %v (%v), want pal_class = C", job.Meta, err)
	}
	stop(t, c, "train")
}
