// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// The application class of a job follows from the load on its GPUs: first for a job that draws
// full power, then for one that streams memory. The next run starts with the remembered class.
func TestClassify(t *testing.T) {
	t.Parallel()
	box := newGPUBox(t, nvmltest.H200(2), "")
	box.Client.HCL = `telemetry { collection_interval = "500ms" }`
	c := clustertest.Start(t, cluster.Options{Bin: binaries(t), Clients: []cluster.Client{box.Client}})
	untilGPUs(t, c, c.Clients()[0].Name, "two GPUs", count(2))
	b := &bed{Cluster: c, t: t}
	if out, code := b.pal("classify", "-for=1s", "train"); code != 1 || !strings.Contains(out, `job "train" in namespace "default" has no running allocation with GPUs`) {
		t.Errorf("a job that does not exist: exit code %d\n%s", code, out)
	}
	register(t, c, gpuJob("train", 2))
	running(t, c, "train")
	if out, code := b.pal("classify", "-for=3s", "train"); code != 1 || !strings.Contains(out, "only 0 readings of working GPUs, but at least 10 are needed") {
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
		var out string
		var code int
		for patience := 12 * time.Second; patience <= 2*time.Minute; patience *= 2 {
			out, code = b.pal("classify", "-for="+patience.String(), "-save", "train")
			if !strings.Contains(out, "readings of working GPUs, but at least 10 are needed") { // a busy machine reads less often
				break
			}
		}
		if code != 0 || !strings.Contains(out, step.want) || !strings.Contains(out, `Stored for "train".`) {
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
	if out, code := b.pal("run", "-detach", "-learned", spec); code != 0 || !strings.Contains(out, "Application class C, stored from an earlier run: 88 % of the memory bandwidth") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	job, _, err := c.API().Jobs().Info("train", nil)
	if err != nil || job.Meta["pal_class"] != "C" {
		t.Errorf("the job says %v (%v), want pal_class = C", job.Meta, err)
	}
	stop(t, c, "train")
}

// An agent with learn configured remembers the class that a job without
// pal_class showed, and uses it when the job is run again.
func TestAgentLearnsClasses(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	box := newGPUBox(t, nvmltest.H200(1), "")
	box.Client.HCL = `telemetry { collection_interval = "500ms" }`
	c := clustertest.Start(t, cluster.Options{Bin: binaries(t), Clients: []cluster.Client{box.Client}})
	untilGPUs(t, c, c.Clients()[0].Name, "one GPU", count(1))
	b := &bed{Cluster: c, t: t}
	clustertest.Placer(t, c, cluster.PlacerOptions{Config: "learn {\n  every = \"500ms\"\n}\nhttp {\n  bind_port = 0\n}\n"})
	spec := filepath.Join(t.TempDir(), "train.nomad.hcl")
	if err := os.WriteFile(spec, []byte(`job "train" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      resources {
        device "nvidia/gpu" {}
      }
    }
  }
}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"utilization": "99", "power_mw": "680000", "gpm.5": "75", "gpm.10": "20"} {
		box.set("gpu0", k, v)
	}
	if out, code := b.pal("run", "-detach", spec); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	running(t, c, "train")
	b.says("explain train", "application class B") // the default
	clustertest.Until(t, c, "the class is remembered", func(ctx context.Context) (string, error) {
		v, _, err := c.API().Variables().Peek("nomad-pal/classes/default/train", (&api.QueryOptions{}).WithContext(ctx))
		if err != nil || v == nil {
			return "nothing yet", err
		}
		if v.Items["class"] != "A" {
			return "", fmt.Errorf("class %q: %s", v.Items["class"], v.Items["reason"])
		}
		return "", nil
	})
	stop(t, c, "train")
	clustertest.Until(t, c, "the job is gone", func(ctx context.Context) (string, error) {
		_, _, err := c.API().Jobs().Info("train", (&api.QueryOptions{}).WithContext(ctx))
		if err == nil {
			return "still there", nil
		}
		return "", nil
	})
	// Like nomad job plan, exit code 1 means that something would be placed. That takes until the
	// purged job's task has surely ended.
	clustertest.Until(t, c, "plan says that it would start, with the learned class", func(context.Context) (string, error) {
		if out, code := b.pal("plan", spec); code != 1 || !strings.Contains(out, "application class A") {
			return fmt.Sprintf("exit code %d\n%s", code, out), nil
		}
		return "", nil
	})
	if out, code := b.pal("run", "-detach", spec); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	running(t, c, "train")
	b.says("explain train", "application class A") // the learned class
	stop(t, c, "train")
}
