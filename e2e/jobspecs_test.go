// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// jobspecStories test what each file of jobspecs/ promises.
var jobspecStories = map[string]func(*testing.T, *bed, *api.Job){
	"array":          testArrayFile,
	"dispatch":       testDispatchFile,
	"inference":      testInferenceFile,
	"measure":        nil, // see TestGPUsThatTasksHoldAreNotMeasured
	"mig":            testToTheEnd,
	"mpi":            testRanksFile,
	"native-class":   testToTheEnd,
	"nomad-pal":      nil, // see TestWorkloadIdentity
	"notebook":       testNotebookFile,
	"nvidia-mps":     testMPSFile,
	"periodic":       testPeriodicFile,
	"pipeline":       testPipelineFile,
	"ranks":          testRanksFile,
	"raw-exec":       testToTheEnd,
	"several-groups": testSeveralGroupsFile,
	"single-gpu":     testToTheEnd,
	"torchrun":       testRanksFile,

	"shared-batch":     testPartToTheEnd,
	"shared-inference": testSharedInferenceFile,
	"shared-notebook":  testSharedNotebookFile,
}

// TestJobspecs runs the jobs that people copy, all at once on one cluster. Only
// the driver differs: this machine need not have docker.
func TestJobspecs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../jobspecs/*.nomad.hcl")
	if err != nil || len(files) != len(jobspecStories) {
		t.Fatalf("%d jobspecs, %d stories: %v", len(files), len(jobspecStories), err)
	}
	var inventories []string
	for n := range 4 {
		inventories = append(inventories, inventoryOf(n, slices.Repeat([]float64{1}, 16), nil))
	}
	inventories[0] += "gpu \"GPU-L4\" {\n  model = \"NVIDIA L4\"\n  memory_mib = 23034\n}\n"
	inventories[0] += "gpu \"MIG-0\" {\n  model = \"NVIDIA A100-SXM4-40GB\"\n  mig_profile = \"1g.5gb\"\n}\n"
	shared := t.TempDir()
	b := newBedOf(t, inventories, cluster.Options{}, func(c *cluster.Client) {
		c.CPUMHz, c.MemoryMB = 1_000_000, 4_000_000
		c.Profile = calibrated
		c.PluginHCL = "sharing {\n  replicas = 4\n  gpus = [\"NVIDIA L4\"]\n}\n"
		c.HCL = sharedVolume(shared)
	})
	b.config = b.nomadBlock()
	b.startAgent("nomad-pal")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".nomad.hcl")
		story, told := jobspecStories[name]
		if !told {
			t.Errorf("%s has no story", file)
		}
		if story == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := *b
			sub.t = t
			job := jobspecFile(t, file, shared)
			t.Cleanup(func() {
				if t.Failed() {
					sub.logAllocs(name)
				}
			})
			story(t, &sub, job)
		})
	}
}

// jobspecFile parses a file as Nomad's CLI does, with values for its variables. Tasks for docker
// become plain processes. If such a task has no command, its command is the name of the image.
// raw_exec has no volume mounts, so shared is the directory that containers see as /shared.
func jobspecFile(t *testing.T, file, shared string, vars ...string) *api.Job {
	t.Helper()
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.ReplaceAll(body, []byte("/shared/"), []byte(shared+"/"))
	job, err := jobspec2.ParseWithConfig(&jobspec2.ParseConfig{Path: file, Body: text, Strict: true, ArgVars: vars})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range job.TaskGroups {
		for _, task := range g.Tasks {
			if task.Driver == "docker" {
				image, _, _ := strings.Cut(path.Base(task.Config["image"].(string)), ":")
				command, _ := task.Config["command"].(string)
				task.Driver, task.Config = "raw_exec", map[string]any{"command": cmp.Or(command, image), "args": task.Config["args"]}
				task.VolumeMounts = nil
			}
		}
	}
	return job
}

// size is the number of allocations of a job.
func size(job *api.Job) int {
	n := 0
	for _, g := range job.TaskGroups {
		g.Canonicalize(job)
		n += *g.Count
	}
	return n
}

// untilComplete waits until n allocations of a job have completed, and returns them.
// A stopped allocation is "complete", too, but should not run.
func (b *bed) untilComplete(id string, n int) []*api.AllocationListStub {
	b.t.Helper()
	var done []*api.AllocationListStub
	b.until(fmt.Sprintf("%d allocations of %s are complete", n, id), func() string {
		stubs, _, err := b.API().Jobs().Allocations(id, true, nil)
		if err != nil {
			return err.Error()
		}
		var others []string
		done = nil
		for _, s := range stubs {
			if s.ClientStatus == "complete" && s.DesiredStatus == "run" {
				done = append(done, s)
			} else {
				others = append(others, s.Name+" "+s.DesiredStatus+"/"+s.ClientStatus)
			}
		}
		if len(done) != n {
			return fmt.Sprintf("%d of them; others: %v; %s", len(done), others, b.explain(id).Reason)
		}
		return ""
	})
	return done
}

// testPartToTheEnd tests a job without a gate.
func testPartToTheEnd(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	clustertest.Until(t, b.Cluster, *job.ID+" is complete", b.Allocations(*job.ID, "complete", size(job)))
}

// Both members run on one GPU, whether Nomad or the placer places them.
func testSharedInferenceFile(t *testing.T, b *bed, job *api.Job) {
	for _, as := range []*api.Job{job, rewrite.Gate(job)} {
		register(t, b.Cluster, as)
		b.untilServed(*job.ID, "Qwen/Qwen3-0.6B", size(job))
		gpus := b.gpusOf(*job.ID)
		if len(gpus) != 2 || !strings.HasPrefix(gpus[0], "GPU-L4::") || !strings.HasPrefix(gpus[1], "GPU-L4::") {
			t.Errorf("the members have %v, want two parts of GPU-L4", gpus)
		}
		if rewrite.Gated(as) {
			b.untilExplained(*job.ID, gpus)
		}
		b.purge(*job.ID)
	}
}

func testSharedNotebookFile(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	if gpus := deviceIDs(running(t, b.Cluster, *job.ID)); len(gpus) != 1 || !strings.HasPrefix(gpus[0], "GPU-L4::") {
		t.Errorf("the notebook has %v, want a part of GPU-L4", gpus)
	}
	stop(t, b.Cluster, *job.ID)
}

// explain -verbose prints the notebook's address once it runs, and the notebook answers
// there.
func testNotebookFile(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	b.untilGPUs(*job.ID, 1)
	address := regexp.MustCompile(`notebook\[0\] +http +(\S+)`)
	b.until("the notebook answers at the address that explain prints", func() string {
		out, _ := b.pal("explain", "-verbose", *job.ID)
		found := address.FindStringSubmatch(out)
		if found == nil {
			return out
		}
		status, body, err := cluster.Request(t.Context(), http.DefaultClient, http.MethodGet, "http://"+found[1]+"/lab", "", "")
		if err != nil || status != http.StatusOK || body != "a notebook" {
			return fmt.Sprintf("%d %s: %v", status, body, err)
		}
		return ""
	})
	b.purge(*job.ID)
}

// A daemon runs on each client, here a program that only sleeps. The daemon's pipe directory exists.
func testMPSFile(t *testing.T, b *bed, job *api.Job) {
	job.Constraints = nil // the clients do not have the meta
	pipe, task := filepath.Join(t.TempDir(), "pipe"), job.TaskGroups[0].Tasks[0]
	script := task.Config["args"].([]any)[1].(string)
	task.Config["args"] = []string{"-c", strings.NewReplacer("/run/nvidia-mps", pipe, "/usr/bin/nvidia-cuda-mps-control -f", "sleep 600").Replace(script)}
	register(t, b.Cluster, job)
	clustertest.Until(t, b.Cluster, "a daemon on each client", b.Allocations(*job.ID, "running", len(b.Clients())))
	if _, err := os.Stat(pipe); err != nil || task.Env["CUDA_MPS_PIPE_DIRECTORY"] != "/run/nvidia-mps" {
		t.Errorf("pipe directory %v, %v", task.Env, err)
	}
	b.purge(*job.ID)
}

func testToTheEnd(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	b.untilComplete(*job.ID, size(job))
}

// One rank fails. The whole gang starts again, and its ranks meet at the new rank
// 0.
func testRanksFile(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	b.untilComplete(*job.ID, size(job))
	stubs, _, err := b.API().Jobs().Allocations(*job.ID, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(stubs) < 2*size(job) {
		t.Errorf("there are %d allocations, so no second run", len(stubs))
	}
}

func testSeveralGroupsFile(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	racks := map[string]bool{}
	for _, a := range b.untilComplete(*job.ID, size(job)) {
		node, _, err := b.API().Nodes().Info(a.NodeID, nil)
		if err != nil {
			t.Fatal(err)
		}
		racks[node.Meta["rack"]] = true
	}
	same(t, "racks", 1, len(racks))
}

func testArrayFile(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	for seed := range 3 {
		b.untilComplete(b.dispatchMeta(*job.ID, map[string]string{"seed": fmt.Sprint(seed)}), 1)
	}
}

func testDispatchFile(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	b.untilComplete(b.dispatchMeta(*job.ID, map[string]string{"dataset": "s3://data/2026-11"}), 1)
	if _, _, err := b.API().Jobs().Dispatch(*job.ID, nil, nil, "", nil); err == nil {
		t.Error("Nomad dispatched the job without a data set")
	}
}

func (b *bed) dispatchMeta(parent string, meta map[string]string) string {
	b.t.Helper()
	r, _, err := b.API().Jobs().Dispatch(parent, meta, nil, "", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.DispatchedJobID
}

func testPeriodicFile(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	if _, _, err := b.API().Jobs().PeriodicForce(*job.ID, nil); err != nil {
		t.Fatal(err)
	}
	var child string
	b.until("the child is there", func() string {
		jobs, _, err := b.API().Jobs().PrefixList(*job.ID + api.JobPeriodicLaunchSuffix)
		if err != nil || len(jobs) == 0 {
			return fmt.Sprintf("%d children: %v", len(jobs), err)
		}
		child = jobs[0].ID
		return ""
	})
	b.untilComplete(child, size(job))
}

// The pipeline waits for the two jobs that it depends on.
func testPipelineFile(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	before := gang("train", 1, 1)
	before.script = "exec sleep 1"
	b.untilWaits(*job.ID, "prepare")
	b.run(before.hcl())
	b.untilComplete("train", 1)
	b.waitsOn(*job.ID)
	prepare := b.parse(before.hcl())
	prepare.ID, prepare.Name, prepare.TaskGroups[0].Tasks[0].Resources.Devices = new("prepare"), nil, nil
	register(t, b.Cluster, prepare)
	b.untilComplete(*job.ID, size(job))
}

// A new version starts as a canary. After its promotion the others follow.
func testInferenceFile(t *testing.T, b *bed, job *api.Job) {
	register(t, b.Cluster, job)
	b.untilGPUs(*job.ID, size(job))
	b.untilServed(*job.ID, "Qwen/Qwen3-8B", size(job))
	b.untilDeployed(*job.ID)
	job.TaskGroups[0].Tasks[0].Config["args"].([]any)[1] = "Qwen/Qwen3-14B"
	register(t, b.Cluster, job)
	b.untilServed(*job.ID, "Qwen/Qwen3-14B", size(job))
	d, _, err := b.API().Jobs().LatestDeployment(*job.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if g := d.TaskGroups["serve"]; len(g.PlacedCanaries) != 1 || !g.Promoted {
		t.Errorf("canaries %v, promoted: %v", g.PlacedCanaries, g.Promoted)
	}
	b.purge(*job.ID)
}

// untilServed waits until n instances are registered and all serve the model.
func (b *bed) untilServed(service, model string, n int) {
	b.t.Helper()
	b.until(fmt.Sprintf("%d instances serve %s", n, model), func() string {
		instances, _, err := b.API().Services().Get(service, nil)
		if err != nil || len(instances) != n {
			return fmt.Sprintf("%d instances: %v", len(instances), err)
		}
		for _, in := range instances {
			resp, err := http.Get(fmt.Sprintf("http://%s:%d/health", in.Address, in.Port))
			if err != nil {
				return err.Error()
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(body) != model {
				return fmt.Sprintf("%s: %s: %v", in.AllocID, body, err)
			}
		}
		return ""
	})
}
