// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// keeper runs the script of a session's job, beside a process of the session.
func keeper(t *testing.T, v shellJob) (session *exec.Cmd) {
	t.Helper()
	v.Job, v.Driver, v.Pool, v.GPUs, v.Limit = "s", "raw_exec", "default", 1, time.Hour
	job, err := v.parse("default", nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := append(os.Environ(), "NOMAD_TASK_DIR="+dir, "NOMAD_ALLOC_ID="+filepath.Base(t.Name())+"-"+filepath.Base(filepath.Dir(dir)))
	ctx, cancel := patience.Context(t.Context(), patience.Limits{})
	defer cancel()
	session = exec.CommandContext(ctx, "/bin/sh", "-c", "trap '' HUP TERM; sleep 1000; true") // ignores signals
	session.Env = env
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", job.TaskGroups[0].Tasks[0].Config["args"].([]any)[1].(string))
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the keeper: %v\n%s", err, out)
	}
	_ = session.Wait() // it was killed
	return session
}

// A job ends by itself, and ends the session's processes, if the session's heartbeats stop or its
// time is over.
func TestShellKeeper(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]shellJob{
		"silent":      {Seconds: 1000, Grace: 1},
		"time's over": {Seconds: 1, Grace: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if session := keeper(t, v); session.ProcessState.Success() {
				t.Errorf("the session's process: %v", session.ProcessState)
			}
		})
	}
}

// A session's command gets the terminal's type, and uses only the session's GPUs even if the driver
// shows it all GPUs of the node. An operator's own CUDA_VISIBLE_DEVICES stays.
func TestSessionCommand(t *testing.T) {
	t.Parallel()
	for cuda, want := range map[string]string{"": "xterm GPU-1,GPU-2 a  b", "CUDA_VISIBLE_DEVICES=0": "xterm 0 a  b"} {
		cmd := exec.Command("/bin/sh", "-c", commandScript, "sh", "xterm", "/bin/sh", "-c", `echo "$TERM $CUDA_VISIBLE_DEVICES $1"`, "sh", "a  b")
		cmd.Env = []string{"NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2"}
		if cuda != "" {
			cmd.Env = append(cmd.Env, cuda)
		}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want+"\n" {
			t.Errorf("%s: %v: %q, want %q", cuda, err, out, want)
		}
	}
	cmd := exec.Command("/bin/sh", "-c", commandScript, "sh", "dumb", "no-such-command")
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 127 || !strings.Contains(string(out), "no-such-command") {
		t.Errorf("an unknown command: %v: %s", err, out)
	}
}

// A session that attaches long after its task started still names the time limit as its end.
func TestWhyEnded(t *testing.T) {
	started := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(*api.Allocation)
		after  time.Duration
		want   string
	}{
		"runs":             {func(*api.Allocation) {}, time.Second, ""},
		"time's over":      {func(*api.Allocation) {}, 3 * time.Second, "its time limit of 3s is reached"},
		"not started":      {func(a *api.Allocation) { a.TaskStates = nil }, time.Hour, ""},
		"stopped":          {func(a *api.Allocation) { a.DesiredStatus = "stop" }, time.Second, "Nomad stopped its job: no reason given"},
		"stopped at limit": {func(a *api.Allocation) { a.DesiredStatus = "stop" }, 3 * time.Second, "Nomad stopped its job: no reason given"},
		"lost":             {func(a *api.Allocation) { a.ClientStatus = "lost" }, time.Second, "node gpu-0 is lost or drained"},
	} {
		a := &api.Allocation{NodeName: "gpu-0", DesiredStatus: "run", TaskStates: map[string]*api.TaskState{"shell": {StartedAt: started}}}
		c.change(a)
		if got := ended(a, 3*time.Second, started.Add(c.after)); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// The job of a session that runs in an image starts a shell instead of the image's entry point.
func TestShellInImage(t *testing.T) {
	v := shellJob{Job: "s", Image: "img:1", Driver: "docker", Pool: "gpus", GPUs: 2, CPU: 10, Memory: 32, Limit: time.Hour}
	job, err := v.parse("team", []string{"pal_class=A"})
	if err != nil {
		t.Fatal(err)
	}
	task := job.TaskGroups[0].Tasks[0]
	got := fmt.Sprintln(*job.Namespace, *job.NodePool, job.Meta["pal_class"], job.Meta["pal_duration"], task.Config["image"], task.Config["entrypoint"], *task.Resources.Devices[0].Count)
	if want := "team gpus A 1h0m0s img:1 [/bin/sh] 2"; strings.TrimSpace(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// An invalid session is refused before it enters the queue. A session that never starts leaves
// nothing in the queue.
func TestShellRefuses(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"shell -gpus 0":           {1, "-gpus 0: a session has at least one GPU"},
		"shell -time soon":        {1, `-time "soon": `},
		"shell -time 500ms":       {1, `-time "500ms": it is less than a second`},
		"shell -meta pal_class":   {1, `-meta "pal_class" is not <key>=<value>`},
		"shell -meta pal_class=Z": {2, `application class "Z" is unknown`},
		"shell -job huge -gpus 5": {2, "huge can never start here as written"},
	} {
		if code, out, said := c.does(strings.Fields(args)...); code != want.code || out != "" || !strings.Contains(oneLine(said), want.says) {
			t.Errorf("%s: %d %s%s", args, code, out, said)
		}
	}
	jobs, _, err := c.client("").API().Jobs().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if !j.Stop {
			t.Errorf("job %s is left", j.ID)
		}
	}
}

// A session's job names its user, like a job of nomad-pal run.
func TestShellNamesItsUser(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	t.Setenv("NOMAD_PAL_USER", "anna")
	c.does(strings.Fields("shell -job huge -gpus 5")...)
	job, _, err := c.client("").API().Jobs().Info("huge", nil)
	if err != nil || job.Meta["pal_user"] != "anna" {
		t.Errorf("%v, %v", job.Meta, err)
	}
}

// A session may have the name of a session that has ended. Nothing else is said of the second, because
// the agent may still show the first.
func TestShellAgain(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	for range 2 {
		if code, _, said := c.does(strings.Fields("shell -job huge -gpus 5")...); code == 0 || strings.Contains(said, "exists") {
			t.Errorf("%d %s", code, said)
		}
	}
}
