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

// A GPU with less than half of its PCIe lanes is chosen last, and gpus, explain
// and the agent's page say why.
func TestPlacerTakesDegradedGPUsLast(t *testing.T) {
	t.Parallel()
	inventory := strings.Replace(inventoryOf(0, []float64{0.97, 1, 1, 1.02}, nil), "healthy = true", "fault = \"pcie\"", 1)
	b := newBedOf(t, []string{inventory}, cluster.Options{})
	b.startAgent("nomad-pal")
	b.until("gpus says why", func() string {
		out, _ := b.pal("gpus")
		if strings.Contains(out, "degraded: pcie") {
			return ""
		}
		return out
	})
	degraded := gpu(0, 0)
	for i := range 4 {
		id := fmt.Sprintf("one-%d", i)
		b.run(oneGPU(id))
		b.until(id+" runs", func() string {
			if len(b.members(id)) == 1 {
				return ""
			}
			out, _ := b.pal("explain", id)
			return out
		})
		got := b.members(id)[0].GPUs
		if slices.Contains(got, degraded) != (i == 3) {
			t.Errorf("job %d of 4 got %v; %s is degraded, and comes last", i+1, got, degraded)
		}
	}
	b.says("explain -verbose one-3", "degraded: pcie")
	if out := b.http("/v1/gpus"); !strings.Contains(out, `"degraded":"pcie"`) && !strings.Contains(out, `"degraded": "pcie"`) {
		t.Errorf("the agent does not say that the GPU is degraded:\n%s", out)
	}
	for i := range 4 {
		_, _, _ = b.API().Jobs().Deregister(fmt.Sprintf("one-%d", i), true, nil)
	}
}

// GPUs stay in use if NVML reports a problem with their fabric but CUDA starts. A gang on
// several GPUs gets them only when no others are free.
func TestFabricThatNVMLDoubts(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	doubted, well := nvmltest.H200(2), nvmltest.H200(2)
	for i := range 2 {
		doubted.Set(fmt.Sprintf("gpu%d", i), "fabric_status", "999")
	}
	of := []*gpuBox{newGPUBox(t, doubted, ""), newGPUBox(t, well, "")}
	b := newBedOf(t, nil, cluster.Options{Clients: []cluster.Client{of[0].Client, of[1].Client}})
	b.startAgent("nomad-pal")
	b.until("gpus says why", func() string {
		out, _ := b.pal("gpus")
		if strings.Count(out, "degraded: fabric:failed") == 2 && strings.Count(out, "NVIDIA H200") >= 4 {
			return ""
		}
		return out
	})
	for i, want := range []*gpuBox{of[1], of[0]} {
		id := fmt.Sprintf("pair-%d", i)
		b.run(gang(id, 1, 2).hcl())
		b.until(id+" runs", func() string {
			if len(b.members(id)) == 1 {
				return ""
			}
			out, _ := b.pal("explain", id)
			return out
		})
		got := slices.Sorted(slices.Values(b.members(id)[0].GPUs))
		if w := []string{want.uuid(0), want.uuid(1)}; !slices.Equal(got, w) {
			t.Errorf("gang %d got %v, want %v", i, got, w)
		}
	}
	for i := range 2 {
		_, _, _ = b.API().Jobs().Deregister(fmt.Sprintf("pair-%d", i), true, nil)
	}
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
