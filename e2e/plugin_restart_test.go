// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// While a task holds a GPU and the plugin measures another one, the plugin is killed, replaced by a
// newer binary, and configured differently. The task keeps its process and its GPU, and the
// plugin keeps what it knows about the GPUs.
func TestPluginReplacedWhileItMeasures(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	box := newMeasuringBox(t, 5, "idle")
	old := filepath.Join(t.TempDir(), "nomad-device-pal")
	copyFile(t, devicePlugin(t), old)
	box.Client.Plugins[0].Path = old
	c := clustertest.Start(t, cluster.Options{HeartbeatTTL: cluster.NeverLost, Clients: []cluster.Client{box.Client}})
	node := c.Clients()[0]
	ids := []string{box.uuid(0), box.uuid(1), box.uuid(2), box.uuid(3), box.uuid(4)}
	bad := ids[4]
	untilMeasured(t, c, node.Name, len(ids))
	box.state.Set("gpu4", "field.230", "1") // recovery action: reset
	box.set("sys", "event.1", "4 8 79 -1")
	untilGPUs(t, c, node.Name, "one GPU is unhealthy", gpuIs(bad, "xid:79"))

	register(t, c, gpuJob("one", 1))
	alloc := running(t, c, "one")
	mine := deviceIDs(alloc)
	var pids []int
	clustertest.Until(t, c, "the task sleeps", func(context.Context) (string, error) {
		pids = taskPIDs(t, alloc.ID)
		return missing(len(pids), 1), nil
	})
	times := measuredTimes(t, c, node.Name)
	kept := func(after string) {
		t.Helper()
		still(t, c, alloc, pids)
		untilGPUs(t, c, node.Name, "the same GPUs "+after, func(got map[string]string) bool { return len(got) == len(ids) && got[bad] == "xid:79" })
		if got := measuredTimes(t, c, node.Name); got != times {
			t.Errorf("measured times %s: %s\nbefore: %s", after, got, times)
		}
		if got := measuring(t, ids); got[mine[0]] {
			t.Errorf("%s, the plugin measures %s, which a task holds", after, mine[0])
		}
	}
	box.measureSlowly(t, c, ids, "measure-1")
	killMeasuringPlugin(t, c, node, ids)
	kept("after the plugin was killed")

	box.measureSlowly(t, c, ids, "measure-2")
	copyFile(t, devicePlugin(t), old) // a package upgrade
	killMeasuringPlugin(t, c, node, ids)
	kept("after a newer binary has replaced the plugin")
	if now, err := node.PluginPIDs("nomad-device-pal"); err != nil || len(now) != 1 {
		t.Fatalf("plugin processes: %v (%v), want one", now, err)
	} else if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", now[0])); err != nil || exe != old {
		t.Errorf("the plugin runs %s (%v), want the new %s", exe, err, old)
	}

	box.measureSlowly(t, c, ids, "measure-3")
	conf := filepath.Join(node.Dir, "config", "20-extra.hcl")
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), `fingerprint_period = "500ms"`, `fingerprint_period = "700ms"`, 1))
	if err := os.WriteFile(conf, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := node.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	box.untilNoCrash(t, c, "the plugin has ended with its agent")
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept("after the configuration changed")
	if err := node.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	box.untilNoCrash(t, c, "the plugin has ended with the killed agent")
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept("after the agent was killed")

	stop(t, c, "measure-1", "measure-2", "measure-3")
	register(t, c, gpuJob("rest", 3))
	if rest := deviceIDs(running(t, c, "rest")); len(rest) != 3 || slices.Contains(rest, mine[0]) || slices.Contains(rest, bad) {
		t.Errorf("the second job got %v, while %v is taken and %s is unhealthy", rest, mine, bad)
	}
	if err := node.API().Allocations().Restart(alloc, "t", nil); err != nil {
		t.Fatal(err)
	}
	clustertest.Until(t, c, "the task runs again", func(context.Context) (string, error) {
		now := taskPIDs(t, alloc.ID)
		if len(now) != 1 || slices.Equal(now, pids) {
			return fmt.Sprint(now), nil
		}
		return "", nil
	})
	untilSeen(t, c, node, alloc, "t", "NVIDIA_VISIBLE_DEVICES="+mine[0]+"\n")
	stop(t, c, "one", "rest")
}

