// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// One node has the faults of GPU nodes: its plugin is killed, a GPU is lost while
// a task holds it, its client restarts.
func TestPluginThroughFaults(t *testing.T) {
	t.Parallel()
	box := newGPUBox(t, nvmltest.H200(4), "")
	c := clustertest.Start(t, cluster.Options{HeartbeatTTL: cluster.NeverLost, Clients: []cluster.Client{box.Client}})
	node := c.Clients()[0]
	untilGPUs(t, c, node.Name, "four GPUs", count(4))
	register(t, c, gpuJob("one", 1))
	alloc := running(t, c, "one")
	mine := deviceIDs(alloc)
	var pids []int
	clustertest.Until(t, c, "the task sleeps", func(context.Context) (string, error) {
		pids = taskPIDs(t, alloc.ID)
		return missing(len(pids), 1), nil
	})
	if len(mine) != 1 || len(pids) != 1 {
		t.Fatalf("devices %v, processes %v: want one each", mine, pids)
	}

	t.Run("the task sees its GPU only", func(t *testing.T) {
		untilSeen(t, c, node, alloc, "t", "NVIDIA_VISIBLE_DEVICES="+mine[0]+"\n")
	})
	t.Run("plugin killed", func(t *testing.T) { killPlugin(t, c, node, 4) })
	still(t, c, alloc, pids)
	t.Run("GPU lost while reserved", func(t *testing.T) {
		loseGPU(t, c, box, node.Name, mine[0])
	})
	still(t, c, alloc, pids)
	t.Run("client restarted", func(t *testing.T) {
		if err := node.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		untilGPUs(t, c, node.Name, "four healthy GPUs", func(got map[string]string) bool {
			return len(got) == 4 && !slices.ContainsFunc(values(got), func(h string) bool { return h != "healthy" })
		})
	})
	still(t, c, alloc, pids)
	t.Run("driver unloaded and loaded", func(t *testing.T) {
		box.set("sys", "init", "9")
		untilGPUs(t, c, node.Name, "no GPUs", count(0))
		box.set("sys", "init", "")
		untilGPUs(t, c, node.Name, "four GPUs", count(4))
	})
	still(t, c, alloc, pids)
	register(t, c, gpuJob("rest", 3)) // the stream still works, and no GPU is given twice
	if rest := deviceIDs(running(t, c, "rest")); len(rest) != 3 || slices.Contains(rest, mine[0]) {
		t.Errorf("the second job got %v while %v is taken", rest, mine)
	}
	stop(t, c, "one", "rest")
}

