// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package slurm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

func TestScript(t *testing.T) {
	t.Parallel()
	gang := Job{Name: "g", Tasks: 3, GPUsPerTask: 4, Limit: 61 * time.Second, Command: []string{"/bin/x", "it's"}}
	for _, want := range []string{"#SBATCH --ntasks=3\n", "--gpus-per-task=4\n", "--time=2\n", "\nexec srun '/bin/x' 'it'\\''s'\n"} {
		if got := gang.script(); !strings.HasPrefix(got, "#!/bin/sh\n#SBATCH --job-name=g\n") || !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	gang.Tasks = 1
	if got := gang.script(); strings.Contains(got, "srun") {
		t.Errorf("a single task is started by srun:\n%s", got)
	}
}

func TestMinutes(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int{0: 1, time.Second: 1, time.Minute: 1, time.Minute + 1: 2, time.Hour: 60} {
		if got := minutes(d); got != want {
			t.Errorf("%v are %d minutes, want %d", d, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]int{"17\n": 17, "18;pal\n": 18} {
		if got, err := number(out); err != nil || got != want {
			t.Errorf("%q is job %d, %v", out, got, err)
		}
	}
	if _, err := number("sbatch: error\n"); err == nil {
		t.Error("an error is parsed as a number")
	}
}

func TestParseQueue(t *testing.T) {
	t.Parallel()
	got, err := parseQueue("7|resnet-1|RUNNING|gpu-00\n\n8|bert-2|PENDING|(Resources)\n")
	want := []Queued{{7, "resnet-1", "RUNNING", "gpu-00"}, {8, "bert-2", "PENDING", "(Resources)"}}
	if err != nil || !cmp.Equal(got, want) {
		t.Error(err, cmp.Diff(want, got))
	}
	for _, bad := range []string{"7|a|RUNNING\n", "x|a|RUNNING|n\n"} {
		if _, err := parseQueue(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestParseNodes(t *testing.T) {
	t.Parallel()
	got, err := parseNodes("gpu-00|idle|gpu:4\ngpu-01|mix|gpu:a100:2(S:0,1),gpu:v100:1,nic:2\ngpu-02|down*|(null)\n")
	want := map[string]node{"gpu-00": {"idle", 4}, "gpu-01": {"mix", 3}, "gpu-02": {"down*", 0}}
	if err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(node{})) {
		t.Error(err, got)
	}
	if _, err := parseNodes("gpu-00|idle\n"); err == nil {
		t.Error("a line of two cells is accepted")
	}
}

// A fast clock does not shorten, in real time, the controller's timeouts or the time that
// scheduling may take.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	l := layout{dir: "/d", host: "h", user: "u", nodes: []string{"n0", "n1"}, gpusEach: 2, ports: []int{1, 2, 3}, clock: 10}
	for _, want := range []string{
		"SlurmctldHost=h(127.0.0.1)\nSlurmctldPort=1\nSlurmUser=u\n", "AuthInfo=socket=/d/munge.sock,cred_expire=36000\n",
		"SchedulerParameters=bf_max_time=300,bf_yield_interval=20000000,max_sched_time=20\n", "MessageTimeout=600\n",
		"NodeName=n1 NodeHostname=h NodeAddr=127.0.0.1 Port=3 CPUs=2 Gres=gpu:2 State=UNKNOWN\n",
	} {
		if got := l.conf(); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	l.clock = 0
	if got := l.conf(); !strings.Contains(got, "MessageTimeout=60\n") {
		t.Errorf("the clock is not fast, but timeouts are scaled:\n%s", got)
	}
	if got, want := l.gres(), "NodeName=n1 Name=gpu File=/d/dev/n1-1 Flags=nvidia_gpu_env\n"; strings.Count(got, "\n") != 4 || !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s", got)
	}
}

// A real Slurm starts a gang as a whole and gives its tasks their GPUs. The next gang waits until
// all its GPUs are free. Close leaves nothing behind.
func TestGangOnSlurm(t *testing.T) {
	if lacks := Missing(true); lacks != "" {
		t.Skip(lacks)
	}
	ctx := t.Context()
	c, err := Start(ctx, Options{Nodes: []string{"gpu-00", "gpu-01"}, GPUsEach: 2, Clock: 60, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // closing twice does no harm
	dir := t.TempDir()
	submit := func(name string, tasks int) {
		t.Helper()
		script := `echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES" >"$0/$SLURM_JOB_NAME.$SLURM_PROCID.new"
mv "$0/$SLURM_JOB_NAME.$SLURM_PROCID.new" "$0/$SLURM_JOB_NAME.$SLURM_PROCID"
until [ -e "$0/$SLURM_JOB_NAME-ends" ]; do sleep 0.05; done`
		if _, err := c.Submit(ctx, Job{Name: name, Tasks: tasks, GPUsPerTask: 1, Limit: time.Hour, Command: []string{"/bin/sh", "-c", script, dir}}); err != nil {
			t.Fatal(err)
		}
	}
	ran := func(name string) (on []string) {
		files, _ := filepath.Glob(filepath.Join(dir, name+".[0-9]"))
		for _, f := range files {
			text, _ := os.ReadFile(f)
			on = append(on, strings.TrimSpace(string(text)))
		}
		return on
	}
	submit("first", 3)
	patience.Eventually(t, "the first gang runs", func() bool { return len(ran("first")) == 3 })
	submit("second", 2)
	patience.Eventually(t, "the second gang waits for GPUs", func() bool {
		queue, err := c.Queue(ctx)
		i := slices.IndexFunc(queue, func(q Queued) bool { return q.Name == "second" })
		return err == nil && i >= 0 && queue[i].State == "PENDING" && queue[i].Why == "(Resources)"
	})
	if on := ran("second"); len(on) > 0 {
		t.Errorf("some tasks of the second gang run already: %v", on)
	}
	different := map[string]bool{}
	for _, on := range ran("first") {
		if node, gpu, _ := strings.Cut(on, " "); !strings.HasPrefix(node, "gpu-0") || (gpu != "0" && gpu != "1") {
			t.Errorf("a task ran on %q", on)
		}
		different[on] = true
	}
	if len(different) != 3 {
		t.Errorf("three tasks had %v", different)
	}
	if err := os.WriteFile(filepath.Join(dir, "first-ends"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	patience.Eventually(t, "the second gang runs", func() bool { return len(ran("second")) == 2 })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if left := marked(t, c); len(left) > 0 {
		t.Errorf("processes %v still run", left)
	}
}

// marked returns the processes that carry the cluster's mark.
func marked(t *testing.T, c *Cluster) (pids []int) {
	all, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		env, _ := p.Environ() // the process has ended, or belongs to another user
		for _, kv := range env {
			if kv == c.guard.Mark(c.Dir) {
				pids = append(pids, p.PID)
			}
		}
	}
	return pids
}
