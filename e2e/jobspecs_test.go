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
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// jobspecStories test what those files of jobspecs/ promise that make docker does not run.
var jobspecStories = map[string]func(*testing.T, *bed, *api.Job){
	"nvidia-mps":       testMPSFile,
	"raw-exec":         testToTheEnd,
	"shared-batch":     testPartToTheEnd,
	"shared-inference": testSharedInferenceFile,
	"shared-notebook":  testSharedNotebookFile,
}

// TestJobspecs runs them at once on one cluster. Only the driver differs: this machine need not have docker.
func TestJobspecs(t *testing.T) {
	t.Parallel()
	inventory := inventoryOf(0, []float64{1, 1, 1, 1}, nil) + "gpu \"GPU-L4\" {\n  model = \"NVIDIA L4\"\n  memory_mib = 23034\n}\n"
	shared := t.TempDir()
	b := newBedOf(t, []string{inventory}, cluster.Options{}, func(c *cluster.Client) {
		c.CPUMHz, c.MemoryMB = 1_000_000, 4_000_000
		c.PluginHCL = "sharing {\n  replicas = 4\n  gpus = [\"NVIDIA L4\"]\n}\n"
		c.HCL = sharedVolume(shared)
	})
	b.startAgent("nomad-pal")
	for name, story := range jobspecStories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := *b
			sub.t = t
			job := jobspecFile(t, "../jobspecs/"+name+".nomad.hcl", shared)
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
