// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// pluginPatience is far above what any step takes; it turns a hang into a message.
const pluginPatience = time.Minute

// gpuBox is a client whose GPUs are what a library without a driver says. The
// plugin opens that library as it opens NVIDIA's.
type gpuBox struct {
	t      *testing.T
	state  nvmltest.State
	path   string // of the state file
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
	b := &gpuBox{t: t, state: state, path: lib + ".state"}
	b.write()
	b.Client = cluster.Client{Plugins: []cluster.Plugin{{
		Path:   devicePlugin(t),
		Config: fmt.Sprintf("nvml_library = %q\nfingerprint_period = \"500ms\"\n%s", lib, more),
	}}}
	return b
}

func (b *gpuBox) write() {
	b.t.Helper()
	if err := b.state.Write(b.path); err != nil {
		b.t.Fatal(err)
	}
}

// set changes one answer of the driver.
func (b *gpuBox) set(scope, key, value string) {
	b.t.Helper()
	b.state.Set(scope, key, value)
	b.write()
}

// devicePlugin is the binary of make build, or one built here.
func devicePlugin(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("E2E_BIN"); dir != "" {
		return filepath.Join(dir, "nomad-device-pal")
	}
	path := filepath.Join(t.TempDir(), "nomad-device-pal")
	if out, err := exec.Command("go", "build", "-o", path, "../device-plugin/cmd/nomad-device-pal").CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	return path
}

// gpusOf lists a node's GPUs as Nomad's server has them: id, "healthy" or why not.
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

