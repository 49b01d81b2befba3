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

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
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
// forever, also on plain Nomad.
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
