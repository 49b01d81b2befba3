// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package mps runs NVIDIA's MPS control daemons, and reports when a daemon or one of its servers
// has a problem. There is one daemon for each GPU that tasks share by the Multi-Process Service.
//
// The plugin decides which GPUs have a daemon. It watches its own daemons ([Daemon.Own]), and
// starts each at most five times within ten minutes. The plugin only watches a daemon that an
// operator runs. The code follows NVIDIA's documentation, "Multi-Process Service"
// (docs.nvidia.com/deploy/mps) and nvidia-cuda-mps-control(1). The code has not run with a real
// daemon yet.
//
// Every change must keep this rule: a daemon that a task may use outlives the plugin, and the next
// plugin adopts it. Tasks outlive the agent, and a program without a daemon runs without limits.
package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Environment variables of the daemon and its clients.
const (
	EnvPipe    = "CUDA_MPS_PIPE_DIRECTORY"
	EnvLog     = "CUDA_MPS_LOG_DIRECTORY"
	EnvThreads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	EnvMemory  = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
)

// Daemon is the control daemon of a GPU.
type Daemon struct {
	GPU  string `json:"gpu"` // UUID; "" for an operator's daemon, which may serve several GPUs
	Pipe string `json:"pipe"`
	Log  string `json:"log,omitempty"`
	// Control is the name or path of the control program. Own means that the plugin, not an
	// operator, starts and stops the daemon.
	Control string `json:"control"`
	Own     bool   `json:"own"`
	// Threads and MemoryMiB limit each client: percent of the multiprocessors, and memory. 0 means
	// no limit.
	Threads   int   `json:"-"`
	MemoryMiB int64 `json:"-"`
}

// answersWithin is the maximum time for an answer of the control program. Tests allow more time,
// because their machine can be short of CPU time.
var answersWithin = 5 * time.Second

// run starts the control program and writes a command to its standard input.
func (d Daemon) run(ctx context.Context, command string, args ...string) (string, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.Control, args...)
	cmd.Env = append(os.Environ(), EnvPipe+"="+d.Pipe)
	if d.Own {
		cmd.Env = append(cmd.Env, EnvLog+"="+d.Log, "CUDA_VISIBLE_DEVICES="+d.GPU)
	}
	cmd.WaitDelay = time.Second // the daemon may hold the pipes that the program was started with
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(command), &out, &said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.Canceled):
		err = fmt.Errorf("no answer within %s", time.Since(began).Round(100*time.Millisecond))
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil
	}
	if err != nil {
		what := strings.TrimSpace(command)
		if len(args) > 0 {
			what = strings.Join(args, " ")
		}
		text := strings.TrimSpace(out.String() + said.String())
		return "", fmt.Errorf("%s, %q: %w %s", d.Control, what, err, text)
	}
	return out.String(), nil
}

// start starts the daemon in the background.
func (d Daemon) start(ctx context.Context) error {
	for _, dir := range []string{d.Pipe, d.Log} {
		if err := os.MkdirAll(dir, 0o755); err != nil { // clients can run as any user
			return fmt.Errorf("making the directory of the MPS control daemon: %w", err)
		}
	}
	if err := os.RemoveAll(d.used()); err != nil {
		return fmt.Errorf("starting the MPS control daemon: %w", err)
	}
	if _, err := d.run(ctx, "", "-d"); err != nil {
		return fmt.Errorf("starting the MPS control daemon: %w", err)
	}
	return nil
}

// limit sets the limits of clients in a running daemon. Running servers keep their limits.
func (d Daemon) limit(ctx context.Context) error {
	var commands []string
	if d.Threads > 0 {
		commands = append(commands, fmt.Sprintf("set_default_active_thread_percentage %d", d.Threads))
	}
	if d.MemoryMiB > 0 { // the daemon sees only its own GPU, as number 0
		commands = append(commands, fmt.Sprintf("set_default_device_pinned_mem_limit 0 %dM", d.MemoryMiB))
	}
	for _, c := range commands {
		if _, err := d.run(ctx, c+"\n"); err != nil {
			return fmt.Errorf("limiting clients of MPS: %w", err)
		}
	}
	return nil
}

// quit ends the daemon, which first waits for its clients to end.
func (d Daemon) quit(ctx context.Context) error {
	_, err := d.run(ctx, "quit\n")
	return err
}

// pidFile is NVIDIA's file with the daemon's process id.
const pidFile = "nvidia-cuda-mps-control.pid"

// comm is the kernel's name for MPS processes: the first 15 characters of their names.
const comm = "nvidia-cuda-mps"

// runs reports whether the daemon's process is running.
func (d Daemon) runs() bool {
	text, _ := os.ReadFile(filepath.Join(d.Pipe, pidFile)) // without the file, there is no number
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return false
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.TrimSpace(string(name)) == comm && alive(pid)
}

// alive reports whether a process exists and has not ended.
func alive(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))       // without a process, there are no fields
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the fields after the name
	return len(fields) > 0 && string(fields[0]) != "Z"
}

// servers lists the daemon's servers with their client processes. fault is a server in which a
// client's kernel failed; 0 if there is none. This server accepts no client until its present
// clients have ended.
func (d Daemon) servers(ctx context.Context) (clients map[int][]int, fault int, err error) {
	list, err := d.run(ctx, "get_server_list\n")
	if err != nil {
		return nil, 0, err
	}
	clients = map[int][]int{}
	for _, server := range numbers(list) {
		status, err := d.run(ctx, fmt.Sprintf("get_server_status %d\n", server))
		if err != nil {
			return nil, 0, err
		}
		if strings.Contains(strings.ToUpper(status), "FAULT") {
			fault = server
		}
		list, err := d.run(ctx, fmt.Sprintf("get_client_list %d\n", server))
		if err != nil {
			return nil, 0, err
		}
		clients[server] = numbers(list)
	}
	again, err := d.run(ctx, "get_server_list\n")
	if err == nil && again != list {
		err = errMeanwhile
	}
	return clients, fault, err
}

// numbers returns the numbers among the lines of a text.
func numbers(text string) (out []int) {
	for line := range strings.Lines(text) {
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// used returns the path of a file that exists if a task has got a part of the GPU since the
// daemon's start.
func (d Daemon) used() string { return filepath.Join(filepath.Dir(d.Pipe), "used") }

// Use records that a task gets a part of the GPU. A used daemon does not end with the plugin,
// because a program without a daemon has no limits.
func (d Daemon) Use() error {
	if !d.Own {
		return nil
	}
	if err := os.WriteFile(d.used(), nil, 0o644); err != nil {
		return fmt.Errorf("recording that the MPS control daemon is used: %w", err)
	}
	return nil
}

func (d Daemon) isUsed() bool {
	_, err := os.Stat(d.used())
	return err == nil
}
