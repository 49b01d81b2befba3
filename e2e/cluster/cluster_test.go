// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// sleeper is a batch job of raw_exec tasks that run until they are stopped.
func sleeper(id string, count int) *api.Job {
	job := api.NewBatchJob(id, id, "global", 50)
	task := api.NewTask("sleep", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"86399"})
	task.Resources = &api.Resources{CPU: new(10), MemoryMB: new(10)}
	return job.AddTaskGroup(api.NewTaskGroup("g", count).AddTask(task))
}

// bare is like sleeper, but its tasks drop their environment, and the mark with it.
func bare(id string, count int) *api.Job {
	job := sleeper(id, count)
	job.TaskGroups[0].Tasks[0].SetConfig("command", "/usr/bin/env").SetConfig("args", []string{"-i", "/bin/sleep", "86399"})
	return job
}

// mustRun registers a job and waits until all its allocations run.
func mustRun(t *testing.T, c *cluster.Cluster, job *api.Job, count int) {
	t.Helper()
	if _, _, err := c.API().Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	clustertest.Until(t, c, *job.ID+" runs", c.Allocations(*job.ID, api.AllocClientStatusRunning, count))
}

func procMounts(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{{}}})
	mustRun(t, c, sleeper("left-behind", 2), 2)
	mustRun(t, c, bare("left-bare", 1), 1)
	if n := len(sleepers(t, c.Dir)); n != 3 {
		t.Fatalf("%d tasks run, want 3: otherwise the test proves nothing", n)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	assertNothingLeft(t, c.Dir)
}

func assertNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if pids := sleepers(t, dir); len(pids) > 0 {
		t.Errorf("tasks %v still run", pids)
	}
	if strings.Contains(procMounts(t), dir) {
		t.Errorf("mounts below %s are left", dir)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", dir, err)
	}
	if left, _ := filepath.Glob("/run/netns/" + filepath.Base(dir) + "-*"); len(left) > 0 {
		t.Errorf("network namespaces are left: %v", left)
	}
}
