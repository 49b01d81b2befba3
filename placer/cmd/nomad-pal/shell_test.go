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

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// keeper runs the script of a session's job, beside a process of the session.
func keeper(t *testing.T, vars ...string) (session *exec.Cmd) {
	t.Helper()
	job, err := (shellJob{job: "s", driver: "raw_exec", jobFlags: jobFlags{vars: vars}}).parse("default")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := append(os.Environ(), "NOMAD_TASK_DIR="+dir, "NOMAD_ALLOC_ID="+filepath.Base(t.Name())+"-"+filepath.Base(filepath.Dir(dir)))
	ctx, cancel := patience.Context(t.Context(), patience.Long)
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

// A job ends by itself, and ends the processes of the session, when the heartbeats stop, even if the
// session's processes go on, and when its time is over.
func TestShellKeeper(t *testing.T) {
	t.Parallel()
	for name, vars := range map[string][]string{
		"silent":      {"seconds=1000", "grace=1"},
		"time's over": {"seconds=1", "grace=1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if session := keeper(t, vars...); session.ProcessState.Success() {
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

// The job of a session that runs in an image starts a shell instead of the image's entry point.
func TestShellInImage(t *testing.T) {
	v := shellJob{job: "s", image: "img:1", jobFlags: jobFlags{vars: paths{"gpus=2", "seconds=3600", "node_pool=gpus", `meta={pal_class="A"}`}}}
	job, err := v.parse("team")
	if err != nil {
		t.Fatal(err)
	}
	task := job.TaskGroups[0].Tasks[0]
	got := fmt.Sprintln(*job.Namespace, *job.NodePool, job.Meta["pal_class"], job.Meta["pal_duration"], task.Config["image"], task.Config["entrypoint"], *task.Resources.Devices[0].Count)
	if want := "team gpus A 3600s img:1 [/bin/sh] 2"; strings.TrimSpace(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// An invalid session is refused before it enters the queue. A session that never starts leaves
// nothing in the queue.
func TestShellRefuses(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	for _, want := range []struct {
		args string
		code int
		says string
	}{
		{"shell -gpus 0", 2, "the job requests no GPUs"},
		{"shell -time soon", 1, "-time soon: not a positive duration"},
		{"shell -var rack=1", 1, "Undefined -var variable"},
		{`shell -var meta={pal_class="Z"}`, 2, `application class "Z" is unknown`},
		{"shell -job huge -gpus 5", 2, "huge can never start here as written"},
	} {
		if code, out, said := c.does(strings.Fields(want.args)...); code != want.code || out != "" || !strings.Contains(oneLine(said), want.says) {
			t.Errorf("%s: %d %s%s", want.args, code, out, said)
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

// A session can take the name of a job that has ended.
func TestShellAgain(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort)
	for range 2 {
		if code, _, said := c.does(strings.Fields("shell -job huge -gpus 5")...); code == 0 || strings.Contains(said, "exists") {
			t.Errorf("%d %s", code, said)
		}
	}
}
