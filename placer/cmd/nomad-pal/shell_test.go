// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// keeper runs the program of a session's job, beside a process of the session.
func keeper(t *testing.T, grace, limit, heard string) (said string, session *exec.Cmd) {
	t.Helper()
	dir := t.TempDir()
	env := append(os.Environ(), "NOMAD_TASK_DIR="+dir, "NOMAD_ALLOC_ID="+filepath.Base(t.Name())+"-"+filepath.Base(filepath.Dir(dir)))
	if heard != "" {
		if err := os.WriteFile(filepath.Join(dir, "session"), []byte(heard+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := patience.Context(t.Context(), patience.Limits{})
	defer cancel()
	session = exec.CommandContext(ctx, "/bin/sh", "-c", "trap '' HUP TERM; sleep 1000; true") // ignores signals
	session.Env = env
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", shellKeeper, "sh", grace, limit)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the keeper: %v\n%s", err, out)
	}
	_ = session.Wait() // it was killed
	return string(out), session
}

// A job ends by itself, and ends the session's processes, if the session's heartbeat stops or its
// time is over.
func TestShellKeeper(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ grace, limit, heard, says string }{
		"no session":  {"1", "1000", "", "The session has not answered for 1 s.\n"},
		"silent":      {"1", "1000", "17", "The session has not answered for 1 s.\n"},
		"time's over": {"1000", "1", "", "The time limit of 1 s is reached.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, session := keeper(t, c.grace, c.limit, c.heard)
			if said != c.says || session.ProcessState.Success() {
				t.Errorf("%q, want %q; the session's process: %v", said, c.says, session.ProcessState)
			}
		})
	}
}

// A session's heartbeat keeps its job alive: each beat writes another number.
func TestSessionBeatReachesTheKeeper(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, n := range []string{"1", "2"} {
		cmd := exec.Command("/bin/sh", "-c", sessionFile, "sh", n)
		cmd.Env = append(os.Environ(), "NOMAD_TASK_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "session")); err != nil || string(text) != n+"\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// A session's command gets the terminal's type, and uses only the session's GPUs even if the driver
// shows it all GPUs of the node. An operator's own CUDA_VISIBLE_DEVICES stays.
func TestSessionCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, term, seesAll, cuda, want string }{
		{"raw_exec, on a terminal", "xterm", "raw_exec", "", "xterm GPU-1,GPU-2 a  b"},
		{"raw_exec, set by the operator", "-", "raw_exec", "CUDA_VISIBLE_DEVICES=0", "old 0 a  b"},
		{"docker", "-", "-", "", "old unset a  b"},
	} {
		cmd := exec.Command("/bin/sh", "-c", commandScript, "sh", c.term, c.seesAll, "/bin/sh", "-c", `echo "$TERM ${CUDA_VISIBLE_DEVICES-unset} $1"`, "sh", "a  b")
		cmd.Env = []string{"TERM=old", "NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2"}
		if c.cuda != "" {
			cmd.Env = append(cmd.Env, c.cuda)
		}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != c.want+"\n" {
			t.Errorf("%s: %v: %q, want %q", c.name, err, out, c.want)
		}
	}
	cmd := exec.Command("/bin/sh", "-c", commandScript, "sh", "-", "-", "no-such-command")
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 127 || !strings.Contains(string(out), "no-such-command") {
		t.Errorf("an unknown command: %v: %s", err, out)
	}
}

// A session that attaches long after its task started still names the time limit as its end.
func TestWhyEnded(t *testing.T) {
	started := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	running := func() *api.Allocation {
		return &api.Allocation{JobID: "s", Namespace: "default", NodeName: "gpu-0", TaskStates: map[string]*api.TaskState{
			"shell": {State: "running", StartedAt: started},
		}}
	}
	for name, c := range map[string]struct {
		change func(*api.Allocation)
		after  time.Duration
		want   string
	}{
		"runs":             {func(*api.Allocation) {}, time.Second, ""},
		"time's over":      {func(*api.Allocation) {}, 3 * time.Second, "its time limit of 3s is reached"},
		"not started":      {func(a *api.Allocation) { a.TaskStates = nil }, time.Hour, ""},
		"stopped":          {func(a *api.Allocation) { a.DesiredStatus = "stop" }, time.Second, "its job was stopped (Nomad gives no reason)"},
		"stopped at limit": {func(a *api.Allocation) { a.DesiredStatus = "stop" }, 3 * time.Second, "its job was stopped (Nomad gives no reason)"},
		"lost":             {func(a *api.Allocation) { a.ClientStatus = "lost" }, time.Second, "its node gpu-0 was lost"},
		"dead": {func(a *api.Allocation) {
			a.TaskStates["shell"].State = "dead"
			a.TaskStates["shell"].Events = []*api.TaskEvent{{Type: api.TaskTerminated, DisplayMessage: "Exit Code: 3"}}
		}, time.Second, "Exit Code: 3. nomad-pal explain s says more"},
	} {
		a := running()
		c.change(a)
		if got := whyEnded(a, 3*time.Second, started.Add(c.after)); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
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
		"shell -class Z":          {2, `application class "Z" is unknown`},
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