// copyFile replaces the file at path `to` with a copy of the file at path `from`, in the way of a
// package manager.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "--remove-destination", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// untilMeasured waits until Nomad's server has the measured times of n GPUs.
func untilMeasured(t *testing.T, c *cluster.Cluster, node string, n int) {
	t.Helper()
	clustertest.Until(t, c, "the measurements reach the server", func(context.Context) (string, error) {
		return missing(strings.Count(measuredTimes(t, c, node), "key="), n), nil
	})
}

func measuredTimes(t *testing.T, c *cluster.Cluster, node string) string {
	t.Helper()
	_, attributes, err := gpusOf(t.Context(), c, node)
	if err != nil {
		t.Fatal(err)
	}
	return h200(attributes, "unique.variability_raw")
}

// measureSlowly starts a job that asks for a measurement of its GPU that takes as long as a real
// one, and waits until it runs. Each job keeps its GPU, so the next gets another: after a crash
// during a measurement, the plugin does not measure the GPU again for an hour.
func (b *measuringBox) measureSlowly(t *testing.T, c *cluster.Cluster, ids []string, job string) {
	t.Helper()
	settings := []string{fmt.Sprintf("gpus=%d", len(ids)), "scale=1"}
	for i, id := range ids {
		settings = append(settings, fmt.Sprintf("uuid.%d=%s", i, id))
	}
	b.tell(t, settings...)
	asks := gpuJob(job, 1)
	asks.TaskGroups[0].Tasks[0].Env = map[string]string{"NOMAD_PAL_MEASURE": "1"}
	register(t, c, asks)
	id := deviceIDs(running(t, c, job))[0]
	clustertest.Until(t, c, "the GPU is being measured", func(context.Context) (string, error) {
		if got := measuring(t, ids); !got[id] {
			return fmt.Sprint(got), nil
		}
		return "", nil
	})
}

// untilNoCrash waits until the plugin has stored that it did not crash.
func (b *measuringBox) untilNoCrash(t *testing.T, c *cluster.Cluster, what string) {
	t.Helper()
	clustertest.Until(t, c, what, func(context.Context) (string, error) {
		data, err := os.ReadFile(filepath.Join(b.stateDir, "starts.json"))
		if err != nil || !strings.Contains(string(data), `"starts": []`) && !strings.Contains(string(data), `"starts":[]`) {
			return string(data), err
		}
		return "", nil
	})
}

// killMeasuringPlugin kills the plugin, and checks that no measurement outlives it.
func killMeasuringPlugin(t *testing.T, c *cluster.Cluster, node *cluster.Agent, ids []string) {
	t.Helper()
	children := childrenThatMeasure(t, ids)
	killPlugin(t, c, node, len(ids))
	clustertest.Until(t, c, "the measurement ends with its plugin", func(context.Context) (string, error) {
		for _, pid := range childrenThatMeasure(t, ids) {
			if slices.Contains(children, pid) {
				return pid, nil
			}
		}
		return "", nil
	})
}

// childrenThatMeasure returns the IDs of the processes that measure one of the GPUs.
func childrenThatMeasure(t *testing.T, gpus []string) (pids []string) {
	t.Helper()
	matches, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range matches {
		data, _ := os.ReadFile(path) // fails if the process has ended
		isOne := strings.Contains(string(data), "\x00measure-child\x00")
		if isOne && slices.ContainsFunc(gpus, func(id string) bool { return strings.Contains(string(data), "\x00"+id+"\x00") }) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// If the driver's library crashes the plugin again and again, Nomad starts the plugin again at once
// each time. But the plugin reports its GPUs as unhealthy, and pauses before it uses the library.
func TestPluginWhoseDriverCrashes(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	box := newGPUBox(t, nvmltest.H200(2), "")
	c := clustertest.Start(t, cluster.Options{HeartbeatTTL: cluster.NeverLost, Clients: []cluster.Client{box.Client}})
	node := c.Clients()[0]
	untilGPUs(t, c, node.Name, "two GPUs", count(2))
	box.set("sys", "crash", "1")
	untilGPUs(t, c, node.Name, "unhealthy GPUs", func(got map[string]string) bool {
		return got[box.uuid(0)] == "driver-not-answering" && got[box.uuid(1)] == "driver-not-answering"
	})
	log, err := os.ReadFile(node.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), "plugin process exited: plugin=nvidia-gpu"); n < 3 || n > 5 {
		t.Errorf("the plugin crashed %d times before it waited, want about 3", n)
	}
	box.set("sys", "crash", "")
	untilGPUs(t, c, node.Name, "healthy GPUs", func(got map[string]string) bool {
		return got[box.uuid(0)] == "healthy" && got[box.uuid(1)] == "healthy"
	})
}