// untilGPUs waits until the server says this of the node's GPUs.
func untilGPUs(t *testing.T, c *cluster.Cluster, node, what string, ok func(map[string]string) bool) {
	t.Helper()
	clustertest.Until(t, pluginPatience, what, func(ctx context.Context) (string, error) {
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

// gpuJob is a batch job whose one task sleeps on n GPUs and shows what it sees.
func gpuJob(name string, n int, constraints ...*api.Constraint) *api.Job {
	job := api.NewBatchJob(name, name, "global", 50)
	job.Datacenters = []string{"*"}
	task := api.NewTask("t", "raw_exec")
	task.Config = map[string]any{"command": "/bin/sh", "args": []string{"-c", "env | grep VISIBLE_DEVICES > ${NOMAD_TASK_DIR}/seen; exec sleep 600"}}
	number := uint64(n)
	task.Resources = &api.Resources{
		CPU: pointer(50), MemoryMB: pointer(32),
		Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &number, Constraints: constraints}},
	}
	group := api.NewTaskGroup("g", 1)
	group.RestartPolicy = &api.RestartPolicy{Attempts: pointer(0), Mode: pointer("fail")}
	group.ReschedulePolicy = &api.ReschedulePolicy{Attempts: pointer(0), Unlimited: pointer(false)}
	group.Tasks = []*api.Task{task}
	job.TaskGroups = []*api.TaskGroup{group}
	return job
}

func pointer[T any](v T) *T { return &v }

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
	clustertest.Until(t, pluginPatience, "job "+job+" runs", func(ctx context.Context) (string, error) {
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
func deviceIDs(a *api.Allocation) []string {
	var ids []string
	for _, task := range a.AllocatedResources.Tasks {
		for _, d := range task.Devices {
			ids = append(ids, d.DeviceIDs...)
		}
	}
	sort.Strings(ids)
	return ids
}

// still fails the test unless the allocation runs on, with the same task process.
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
		env, _ := os.ReadFile(path) // gone, or not ours
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		if strings.Contains(string(env), "NOMAD_ALLOC_ID="+alloc) && strings.TrimSpace(string(name)) == "sleep" {
			var pid int
			fmt.Sscanf(path, "/proc/%d/", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

func stop(t *testing.T, c *cluster.Cluster, jobs ...string) {
	t.Helper()
	for _, job := range jobs {
		if _, _, err := c.API().Jobs().Deregister(job, true, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// One node through what happens to GPU nodes: its plugin killed, a GPU lost while
// a task holds it, its client restarted.
func TestPluginThroughFaults(t *testing.T) {
	t.Parallel()
	box := newGPUBox(t, nvmltest.H200(4), "")
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{box.Client}})
	node := c.Clients()[0]
	untilGPUs(t, c, node.Name, "four GPUs", count(4))
	register(t, c, gpuJob("one", 1))
	alloc := running(t, c, "one")
	mine := deviceIDs(alloc)
	pids := taskPIDs(t, alloc.ID)
	if len(mine) != 1 || len(pids) != 1 {
		t.Fatalf("devices %v, processes %v: want one each", mine, pids)
	}

	t.Run("the task sees its GPU only", func(t *testing.T) {
		file, err := node.API().AllocFS().Cat(alloc, "t/local/seen", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		data, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"NVIDIA_VISIBLE_DEVICES=" + mine[0], "CUDA_VISIBLE_DEVICES=" + mine[0]} {
			if !strings.Contains(string(data), want+"\n") {
				t.Errorf("the task sees %q, want %s", data, want)
			}
		}
	})
	t.Run("plugin killed", func(t *testing.T) { killPlugin(t, c, node) })
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
	register(t, c, gpuJob("rest", 3)) // the stream is still good, and nothing is given twice
	if rest := deviceIDs(running(t, c, "rest")); len(rest) != 3 || slices.Contains(rest, mine[0]) {
		t.Errorf("the second job got %v while %v is taken", rest, mine)
	}
	stop(t, c, "one", "rest")
}

// killPlugin kills the plugin's process and waits for Nomad to start another.
func killPlugin(t *testing.T, c *cluster.Cluster, node *cluster.Agent) {
	before, err := node.PluginPIDs("nomad-device-pal")
	if err != nil || len(before) != 1 {
		t.Fatalf("plugin processes %v (%v), want one", before, err)
	}
	if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clustertest.Until(t, pluginPatience, "Nomad starts the plugin again", func(context.Context) (string, error) {
		now, err := node.PluginPIDs("nomad-device-pal")
		if err != nil || len(now) != 1 || now[0] == before[0] {
			return fmt.Sprint(now), err
		}
		return "", nil
	})
	untilGPUs(t, c, node.Name, "four GPUs", count(4))
}

// loseGPU loses a GPU that a task holds: the others stay, it is not given out,
// and it comes back.
func loseGPU(t *testing.T, c *cluster.Cluster, box *gpuBox, node, id string) {
	scope := ""
	for i := range 4 {
		if nvmltest.UUID(i) == id {
			scope = fmt.Sprintf("gpu%d", i)
		}
	}
	box.set(scope, "lost", "1")
	begin := time.Now()
	untilGPUs(t, c, node, "the lost GPU is unhealthy", gpuIs(id, "gpu-lost"))
	t.Logf("from fault to Nomad's server: %s", time.Since(begin).Round(10*time.Millisecond))
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

func TestPluginManyGPUs(t *testing.T) {
	t.Parallel()
	split := nvmltest.H200(8)
	for i := range 8 {
		split.Split(i, 7)
	}
	sixteen, mig := newGPUBox(t, nvmltest.H200(16), ""), newGPUBox(t, split, "")
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{sixteen.Client, mig.Client}})
	untilGPUs(t, c, c.Clients()[0].Name, "sixteen GPUs", count(16))
	untilGPUs(t, c, c.Clients()[1].Name, "56 MIG instances", count(56))

	register(t, c, withDevice(gpuJob("all", 16), "nvidia/gpu/NVIDIA H200"))
	if got := deviceIDs(running(t, c, "all")); len(got) != 16 {
		t.Errorf("got %d GPUs, want 16: %v", len(got), got)
	}
	register(t, c, withDevice(gpuJob("slice", 1), "nvidia/gpu/NVIDIA H200 MIG 1g.18gb"))
	if got := deviceIDs(running(t, c, "slice")); len(got) != 1 || !strings.HasPrefix(got[0], "MIG-") {
		t.Errorf("got %v, want one MIG instance", got)
	}
	mig.set("gpu7", "mig", "0") // the layout changes under Nomad
	untilGPUs(t, c, c.Clients()[1].Name, "49 MIG instances and a GPU", count(50))
	stop(t, c, "all", "slice")
}

func withDevice(job *api.Job, name string) *api.Job {
	job.TaskGroups[0].Tasks[0].Resources.Devices[0].Name = name
	return job
}

// Classes work from plain HCL constraints, without the placer: a node whose list
// is empty must not hide a node of the same computed class whose list is not.
func TestPluginClassConstraintWithoutPlacer(t *testing.T) {
	t.Parallel()
	slow, fast := emulatedClient(t, "1.04", "1.05"), emulatedClient(t, "0.97", "0.98")
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{slow, fast}})
	register(t, c, gpuJob("picky", 2,
		&api.Constraint{LTarget: "${device.ids}", Operand: "set_contains_any", RTarget: "${device.attr.unique.variability_a_le_1}"},
		&api.Constraint{LTarget: "${device.attr.variability_a_le_1_count}", Operand: ">=", RTarget: "2"}))
	if got, want := deviceIDs(running(t, c, "picky")), []string{"GPU-0.97", "GPU-0.98"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	stop(t, c, "picky")
}

// emulatedClient has one GPU per time, and a profile whose median is 1.
func emulatedClient(t *testing.T, times ...string) cluster.Client {
	t.Helper()
	dir := t.TempDir()
	inventory, profile := filepath.Join(dir, "gpus.hcl"), filepath.Join(dir, "profile.json")
	var gpus strings.Builder
	for _, time := range times {
		fmt.Fprintf(&gpus, "gpu \"GPU-%s\" {\n  key   = \"k\"\n  times = { A = %s }\n}\n", time, time)
	}
	const calibrated = `{"format": "nomad-pal/profile/1", "version": 3,
  "options": {"method": "edges", "edges": [0.99, 1.01, 1.03, 1.06], "hysteresis": 0, "outlier": 1.5, "min_gpus": 8},
  "groups": [{"model": "NVIDIA H200", "app": "A", "key": "k", "reference": 1, "measured": 64, "spread": 0.1, "values": [0.97, 1, 1.02, 1.045, 1.2]}],
  "gpus": []}`
	for path, text := range map[string]string{inventory: gpus.String(), profile: calibrated} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return cluster.Client{Plugins: []cluster.Plugin{{Path: devicePlugin(t), Config: fmt.Sprintf(
		"backend = \"emulated\"\ninventory = %q\nprofile = %q", inventory, profile)}}}
}
