// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// running is one process of an agent or a placer; nil if the process was never started.
type running struct {
	name    string
	process *os.Process
	exited  chan struct{} // closed once the process is reaped
}

// spawn starts a command on a host, with its output in a log file. The command has its own process
// group, so that the terminal's Ctrl-C reaches only the owner, who then ends all processes in
// order.
func (c *Cluster) spawn(name, host string, cmd *exec.Cmd, logPath string) (*running, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := c.network.within(host, cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	r := &running{name: name, process: cmd.Process, exited: make(chan struct{})}
	c.reapers.Go(func() {
		defer close(r.exited)
		_ = cmd.Wait() // its log says how it ended
	})
	return r, nil
}

func (r *running) alive() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// pid returns the process id, 0 if the process does not run.
func (r *running) pid() int {
	if r.alive() {
		return r.process.Pid
	}
	return 0
}

func (r *running) signal(sig syscall.Signal) error {
	if !r.alive() {
		return fmt.Errorf("sending %v: it does not run", sig)
	}
	if err := r.process.Signal(sig); err != nil && r.alive() {
		return fmt.Errorf("sending %v to %s: %w", sig, r.name, err)
	}
	return nil
}

// end sends a signal to the process, if it runs, and waits for its end.
func (r *running) end(ctx context.Context, sig syscall.Signal) error {
	if !r.alive() {
		return nil
	}
	if err := r.signal(sig); err != nil && r.alive() {
		return err
	}
	return r.wait(ctx)
}

func (r *running) wait(ctx context.Context) error {
	select {
	case <-r.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to end: %w", r.name, context.Cause(ctx))
	}
}

// readFrom returns a log's text from an offset on, "" if the log cannot be read.
func readFrom(path string, offset int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return ""
	}
	text, _ := io.ReadAll(f)
	return string(text)
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
