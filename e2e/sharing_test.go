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
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

const partsOfH200 = "nvidia/gpu.shared/NVIDIA H200-SHARED"

// inParts is a client with one emulated GPU in n parts; 1 is a whole GPU.
func inParts(gpu string, replicas int) cluster.Client {
	return cluster.Client{Inventory: emulatedGPU(gpu, ""), PluginHCL: sharingHCL(replicas)}
}

func emulatedGPU(gpu, fault string) string {
	return fmt.Sprintf("gpu %q {\n  fault = %q\n}\n", gpu, fault)
}

func sharingHCL(replicas int) string {
	hcl := fmt.Sprintf("nomad {\n  address = %q\n}\n", cluster.OwnAddress)
	if replicas > 1 {
		hcl += fmt.Sprintf("sharing {\n  replicas = %d\n}\n", replicas)
	}
	return hcl
}

// each is a service whose members request one device each.
func each(name, device string, members int) *api.Job {
	job := gpuJob(name, 1)
	job.TaskGroups[0].Tasks[0].Resources.Devices[0].Name = device
	job.Type = new("service")
	job.TaskGroups[0].Count = &members
	return job
}

// untilParts waits until a job's running members have these ids, sorted.
func untilParts(t *testing.T, c *cluster.Cluster, job string, want ...string) {
	t.Helper()
	clustertest.Until(t, c, fmt.Sprintf("job %s has %v", job, want), func(ctx context.Context) (string, error) {
		allocs, _, err := c.API().Jobs().Allocations(job, false, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return "", err
		}
		var has []string
		for _, a := range allocs {
			if a.ClientStatus == "running" && a.DesiredStatus == "run" {
				full, _, err := c.API().Allocations().Info(a.ID, (&api.QueryOptions{}).WithContext(ctx))
				if err != nil {
					return "", err
				}
				has = append(has, deviceIDs(full)...)
			}
		}
		slices.Sort(has)
		if !slices.Equal(has, want) {
			return fmt.Sprint(has), nil
		}
		return "", nil
	})
}

// untilWaits waits until Nomad's scheduler has found no place for a job.
func untilWaits(t *testing.T, c *cluster.Cluster, job string) {
	t.Helper()
	clustertest.Until(t, c, "job "+job+" is blocked", func(ctx context.Context) (string, error) {
		evals, _, err := c.API().Jobs().Evaluations(job, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return "", err
		}
		for _, e := range evals {
			if e.Status == "blocked" {
				return "", nil
			}
		}
		return fmt.Sprintf("%d evaluations", len(evals)), nil
	})
}

// Plain Nomad, without a placer: four tasks share a GPU, and a fifth waits until one ends.
// Requests for GPUs never get a part. A fault affects all parts, and the tasks of a drained node
// move.
func TestTasksShareAGPU(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{Bin: binaries(t), Clients: []cluster.Client{inParts("GPU-a", 4)}})
	node := c.Clients()[0]
	parts := []string{"GPU-a::0", "GPU-a::1", "GPU-a::2", "GPU-a::3"}
	untilGPUs(t, c, node.Name, "four parts", count(4))
	for name, device := range map[string]string{"bare": "gpu", "any": "nvidia/gpu", "model": "nvidia/gpu/NVIDIA H200"} {
		register(t, c, each(name, device, 1))
		untilWaits(t, c, name)
	}
	stop(t, c, "bare", "any", "model")

	register(t, c, each("four", partsOfH200, 4))
	untilParts(t, c, "four", parts...)
	register(t, c, each("fifth", "nvidia/gpu.shared", 1))
	untilWaits(t, c, "fifth")
	alloc := running(t, c, "four")
	untilSeen(t, c, node, alloc, "t", "NVIDIA_VISIBLE_DEVICES=GPU-a\n") // the GPU, listed once

	if err := node.SetInventory(emulatedGPU("GPU-a", "remap")); err != nil {
		t.Fatal(err)
	}
	untilGPUs(t, c, node.Name, "all parts are unhealthy", func(got map[string]string) bool {
		return len(got) == 4 && !slices.ContainsFunc(values(got), func(h string) bool { return h != "row-remap-failure" })
	})
	untilParts(t, c, "four", parts...) // the plugin stops no task
	if err := node.SetInventory(emulatedGPU("GPU-a", "")); err != nil {
		t.Fatal(err)
	}
	untilGPUs(t, c, node.Name, "all are healthy again", func(got map[string]string) bool {
		return len(got) == 4 && !slices.ContainsFunc(values(got), func(h string) bool { return h != "healthy" })
	})
	register(t, c, each("four", partsOfH200, 3))
	clustertest.Until(t, c, "the fifth runs", c.Allocations("fifth", "running", 1))

	if err := c.AddClients(t.Context(), inParts("GPU-b", 4)); err != nil {
		t.Fatal(err)
	}
	id, err := c.NodeID(t.Context(), node.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.API().Nodes().UpdateDrain(id, &api.DrainSpec{Deadline: -1}, false, nil); err != nil { // without waiting
		t.Fatal(err)
	}
	clustertest.Until(t, c, "all have moved", func(ctx context.Context) (string, error) {
		for job, n := range map[string]int{"four": 3, "fifth": 1} {
			if missing, err := c.Allocations(job, "running", n)(ctx); missing != "" || err != nil {
				return job + ": " + missing, err
			}
		}
		allocs, _, err := c.API().Nodes().Allocations(id, (&api.QueryOptions{}).WithContext(ctx))
		for _, a := range allocs {
			if a.ClientStatus == "running" {
				return "allocation " + a.Name + " runs on the drained node", err
			}
		}
		return "", err
	})
	stop(t, c, "four", "fifth")
}