// killPlugin kills the plugin's process and waits for Nomad to start another.
func killPlugin(t *testing.T, c *cluster.Cluster, node *cluster.Agent, gpus int) {
	before, err := node.PluginPIDs("nomad-device-pal")
	if err != nil || len(before) != 1 {
		t.Fatalf("plugin processes: %v (%v), want one", before, err)
	}
	if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clustertest.Until(t, c, "Nomad starts the plugin again", func(context.Context) (string, error) {
		now, err := node.PluginPIDs("nomad-device-pal")
		if err != nil || len(now) != 1 || now[0] == before[0] {
			return fmt.Sprint(now), err
		}
		return "", nil
	})
	again := time.Now()
	// Nomad's server still has the GPUs of the old plugin. If a GPU is lost
	// before the new plugin has seen it, the new plugin never learns of it. So
	// wait until the new plugin knows all GPUs.
	clustertest.Until(t, c, "the new plugin knows the GPUs", func(ctx context.Context) (string, error) {
		stats, err := node.API().Nodes().Stats("", (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return "", err
		}
		n := 0
		for _, g := range stats.DeviceStats {
			for _, d := range g.InstanceStats {
				if d.Timestamp.After(again) {
					n++
				}
			}
		}
		return missing(n, gpus), nil
	})
}

// missing returns how many there are, if there are fewer than wanted.
func missing(n, want int) string {
	if n < want {
		return fmt.Sprintf("%d of %d", n, want)
	}
	return ""
}

// loseGPU loses a GPU that a task holds: the other GPUs stay, no other task
// gets this one, and it comes back.
func loseGPU(t *testing.T, c *cluster.Cluster, box *gpuBox, node, id string) {
	scope := ""
	for i := range 4 {
		if box.uuid(i) == id {
			scope = fmt.Sprintf("gpu%d", i)
		}
	}
	box.set(scope, "lost", "1")
	begin := time.Now()
	untilGPUs(t, c, node, "the lost GPU is unhealthy", gpuIs(id, "gpu-lost"))
	t.Logf("time from the fault to Nomad's server: %s", time.Since(begin).Round(10*time.Millisecond))
	untilGPUs(t, c, node, "all are listed", count(4))
	box.set(scope, "lost", "")
	untilGPUs(t, c, node, "the GPU is back", gpuIs(id, "healthy"))
}

func values(m map[string]string) []string {
	var out []string
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// Class constraints in plain HCL work without the placer: a node whose class
// list is empty must not hide one of the same computed class whose list is not.
func TestPluginClassConstraintWithoutPlacer(t *testing.T) {
	t.Parallel()
	slow, fast := emulatedClient("1.04", "1.05"), emulatedClient("0.97", "0.98")
	c := clustertest.Start(t, cluster.Options{Bin: binaries(t), Clients: []cluster.Client{slow, fast}})
	register(t, c, gpuJob("picky", 2,
		&api.Constraint{LTarget: "${device.ids}", Operand: "set_contains_any", RTarget: "${device.attr.unique.variability_a_le_1}"},
		&api.Constraint{LTarget: "${device.attr.variability_a_le_1_count}", Operand: ">=", RTarget: "2"}))
	if got, want := deviceIDs(running(t, c, "picky")), []string{"GPU-0.97", "GPU-0.98"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	stop(t, c, "picky")
}

// calibrated is a profile whose median is 1.
const calibrated = `{"format": "nomad-pal/profile/1", "version": 3,
  "options": {"method": "edges", "edges": [0.99, 1.01, 1.03, 1.06], "hysteresis": 0, "outlier": 1.5, "min_gpus": 8},
  "groups": [{"model": "NVIDIA H200", "app": "A", "key": "k", "reference": 1, "measured": 64, "spread": 0.1, "values": [0.97, 1, 1.02, 1.045, 1.2]}],
  "gpus": []}`

// emulatedClient has a GPU for each time, and a profile whose median is 1.
func emulatedClient(times ...string) cluster.Client {
	var gpus strings.Builder
	for _, time := range times {
		fmt.Fprintf(&gpus, "gpu \"GPU-%s\" {\n  key   = \"k\"\n  times = { A = %s }\n}\n", time, time)
	}
	return cluster.Client{Inventory: gpus.String(), Profile: calibrated}
}

// The placer's calibration reaches the plugin through Nomad variables, with a
// token that may only read them.
func TestPluginProfileFromNomad(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{Bin: binaries(t), ACL: true})
	_, err := c.API().ACLPolicies().Upsert(&api.ACLPolicy{Name: "profile", Rules: `namespace "default" {
  variables {
    path "nomad-pal/profile/*" { capabilities = ["list", "read"] }
  }
}`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := c.API().ACLTokens().Create(&api.ACLToken{Name: "plugin", Type: "client", Policies: []string{"profile"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(token.SecretID+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const gpus = "gpu \"GPU-fast\" {\n  key = \"k\"\n  times = { A = 0.97 }\n}\ngpu \"GPU-slow\" {\n  key = \"k\"\n  times = { A = 1.2 }\n}\n"
	err = c.AddClients(t.Context(), cluster.Client{Inventory: gpus, PluginHCL: fmt.Sprintf(
		"nomad {\n  address = %q\n  token_file = %q\n}\nprofile_from_nomad {\n  period = \"1s\"\n}", c.Servers()[0].HTTPAddr(), tokenFile)})
	if err != nil {
		t.Fatal(err)
	}
	node := c.Clients()[0].Name
	untilAttribute(t, c, node, "NVIDIA H200 variability_reference", "node")
	for _, version := range []int{3, 4} {
		writeProfile(t, c, version)
		untilAttribute(t, c, node, "NVIDIA H200 variability_profile_version", fmt.Sprint(version))
	}
	untilAttribute(t, c, node, "NVIDIA H200 unique.variability_a_le_1", "GPU-fast")
	untilAttribute(t, c, node, "NVIDIA H200 unique.variability_a_le_4", "GPU-fast")
	untilAttribute(t, c, node, "NVIDIA H200 unique.variability_a_le_5", "GPU-fast,GPU-slow")
}

// writeProfile writes a profile whose median is 1 into Nomad's variables.
func writeProfile(t *testing.T, c *cluster.Cluster, version int) {
	t.Helper()
	p, err := profile.Parse([]byte(strings.Replace(calibrated, `"version": 3`, fmt.Sprintf(`"version": %d`, version), 1)))
	if err != nil {
		t.Fatal(err)
	}
	shards, err := p.Shards(60 << 10)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range shards {
		v := &api.Variable{Namespace: "default", Path: fmt.Sprintf("nomad-pal/profile/%04d", i), Items: api.VariableItems(s)}
		if _, _, err := c.API().Variables().Update(v, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func untilAttribute(t *testing.T, c *cluster.Cluster, node, name, want string) {
	t.Helper()
	clustertest.Until(t, c, name+" is "+want, func(ctx context.Context) (string, error) {
		_, attributes, err := gpusOf(ctx, c, node)
		if err != nil {
			return "", err
		}
		if a := attributes[name]; a == nil || a.String() != want {
			return fmt.Sprint(a), nil
		}
		return "", nil
	})
}
