// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// A GPU that falls off the bus while Nomad's client is down counts as lost, not
// as removed.
func TestPluginGPULostBeforeTheClientStarts(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	box := newGPUBox(t, nvmltest.H200(4), fmt.Sprintf("state_dir = %q\nmeasure {\n  mode = \"off\"\n}", t.TempDir()))
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{box.Client}})
	node := c.Clients()[0]
	untilGPUs(t, c, node.Name, "four GPUs", count(4))
	if err := node.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := box.uuid(3)
	box.set("gpu3", "uuid", "")
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	untilGPUs(t, c, node.Name, "a lost GPU among four", func(got map[string]string) bool {
		return len(got) == 4 && gpuIs(lost, "gpu-lost")(got)
	})
	register(t, c, gpuJob("rest", 3))
	if got := deviceIDs(running(t, c, "rest")); len(got) != 3 || slices.Contains(got, lost) {
		t.Errorf("the job got %v, want the three healthy GPUs", got)
	}
	stop(t, c, "rest")
}

// oneGPU is a gang with one member that sleeps.
func oneGPU(id string) string {
	return fmt.Sprintf(`job %q {
  type = "batch"
  meta { pal_class = "A" }
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      resources {
        cpu    = 20
        memory = 16
        device "nvidia/gpu" {}
      }
    }
  }
}`, id)
}

// A profile that only the plugin has also gives the placer its scores.
func TestPlacerSeesThePluginsProfile(t *testing.T) {
	t.Parallel()
	given := strings.Replace(calibrated, `"gpus": []`, `"gpus": [
	  {"id": "GPU-quick", "model": "NVIDIA H200", "entries": [{"app": "A", "key": "k", "time": 0.95, "score": 0.95, "class": 1, "bin": 1, "value": 0.97}]},
	  {"id": "GPU-slow", "model": "NVIDIA H200", "entries": [{"app": "A", "key": "k", "time": 1.2, "score": 1.2, "class": 5, "bin": 5, "value": 1.2}]}]`, 1)
	client := cluster.Client{Inventory: "gpu \"GPU-quick\" {}\ngpu \"GPU-slow\" {}\n", Profile: given}
	b := &bed{t: t, Cluster: clustertest.Start(t, cluster.Options{Bin: binaries(t), Clients: []cluster.Client{client}})}
	b.until("gpus has the scores", func() string {
		out, _ := b.pal("gpus")
		if strings.Contains(out, "0.950") && strings.Contains(out, "1.200") {
			return ""
		}
		return out
	})
	b.startAgent("nomad-pal")
	b.run(oneGPU("one"))
	b.until("the job runs", func() string {
		if len(b.members("one")) == 1 {
			return ""
		}
		out, _ := b.pal("explain", "one")
		return out
	})
	if got := b.members("one")[0].GPUs; !slices.Equal(got, []string{"GPU-quick"}) {
		t.Errorf("the job got %v, want the fastest GPU in the plugin's profile", got)
	}
	_, _, _ = b.API().Jobs().Deregister("one", true, nil)
}