// reconfigure replaces text in a client's configuration and restarts the client.
func reconfigure(t *testing.T, a *cluster.Agent, old, new string) {
	t.Helper()
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(a.Dir, "config", "20-extra.hcl")
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%q is not in %s: %v", old, text, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func all(health string) func(map[string]string) bool {
	return func(got map[string]string) bool {
		return len(got) > 0 && !slices.ContainsFunc(values(got), func(h string) bool { return h != health })
	}
}

// The sharing changes on a node that was not drained, or the plugin is replaced by one without parts,
// such as nomad-device-nvidia. A task on a part keeps running but could not be started again, and
// its GPU is given to others.
func TestPartsUnderAPluginWithoutSharing(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{HeartbeatTTL: cluster.NeverLost, Bin: binaries(t), Clients: []cluster.Client{inParts("GPU-a", 2)}})
	node := c.Clients()[0]
	register(t, c, each("part", partsOfH200, 1))
	alloc := running(t, c, "part")
	pids := taskPIDs(t, alloc.ID)
	held := deviceIDs(alloc)
	reconfigure(t, node, "sharing {\n  replicas = 2\n}\n", "")
	untilGPUs(t, c, node.Name, "a whole GPU", func(got map[string]string) bool { return len(got) == 1 && got["GPU-a"] == "healthy" })
	still(t, c, alloc, pids)
	untilParts(t, c, "part", held...)
	register(t, c, each("other", partsOfH200, 1))
	untilWaits(t, c, "other")
	register(t, c, each("whole", "nvidia/gpu", 1))
	untilParts(t, c, "whole", "GPU-a")
	stop(t, c, "part", "other", "whole")
}

// With MPS, a task gets its limits, and may ask for others.
func TestTasksShareAGPUByMPS(t *testing.T) {
	t.Parallel()
	client := cluster.Client{Inventory: emulatedGPU("GPU-a", ""), PluginHCL: "sharing {\n  mode = \"mps\"\n  replicas = 4\n}\n"}
	c := clustertest.Start(t, cluster.Options{HeartbeatTTL: cluster.NeverLost, Bin: binaries(t), Clients: []cluster.Client{client}})
	node := c.Clients()[0]
	untilGPUs(t, c, node.Name, "four healthy parts", func(got map[string]string) bool { return len(got) == 4 && all("healthy")(got) })
	job := each("limited", partsOfH200, 1)
	group := job.TaskGroups[0]
	group.Tasks[0].Config["args"] = []string{"-c", "env | grep CUDA_MPS | sort > ${NOMAD_TASK_DIR}/seen; exec sleep 600"}
	more := *group.Tasks[0]
	more.Name = "more" // a template's value overrides the plugin's, which overrides the task's env
	more.Templates = []*api.Template{{EmbeddedTmpl: new("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40\n"), DestPath: new("local/mps.env"), Envvars: new(true)}}
	group.Tasks = append(group.Tasks, &more)
	register(t, c, job)
	alloc := running(t, c, "limited")
	for task, threads := range map[string]string{"t": "25", "more": "40"} {
		untilSeen(t, c, node, alloc, task, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%s\nCUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=35942M\nCUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps\n", threads))
	}
	stop(t, c, "limited")
}
