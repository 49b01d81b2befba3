// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// process is one process; its id alone may be given to another later.
type process struct {
	pid   int
	began string // in ticks since the machine started
}

// began is the time when a process began, "" if it is gone.
func began(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])); len(fields) > 19 {
		return fields[19]
	}
	return ""
}

// A client runs each task by an executor and a logmon, which outlive it. It
// starts them, and has the executor start the task, and writes to disk only then
// how to reach them: StartTask of drivers/rawexec, runDriver of
// client/allocrunner/taskrunner, as of 1.11.3. A client that is killed in
// between, within tenths of a second and more on a busy machine, does not find
// them when it is back: it runs the task again, and what it has forgotten stays
// forever. TestNomadForgetsExecutors shows that on plain Nomad.
//
// forgotten are the ones that run while their client does not, and that are not
// in what it has written down.
func forgotten(ctx context.Context, nomad string, client *cluster.Agent) ([]process, error) {
	running := attendants(client.Dir)
	if len(running) == 0 {
		return nil, nil
	}
	state, err := exec.CommandContext(ctx, nomad, "operator", "client-state", filepath.Join(client.Dir, "data", "client")).Output()
	if err != nil {
		return nil, fmt.Errorf("reading the state of client %s: %w", client.Name, err)
	}
	written, err := attended(state)
	if err != nil {
		return nil, fmt.Errorf("reading the state of client %s: %w", client.Name, err)
	}
	return slices.DeleteFunc(running, func(p process) bool { return written[p.pid] }), nil
}

// attendants are the executors and logmons that a client in dir has started.
func attendants(dir string) []process {
	var out []process
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		if cwd, _ := os.Readlink(p + "/cwd"); cwd == dir && (runs(p, "executor") || runs(p, "logmon")) {
			out = append(out, process{pidOf(p), began(pidOf(p))})
		}
	}
	return out
}

// runs reports whether a process is Nomad with that command.
func runs(proc, command string) bool {
	cmdline, _ := os.ReadFile(proc + "/cmdline")
	args := strings.Split(string(cmdline), "\x00")
	return len(args) > 1 && args[1] == command
}

// attended are the process ids in a client's state. Nomad's command leaves out
// tasks whose executor is not in it, with their logmon.
func attended(state []byte) (map[int]bool, error) {
	var s struct {
		Allocations map[string]struct {
			Tasks map[string]struct {
				LocalState struct {
					Hooks map[string]struct{ Data map[string]string }
				}
				DriverState struct{ ReattachConfig struct{ Pid int } }
			}
		}
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return nil, err
	}
	pids := map[int]bool{}
	for _, a := range s.Allocations {
		for _, t := range a.Tasks {
			var logmon struct{ Pid int }
			if text := t.LocalState.Hooks["logmon"].Data["reattach_config"]; text != "" {
				if err := json.Unmarshal([]byte(text), &logmon); err != nil {
					return nil, err
				}
			}
			pids[logmon.Pid], pids[t.DriverState.ReattachConfig.Pid] = true, true
		}
	}
	delete(pids, 0)
	return pids, nil
}

func TestAttended(t *testing.T) {
	t.Parallel()
	got, err := attended([]byte(`{"Allocations": {
		"a": {"Tasks": {"main": {"LocalState": {"Hooks": {"logmon": {"Data": {"reattach_config": "{\"Pid\":11}"}}}}, "DriverState": {"ReattachConfig": {"Pid": 12}}}}},
		"b": {"Tasks": {"main": {"LocalState": null, "DriverState": null}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[int]bool{11: true, 12: true}, got); d != "" {
		t.Errorf("processes (-want +got):\n%s", d)
	}
}

// short is a job without GPUs, of four tasks that end at once.
const short = `job %q {
  type = "batch"
  group "g" {
    count = 4
    task "t" {
      driver = "raw_exec"
      config {
        command = "sleep"
        args    = ["1"]
      }
      resources {
        cpu    = 20
        memory = 10
      }
    }
  }
}`

// TestNomadForgetsExecutors shows on plain Nomad, without placer, plugin or GPUs,
// what the fault run exempts: a client that is killed while it starts tasks
// leaves executors, after the jobs are done, purged and collected. What is left
// is what the client had forgotten, and nothing else.
func TestNomadForgetsExecutors(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{{}}})
	b, client, lost := &bed{Cluster: c, t: t}, c.Clients()[0], map[process]bool{}
	const tries = 8
	for try := range tries {
		id := fmt.Sprintf("short-%d", try)
		if _, _, err := c.API().Jobs().Register(b.parse(fmt.Sprintf(short, id)), nil); err != nil {
			t.Fatal(err)
		}
		b.until("a task is being started", func() string {
			for _, p := range attendants(client.Dir) {
				// Tries differ in how far that has come.
				if proc := fmt.Sprintf("/proc/%d", p.pid); !lost[p] && runs(proc, "executor") && (try%2 == 0 || hasChild(p.pid)) {
					return ""
				}
			}
			return "no executor"
		})
		if err := client.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		found, err := forgotten(t.Context(), c.Program("nomad"), client)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range found {
			lost[p] = true
		}
		if err := client.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.doneAndGone(id, 4)
		left := b.untilAttended(client, lost)
		t.Logf("try %d: %d processes forgotten when the client was killed, %d left over of all tries", try, len(found), left)
		if left > 0 {
			return
		}
	}
	t.Skipf("this Nomad left nothing over in %d tries: is the fault run's exemption needed still?", tries)
}

// doneAndGone waits for the end of a job's only group and has Nomad forget it.
func (b *bed) doneAndGone(id string, members int) {
	b.t.Helper()
	b.until("the job is done", func() string {
		j, _, err := b.API().Jobs().Summary(id, nil)
		if err != nil {
			return err.Error()
		}
		if s := j.Summary["g"]; s.Complete+s.Failed+s.Lost < members || s.Running+s.Starting+s.Queued > 0 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	b.purge(id)
	if err := b.API().System().GarbageCollect(); err != nil {
		b.t.Fatal(err)
	}
}

// hasChild reports whether an executor has started its task.
func hasChild(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	return slices.ContainsFunc(threads, func(t string) bool {
		children, _ := os.ReadFile(t)
		return len(children) > 0
	})
}

// untilAttended waits until no attendants are left but lost ones, and counts
// these when they had some seconds to end.
func (b *bed) untilAttended(client *cluster.Agent, lost map[process]bool) int {
	b.t.Helper()
	left, end := 0, time.Now().Add(3*time.Second)
	b.until("what the client knew of ends", func() string {
		left = 0
		for _, p := range attendants(client.Dir) {
			if !lost[p] {
				return fmt.Sprintf("process %d is there, and was not forgotten", p.pid)
			}
			left++
		}
		if left > 0 && time.Now().Before(end) {
			return fmt.Sprintf("%d are there", left)
		}
		return ""
	})
	return left
}
