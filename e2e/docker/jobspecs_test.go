// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// stories are the tests of jobs that do not simply run to their end.
var stories = map[string]func(*testing.T, *bed, *api.Job){
	"array":     dispatches(map[string]string{"seed": "1"}, map[string]string{"seed": "2"}),
	"dispatch":  dispatches(map[string]string{"dataset": "s3://data/2026-11"}),
	"inference": serves("/health", "Qwen/Qwen3-8B"),
	"mpi":       meetsAgain,
	"notebook":  serves("/lab", "a notebook"),
	"periodic":  isForced,
	"pipeline":  waitsForOthers,
	"ranks":     meetsAgain,
	"torchrun":  meetsAgain,
}

// variables are values for the variables of jobs: torchrun needs both clients, and InfiniBand.
var variables = map[string][]string{"torchrun": {"nodes=4", "hca=mlx5"}}

// testJobspecs runs all jobs of jobspecs/ at once, with their docker blocks unchanged.
func testJobspecs(t *testing.T, b *bed) {
	files, err := filepath.Glob("../../jobspecs/*.nomad.hcl")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, file := range files {
		job := jobOf(t, file, variables[strings.TrimSuffix(filepath.Base(file), ".nomad.hcl")]...)
		if job.TaskGroups[0].Tasks[0].Driver != "docker" || strings.HasPrefix(*job.ID, "shared-") {
			continue // no GPU is shared here: make e2e tests those
		}
		ran++
		t.Run(*job.ID, func(t *testing.T) {
			t.Parallel()
			story := stories[*job.ID]
			if story == nil {
				story = runsToTheEnd
			}
			b.allowMemlock(t, job)
			story(t, b, job)
		})
	}
	if ran < 10 {
		t.Errorf("%d jobspecs run in docker", ran)
	}
}

// allowMemlock removes the limit of locked memory from a job if this machine does not
// allow an unlimited one.
func (b *bed) allowMemlock(t *testing.T, job *api.Job) {
	if b.memlock == "" {
		return
	}
	for _, g := range job.TaskGroups {
		for _, task := range g.Tasks {
			for _, limits := range blocks(task.Config["ulimit"]) {
				if limits["memlock"] != nil {
					delete(limits, "memlock")
					t.Logf("runs without ulimit memlock, which this machine refuses: %s", b.memlock)
				}
			}
		}
	}
}

// blocks are the blocks with a name in a task's config.
func blocks(value any) []map[string]any {
	all, _ := value.([]map[string]any)
	return all
}

func size(job *api.Job) int {
	n := 0
	for _, g := range job.TaskGroups {
		n += *g.Count
	}
	return n
}

func runsToTheEnd(t *testing.T, b *bed, job *api.Job) {
	b.register(t, job)
	b.looksRight(t, job, b.until(t, *job.ID, api.AllocClientStatusComplete, size(job)))
}

