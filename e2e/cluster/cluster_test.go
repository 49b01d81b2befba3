// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

func TestClientsAreReadyWithWhatTheyWereGiven(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{
		{},
		{Name: "gpu-box", Datacenter: "dc7", NodePool: "gpus", NodeClass: "big", Meta: map[string]string{"rack": "r1"}},
	}})
	nodes, _, err := c.API().Nodes().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range nodes {
		full, _, err := c.API().Nodes().Info(n.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		got[n.Name] = fmt.Sprintf("%s %s %s class=%q rack=%q", n.Status, n.Datacenter, n.NodePool, n.NodeClass, full.Meta["rack"])
	}
	want := map[string]string{
		"c00":     `ready dc1 default class="" rack=""`,
		"gpu-box": `ready dc7 gpus class="big" rack="r1"`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("nodes are %v, want %v", got, want)
	}
}

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

// If somebody killed the guard, Close starts another one.
func TestCloseWithoutItsGuard(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, p := range procs {
		args, _ := os.ReadFile(p)
		if !strings.Contains(string(args), "\x00nomad-pal-cluster-guard\x00"+c.Dir+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(p, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed++
	}
	if killed != 1 {
		t.Fatalf("%d guards", killed)
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
