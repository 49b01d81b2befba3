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

// process identifies one process; a process id alone may be reused.
type process struct {
	pid   int
	began string // in ticks since the machine started
}

// began is when a process began, "" if it has ended.
func began(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])); len(fields) > 19 {
		return fields[19]
	}
	return ""
}

// A client runs each task through an executor and a logmon, which outlive the
// client. It starts them, lets the executor start the task, and only then writes
// to disk how to reach them: StartTask of drivers/rawexec, runDriver of
// client/allocrunner/taskrunner, as of 1.11.3. If the client is killed in
// between (tenths of a second, more on a busy machine), it does not find them
// after its restart. It runs the task again, and the forgotten ones stay
// forever. TestNomadForgetsExecutors shows that on plain Nomad.
//
// forgotten are the executors and logmons that are missing from the state of a
// killed client.
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

// runs reports whether a process is Nomad with this subcommand.
func runs(proc, command string) bool {
	cmdline, _ := os.ReadFile(proc + "/cmdline")
	args := strings.Split(string(cmdline), "\x00")
	return len(args) > 1 && args[1] == command
}

// attended are the process ids in a client's state. nomad operator client-state
// omits tasks whose executor is not in the state, with their logmon.
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

// short is a job without GPUs whose four tasks end at once.
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
// what [TestPlacerChaos] tolerates: a client that is killed while it starts tasks
// leaves executors, even after the jobs are complete, purged and garbage
// collected. Only processes that the client has forgotten are left.
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
				// Tries differ in how far the start has come.
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
		t.Logf("try %d: %d processes forgotten when the client was killed, %d left over from all tries", try, len(found), left)
		if left > 0 {
			return
		}
	}
	t.Skipf("this Nomad left nothing over in %d tries: does TestPlacerChaos still need its exemption?", tries)
}

// doneAndGone waits for the end of a job's only group and purges the job.
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

// untilAttended waits until only forgotten attendants are left, gives these
// some seconds to end, and counts them.
func (b *bed) untilAttended(client *cluster.Agent, lost map[process]bool) int {
	b.t.Helper()
	left, end := 0, time.Now().Add(3*time.Second)
	b.until("the processes that the client knew have ended", func() string {
		left = 0
		for _, p := range attendants(client.Dir) {
			if !lost[p] {
				return fmt.Sprintf("process %d still runs, and was not forgotten", p.pid)
			}
			left++
		}
		if left > 0 && time.Now().Before(end) {
			return fmt.Sprintf("%d still run", left)
		}
		return ""
	})
	return left
}
