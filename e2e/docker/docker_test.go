// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// TestDocker runs all tests that share one engine and one cluster.
func TestDocker(t *testing.T) {
	b := start(t)
	t.Run("memlock", func(t *testing.T) {
		if b.memlock != "" {
			t.Skip("not tried: ulimit memlock = -1, which this machine refuses: " + b.memlock)
		}
	})
	t.Run("jobspecs", func(t *testing.T) { testJobspecs(t, b) })
	t.Run("shell", func(t *testing.T) { testShell(t, b) })
	t.Run("restarts", func(t *testing.T) { testRestarts(t, b) })
	t.Run("memory", func(t *testing.T) { testMemory(t, b) })
	t.Run("no nvidia runtime", func(t *testing.T) { testNoRuntime(t, b) })
	t.Run("agent", func(t *testing.T) { testAgent(t, b) }) // last, because it ends the placer
}

// testShell: a session in a container whose image has its own entry point. It gets the GPUs of its
// job, reads standard input, returns the exit code, and ends its job.
func testShell(t *testing.T, b *bed) {
	cmd := b.Command(t.Context(), "nomad-pal", "shell", "-job", "session", "-image", vllm, "-gpus", "2", "-var", "memory=64", "--",
		"bash", "-c", `echo "on $NVIDIA_VISIBLE_DEVICES"; read -r line; echo "$line"; exit 7`)
	cmd.Env = append(cmd.Env, "NOMAD_PAL_ADDR="+b.placer.URL())
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("from here\n"), &out, &said
	_ = cmd.Run() // the exit code is checked below
	if !strings.HasPrefix(out.String(), "on GPU-") || strings.Count(out.String(), "GPU-") != 2 || !strings.HasSuffix(out.String(), "\nfrom here\n") {
		t.Errorf("the shell prints %q\n%s", &out, &said)
	}
	same(t, "exit code", 7, cmd.ProcessState.ExitCode())
	clustertest.Until(t, b.Cluster, "the session's job has ended", func(context.Context) (string, error) {
		for _, a := range b.allocations(t, "session") {
			if !cluster.Ended(a) {
				return a.ClientStatus, nil
			}
		}
		return "", nil
	})
}

// taskOn is a job with one GPU, on the clients of a pool, whose task runs a program of
// the image. A failed task is not retried.
func taskOn(t *testing.T, pool, id, program string) *api.Job {
	t.Helper()
	job := jobOf(t, "../../jobspecs/single-gpu.nomad.hcl")
	job.ID, job.Name, job.NodePool = &id, &id, &pool
	g := job.TaskGroups[0]
	g.RestartPolicy = &api.RestartPolicy{Attempts: new(0), Mode: new("fail")}
	g.Tasks[0].RestartPolicy = g.RestartPolicy
	g.ReschedulePolicy = &api.ReschedulePolicy{Attempts: new(0), Unlimited: new(false)}
	g.Tasks[0].Config = map[string]any{"image": pytorch, "command": program}
	g.Tasks[0].Resources.MemoryMB = new(64)
	return job
}

// testRestarts: a container keeps running and keeps its GPU when the client and the
// device plugin restart. Another job waits for the GPU.
func testRestarts(t *testing.T, b *bed) {
	b.register(t, taskOn(t, "single", "holder", "hold"))
	holder := b.until(t, "holder", api.AllocClientStatusRunning, 1)[0]
	b.inside(t, holder) // the task has started
	before := b.engine.inspect(t, "train", holder.ID)
	b.register(t, taskOn(t, "single", "waiter", "python"))
	client := b.Clients()[2]
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"client stopped", client.Stop},
		{"client started", client.Start},
		{"client killed", client.Kill},
		{"client started again", client.Start},
		{"plugin killed", func(context.Context) error { return restartPlugin(t, b) }},
	} {
		if err := step.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		same(t, step.name+": container", before, b.engine.inspect(t, "train", holder.ID))
		if client.PID() != 0 {
			b.until(t, "holder", api.AllocClientStatusRunning, 1)
		}
		same(t, step.name+": allocations of the holder", 1, len(b.allocations(t, "holder")))
		same(t, step.name+": allocations of the waiter", 0, len(b.allocations(t, "waiter")))
	}
	if err := b.Deregister(t.Context(), "holder", false); err != nil {
		t.Fatal(err)
	}
	b.until(t, "waiter", api.AllocClientStatusComplete, 1)
}

// restartPlugin kills a client's device plugin, and waits until Nomad has started another
// one that publishes its GPU.
func restartPlugin(t *testing.T, b *bed) error {
	client := b.Clients()[2]
	pids, err := client.PluginPIDs("nomad-device-pal")
	if err != nil || len(pids) != 1 {
		return fmt.Errorf("plugins %v: %w", pids, err)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		return err
	}
	clustertest.Until(t, b.Cluster, "another plugin", func(ctx context.Context) (string, error) {
		now, err := client.PluginPIDs("nomad-device-pal")
		if err != nil || len(now) != 1 || now[0] == pids[0] {
			return fmt.Sprintf("plugins %v, was %v", now, pids), err
		}
		id, err := b.NodeID(ctx, client.Name)
		if err != nil {
			return "", err
		}
		node, _, err := b.API().Nodes().Info(id, nil)
		if err != nil || len(node.NodeResources.Devices) != 1 ||
			!node.NodeResources.Devices[0].Instances[0].Healthy {
			return "no healthy GPU", err
		}
		return "", nil
	})
	return nil
}

// testMemory: a container that exceeds its memory is killed, and explain says so.
func testMemory(t *testing.T, b *bed) {
	b.register(t, taskOn(t, "single", "eater", "eat"))
	eater := b.until(t, "eater", api.AllocClientStatusFailed, 1)[0]
	want := "exit code 137" // the engine may report the end before it knows that the kernel killed the container
	if slices.ContainsFunc(eater.TaskStates["train"].Events, func(e *api.TaskEvent) bool { return e.Details["oom_killed"] == "true" }) {
		want = "ran out of memory"
	}
	b.explains(t, "eater", want)
}

// testNoRuntime: without the nvidia runtime, Nomad's docker driver starts no task with a
// GPU, and explain says why.
func testNoRuntime(t *testing.T, b *bed) {
	b.register(t, taskOn(t, "bare", "bare", "python"))
	b.until(t, "bare", api.AllocClientStatusFailed, 1)
	b.explains(t, "bare", `requested docker runtime "not-installed" was not found`)
}

// testAgent: the agent itself runs in docker, as in the pack: in an image like a release's,
// as the image's user, with the Task API's socket as its only way to Nomad.
func testAgent(t *testing.T, b *bed) {
	if err := b.placer.Stop(); err != nil {
		t.Fatal(err)
	}
	program := map[string]string{"/usr/bin/nomad-pal": b.Program("nomad-pal")}
	image, err := pack(program, nil)
	if err != nil {
		t.Fatal(err)
	}
	const name = "registry.example/nomad-pal:2.0.0"
	err = b.engine.load(t.Context(), image, name, `ENTRYPOINT ["/usr/bin/nomad-pal"]`, "USER 65532:65532")
	if err != nil {
		t.Fatal(err)
	}
	agent := jobOf(t, "../../jobspecs/nomad-pal.nomad.hcl", "driver=docker")
	task := agent.TaskGroups[0].Tasks[0]
	delete(task.Config, "command")
	task.Config["image"], task.Config["network_mode"] = name, "host"
	b.register(t, agent)
	b.until(t, *agent.ID, api.AllocClientStatusRunning, size(agent))
	runsToTheEnd(t, b, taskOn(t, "single", "placed", "python"))
}
