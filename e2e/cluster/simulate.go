// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// Simulated are nodes that one process simulates (bench/simnodes).
type Simulated struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	last Played        // valid once done is closed
}

// Played counts what the simulated nodes have done so far.
type Played struct {
	Phase                                           string
	Registered, Running, Completed, Stopped, Errors int
	LastError                                       string `json:"last_error"`
}

// Simulate starts the program binary (bench/simnodes) with n nodes and further flags, and returns
// when all nodes are registered. When the cluster ends, the nodes end, too.
func (c *Cluster) Simulate(ctx context.Context, binary string, n int, flags ...string) (*Simulated, error) {
	s := &Simulated{done: make(chan struct{})}
	s.cmd = exec.Command(binary, append([]string{"-server", c.Servers()[0].RPCAddr(), "-nodes", strconv.Itoa(n)}, flags...)...)
	s.cmd.Env, s.cmd.Stderr = append(os.Environ(), c.Env()...), os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting simnodes: %w", err)
	}
	playing := make(chan struct{})
	c.reapers.Go(func() {
		defer close(s.done)
		s.follow(out, playing)
		_ = s.cmd.Wait() // its output says how it ended
	})
	select {
	case <-playing:
		return s, nil
	case <-s.done:
		return nil, fmt.Errorf("simnodes ended: %+v", s.Kill())
	case <-ctx.Done():
		s.Kill()
		return nil, fmt.Errorf("waiting until simnodes plays: %w", context.Cause(ctx))
	}
}

func (s *Simulated) follow(out io.Reader, playing chan<- struct{}) {
	lines := bufio.NewScanner(out)
	for before := ""; lines.Scan(); before = s.last.Phase {
		if err := json.Unmarshal(lines.Bytes(), &s.last); err != nil {
			s.last.Phase = err.Error()
		}
		if s.last.Phase == "playing" && before != "playing" {
			close(playing)
		}
	}
}

// PID returns the program's process id.
func (s *Simulated) PID() int { return s.cmd.Process.Pid }

// Kill ends the nodes as a crash would, and returns the final counts.
func (s *Simulated) Kill() Played { return s.end(syscall.SIGKILL) }

// Stop ends the nodes as Ctrl-C would, and returns the final counts.
func (s *Simulated) Stop() Played { return s.end(syscall.SIGINT) }

func (s *Simulated) end(sig syscall.Signal) Played {
	_ = s.cmd.Process.Signal(sig) // the process may have ended
	<-s.done
	return s.last
}