func dispatches(metas ...map[string]string) func(*testing.T, *bed, *api.Job) {
	return func(t *testing.T, b *bed, job *api.Job) {
		b.register(t, job)
		for _, meta := range metas {
			r, _, err := b.API().Jobs().Dispatch(*job.ID, meta, nil, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			done := b.until(t, r.DispatchedJobID, api.AllocClientStatusComplete, size(job))
			b.looksRight(t, job, done)
			for key, value := range meta {
				same(t, "NOMAD_META_"+key, value, b.inside(t, done[0]).Env["NOMAD_META_"+key])
			}
		}
	}
}

func isForced(t *testing.T, b *bed, job *api.Job) {
	b.register(t, job)
	if _, _, err := b.API().Jobs().PeriodicForce(*job.ID, nil); err != nil {
		t.Fatal(err)
	}
	var child string
	clustertest.Until(t, b.Cluster, "the child is there", func(context.Context) (string, error) {
		jobs, _, err := b.API().Jobs().PrefixList(*job.ID + api.JobPeriodicLaunchSuffix)
		if err != nil || len(jobs) == 0 {
			return "no children", err
		}
		child = jobs[0].ID
		return "", nil
	})
	b.looksRight(t, job, b.until(t, child, api.AllocClientStatusComplete, size(job)))
}

func waitsForOthers(t *testing.T, b *bed, job *api.Job) {
	b.register(t, job)
	for _, before := range []string{"prepare", "train"} {
		other := jobOf(t, "../../jobspecs/single-gpu.nomad.hcl")
		other.ID, other.Name = &before, &before
		runsToTheEnd(t, b, other)
	}
	b.looksRight(t, job, b.until(t, *job.ID, api.AllocClientStatusComplete, size(job)))
}

// Each instance answers at the address at which it is registered: the engine forwards
// the port into the container. serves is the test of a job whose instances give this
// answer at this path.
func serves(path, answer string) func(*testing.T, *bed, *api.Job) {
	return func(t *testing.T, b *bed, job *api.Job) {
		b.register(t, job)
		clustertest.Until(t, b.Cluster, "all instances serve", func(ctx context.Context) (string, error) {
			instances, _, err := b.API().Services().Get(*job.ID, nil)
			if err != nil || len(instances) != size(job) {
				return fmt.Sprintf("%d instances", len(instances)), err
			}
			for _, in := range instances {
				url := fmt.Sprintf("http://%s:%d%s", in.Address, in.Port, path)
				status, body, err := cluster.Request(ctx, http.DefaultClient, http.MethodGet, url, "", "")
				if err != nil || status != http.StatusOK || body != answer {
					return fmt.Sprintf("%d %s", status, body), err
				}
			}
			return "", nil
		})
		b.looksRight(t, job, b.until(t, *job.ID, api.AllocClientStatusRunning, size(job)))
	}
}

// The ranks meet, on at least two clients if one cannot hold them all. `docker kill`
// ends one of them, and all meet again.
func meetsAgain(t *testing.T, b *bed, job *api.Job) {
	b.register(t, job)
	id, task := *job.ID, job.TaskGroups[0].Tasks[0].Name
	killed := b.ranks.untilWaits(t, id)
	b.engine.kill(t, task, killed)
	done := b.until(t, id, api.AllocClientStatusComplete, size(job))
	b.looksRight(t, job, done)
	nodes := map[string]bool{}
	for _, a := range done {
		nodes[a.NodeName] = true
		if in := b.inside(t, a); job.TaskGroups[0].Tasks[0].Env["RANK"] != "" {
			same(t, "RANK", in.Env["NOMAD_ALLOC_INDEX"], in.Env["RANK"])
			same(t, "WORLD_SIZE", strconv.Itoa(size(job)), in.Env["WORLD_SIZE"])
		}
	}
	gpus := size(job) * int(*job.TaskGroups[0].Tasks[0].Resources.Devices[0].Count)
	if gpus > 24 && len(nodes) < 2 {
		t.Errorf("%d GPUs on nodes %v", gpus, nodes)
	}
	// The killed rank's peers lose the connection at once. If Nomad learns of their ends first, it
	// stops the killed rank with the gang, whose status is then complete.
	a, _, err := b.API().Allocations().Info(killed, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := exitCodes(a, task); !slices.Contains(got, 137) {
		t.Errorf("the killed rank ended with %v, want 137", got)
	}
	b.explains(t, id, "ended with exit code")
}

// exitCodes are the exit codes of an allocation's task.
func exitCodes(a *api.Allocation, task string) (codes []int) {
	for _, e := range a.TaskStates[task].Events {
		if e.Type == api.TaskTerminated {
			codes = append(codes, e.ExitCode)
		}
	}
	return codes
}

// explains waits until explain prints a text about a job: the agent reads Nomad a moment after the
// test does.
func (b *bed) explains(t *testing.T, id, want string) {
	t.Helper()
	clustertest.Until(t, b.Cluster, fmt.Sprintf("explain %s says %q", id, want), func(ctx context.Context) (string, error) {
		out, err := b.Command(ctx, "nomad-pal", "explain", "-verbose", id).CombinedOutput()
		if err == nil && strings.Contains(string(out), want) {
			return "", nil
		}
		return fmt.Sprintf("%s (%v)", out, err), nil
	})
}

func same[T comparable](t *testing.T, what string, want, got T) {
	t.Helper()
	if want != got {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// looksRight compares what tasks found in their containers with what the job
// requests.
func (b *bed) looksRight(t *testing.T, job *api.Job, allocs []*api.Allocation) {
	t.Helper()
	for _, a := range allocs {
		task := job.LookupTaskGroup(a.TaskGroup).Tasks[0]
		in := b.inside(t, a)
		b.rightGPUs(t, a, in)
		rightBlock(t, task, in)
		for _, dir := range []string{"/alloc", "/local", "/secrets"} {
			if in.Mounts[dir] == "" {
				t.Errorf("%s: %s is not mounted", a.Name, dir)
			}
		}
		same(t, a.Name+": memory", strconv.Itoa(*task.Resources.MemoryMB<<20), in.Memory)
		same(t, a.Name+": NOMAD_ALLOC_ID", a.ID, in.Env["NOMAD_ALLOC_ID"])
	}
}

// rightGPUs: the container has access to exactly the GPUs that Nomad gave to the
// allocation, by each way to reach them.
func (b *bed) rightGPUs(t *testing.T, a *api.Allocation, in inside) {
	t.Helper()
	gpus := cluster.DeviceIDs(a.AllocatedResources)
	sorted := func(list string) string {
		ids := strings.Split(list, ",")
		slices.Sort(ids)
		return strings.Join(ids, ",")
	}
	want := strings.Join(gpus, ",")
	same(t, a.Name+": NVIDIA_VISIBLE_DEVICES", want, sorted(in.Env["NVIDIA_VISIBLE_DEVICES"]))
	asked, err := gpusOfRuntime(in.Container)
	if err != nil {
		t.Fatal(err)
	}
	same(t, a.Name+": GPUs that the nvidia runtime was asked for", want, sorted(asked))
	same(t, a.Name+": another GPU", forbidden, in.Stranger)
	cuda := ""
	if a.NodeName == "node-1" {
		cuda = want
	}
	same(t, a.Name+": CUDA_VISIBLE_DEVICES", cuda, sorted(in.Env["CUDA_VISIBLE_DEVICES"]))
	files := map[string]string{}
	if a.NodeName == "node-0" {
		for _, name := range []string{"ctl", "-uvm", "-uvm-tools"} {
			files["/dev/nvidia"+name] = allowed
		}
		for _, id := range gpus {
			files["/dev/nvidia"+minor(id)] = allowed
			if id == "MIG-0" { // GPU instance and compute instance: see migMinors
				files["/dev/nvidia-caps/nvidia-cap12"] = allowed
				files["/dev/nvidia-caps/nvidia-cap13"] = allowed
			}
		}
	}
	same(t, a.Name+": device files", fmt.Sprint(files), fmt.Sprint(in.Devices))
}

// minor is the number of a GPU's device file: its place in the inventory.
func minor(id string) string {
	if id == "MIG-0" {
		return "24"
	}
	return id[strings.LastIndex(id, "-")+1:]
}

// rightBlock: the container has what the task's docker block requests.
func rightBlock(t *testing.T, task *api.Task, in inside) {
	t.Helper()
	shm := 64 << 20 // docker's default
	if set, ok := task.Config["shm_size"].(int); ok {
		shm = set
	}
	ours := insideOfTest()
	if task.Config["ipc_mode"] == "host" {
		same(t, "IPC namespace is the machine's", ours.IPC, in.IPC)
	} else {
		same(t, "size of /dev/shm", uint64(shm), in.Shm)
		same(t, "IPC namespace is the machine's", false, ours.IPC == in.IPC)
	}
	if task.Config["network_mode"] == "host" {
		same(t, "network namespace", ours.Network, in.Network)
	} else {
		same(t, "network interfaces", "[eth0 lo]", fmt.Sprint(in.Links))
	}
	infiniband := ""
	if task.Env["NCCL_IB_HCA"] != "" {
		infiniband = allowed
	}
	same(t, "InfiniBand", infiniband, in.Infiniband)
	for _, limits := range blocks(task.Config["ulimit"]) {
		for name, value := range limits {
			of := map[string]string{"memlock": "Max locked memory", "stack": "Max stack size"}[name]
			want := strings.ReplaceAll(fmt.Sprint(value), "-1", "unlimited")
			same(t, cmp.Or(of, name), want+" "+want, in.Limits[of])
		}
	}
	if command := task.Config["command"]; command == "python" {
		same(t, "arguments", false, strings.Contains(strings.Join(in.Args, " "), "${"))
	}
}
