// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// gpuBox is a client whose GPUs are emulated by a library without a driver. The
// plugin opens it as it opens NVIDIA's.
type gpuBox struct {
	t      *testing.T
	ids    []string
	state  nvmltest.State
	path   string // path of the state file
	Client cluster.Client
}

// newGPUBox builds the library for one client; more is added to the plugin's config.
func newGPUBox(t *testing.T, state nvmltest.State, more string) *gpuBox {
	t.Helper()
	dir := t.TempDir()
	lib, err := nvmltest.Build(dir)
	if errors.Is(err, nvmltest.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &gpuBox{t: t, ids: state.Own(), state: state, path: lib + ".state"}
	b.write()
	if !strings.Contains(more, "state_dir") {
		more += fmt.Sprintf("\nstate_dir = %q\n", t.TempDir())
	}
	b.Client = cluster.Client{Plugins: []cluster.Plugin{{
		Path:   devicePlugin(t),
		Config: fmt.Sprintf("nvml_library = %q\nfingerprint_period = \"500ms\"\n%s", lib, more),
	}}}
	return b
}

// uuid is the id of GPU i.
func (b *gpuBox) uuid(i int) string { return b.ids[i] }

func (b *gpuBox) write() {
	b.t.Helper()
	if err := b.state.Write(b.path); err != nil {
		b.t.Fatal(err)
	}
}

// set changes one answer of the library.
func (b *gpuBox) set(scope, key, value string) {
	b.t.Helper()
	b.state.Set(scope, key, value)
	b.write()
}

// devicePlugin is the plugin's binary.
func devicePlugin(t *testing.T) string {
	t.Helper()
	return filepath.Join(binaries(t), "nomad-device-pal")
}

// gpusOf are a node's GPUs in Nomad's server: their ids, with "healthy" or why
// they are not.
func gpusOf(ctx context.Context, c *cluster.Cluster, node string) (map[string]string, map[string]*api.Attribute, error) {
	id, err := c.NodeID(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	n, _, err := c.API().Nodes().Info(id, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, nil, err
	}
	out := map[string]string{}
	attributes := map[string]*api.Attribute{}
	for _, g := range n.NodeResources.Devices {
		for _, d := range g.Instances {
			out[d.ID] = "healthy"
			if !d.Healthy {
				out[d.ID] = d.HealthDescription
			}
		}
		for k, v := range g.Attributes {
			attributes[g.Name+" "+k] = v
		}
	}
	return out, attributes, nil
}

// untilGPUs waits until the server's GPUs of the node are as wanted.
func untilGPUs(t *testing.T, c *cluster.Cluster, node, what string, ok func(map[string]string) bool) {
	t.Helper()
	clustertest.Until(t, c, what, func(ctx context.Context) (string, error) {
		got, _, err := gpusOf(ctx, c, node)
		if err != nil || ok(got) {
			return "", err
		}
		return fmt.Sprint(got), nil
	})
}

func count(n int) func(map[string]string) bool {
	return func(got map[string]string) bool { return len(got) == n }
}

func gpuIs(id, want string) func(map[string]string) bool {
	return func(got map[string]string) bool { return got[id] == want }
}

// gpuJob is a batch job with one task, which shows what it sees of its n GPUs
// and sleeps.
func gpuJob(name string, n int, constraints ...*api.Constraint) *api.Job {
	job := api.NewBatchJob(name, name, "global", 50)
	job.Datacenters = []string{"*"}
	task := api.NewTask("t", "raw_exec")
	task.Config = map[string]any{"command": "/bin/sh", "args": []string{"-c", "env | grep VISIBLE_DEVICES > ${NOMAD_TASK_DIR}/seen; exec sleep 600"}}
	task.LogConfig = &api.LogConfig{Disabled: new(true)} // logs would need a Nomad process
	number := uint64(n)
	task.Resources = &api.Resources{
		CPU: new(50), MemoryMB: new(32),
		Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &number, Constraints: constraints}},
	}
	group := api.NewTaskGroup("g", 1)
	group.RestartPolicy = &api.RestartPolicy{Attempts: new(0), Mode: new("fail")}
	group.ReschedulePolicy = &api.ReschedulePolicy{Attempts: new(0), Unlimited: new(false)}
	group.Tasks = []*api.Task{task}
	job.TaskGroups = []*api.TaskGroup{group}
	return job
}

// register submits a job.
func register(t *testing.T, c *cluster.Cluster, job *api.Job) {
	t.Helper()
	if _, _, err := c.API().Jobs().Register(job, nil); err != nil {
		t.Fatalf("registering %s: %v", *job.ID, err)
	}
}

// running waits for the job's allocation to run and returns it.
func running(t *testing.T, c *cluster.Cluster, job string) *api.Allocation {
	t.Helper()
	var found *api.Allocation
	clustertest.Until(t, c, "job "+job+" runs", func(ctx context.Context) (string, error) {
		stubs, _, err := c.API().Jobs().Allocations(job, true, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return "", err
		}
		for _, s := range stubs {
			if s.ClientStatus == api.AllocClientStatusRunning {
				found, _, err = c.API().Allocations().Info(s.ID, (&api.QueryOptions{}).WithContext(ctx))
				return "", err
			}
		}
		return fmt.Sprintf("%d allocations, none running", len(stubs)), nil
	})
	return found
}

// deviceIDs are the GPUs that Nomad gave to an allocation.
func deviceIDs(a *api.Allocation) []string { return cluster.DeviceIDs(a.AllocatedResources) }

// still fails the test unless the allocation keeps running, with the same task
// process.
func still(t *testing.T, c *cluster.Cluster, a *api.Allocation, pids []int) {
	t.Helper()
	now, _, err := c.API().Allocations().Info(a.ID, nil)
	if err != nil || now.ClientStatus != api.AllocClientStatusRunning {
		t.Fatalf("allocation %s: %v %v, want it running", a.ID, now.ClientStatus, err)
	}
	if got := taskPIDs(t, a.ID); !slices.Equal(got, pids) {
		t.Errorf("task processes %v, want %v: the task was restarted", got, pids)
	}
}

// taskPIDs finds an allocation's sleeping processes by their environment.
func taskPIDs(t *testing.T, alloc string) []int {
	t.Helper()
	var pids []int
	matches, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range matches {
		env, _ := os.ReadFile(path) // the process has ended, or belongs to another user
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		if strings.Contains(string(env), "NOMAD_ALLOC_ID="+alloc) && strings.TrimSpace(string(name)) == "sleep" {
			var pid int
			fmt.Sscanf(path, "/proc/%d/", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// untilSeen waits until a task's file "seen" has the text want. The task is running before its
// shell has created the file, and the file exists before the shell has written the text.
func untilSeen(t *testing.T, c *cluster.Cluster, node *cluster.Agent, alloc *api.Allocation, task, want string) {
	t.Helper()
	clustertest.Until(t, c, fmt.Sprintf("task %s sees %q", task, want), func(context.Context) (string, error) {
		file, err := node.API().AllocFS().Cat(alloc, task+"/local/seen", nil)
		if err != nil {
			return err.Error(), nil
		}
		defer file.Close()
		got, err := io.ReadAll(file)
		if err != nil {
			return err.Error(), nil
		}
		if string(got) != want {
			return fmt.Sprintf("the task sees %q", got), nil
		}
		return "", nil
	})
}

func stop(t *testing.T, c *cluster.Cluster, jobs ...string) {
	t.Helper()
	for _, job := range jobs {
		if _, _, err := c.API().Jobs().Deregister(job, true, nil); err != nil {
			t.Fatal(err)
		}
	}
}
