// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/term"
)

// session is a session of nomad-pal shell, which runs a command in the job that holds the session's
// GPUs.
type session struct {
	b     *base
	api   *api.Client
	alloc *api.Allocation
	limit time.Duration
	// seesAll is not empty if the task's driver hides none of the node's GPUs.
	seesAll string
}

// newSession finds the running allocation of the session's job.
func newSession(b *base, o shellOptions, job *api.Job) (*session, error) {
	client, err := b.nodeAPI()
	if err != nil {
		return nil, err
	}
	q := (&api.QueryOptions{Namespace: *job.Namespace}).WithContext(b.ctx)
	all, _, err := client.Jobs().Allocations(*job.ID, false, q)
	if err != nil {
		return nil, fmt.Errorf("listing the allocations of job %q: %w", *job.ID, err)
	}
	for _, a := range all {
		if a.ClientStatus == api.AllocClientStatusRunning {
			found := &api.Allocation{ID: a.ID, NodeID: a.NodeID, NodeName: a.NodeName, Namespace: a.Namespace, JobID: a.JobID, TaskGroup: a.TaskGroup}
			s := &session{b: b, api: client, alloc: found, limit: o.limit}
			if o.driver == "raw_exec" || o.driver == "exec" {
				s.seesAll = o.driver
			}
			return s, nil
		}
	}
	return nil, fmt.Errorf("job %q has ended before the session began", *job.ID)
}

// errSilent means that the session could not send heartbeats to its job for so long that the job
// has ended.
var errSilent = errors.New("Nomad did not answer for " + sessionGrace.String() + ", and the job has ended")

// commandScript starts the session's command. $1 is the type of the terminal, or - without a
// terminal. If $2 is not -, the command sees all GPUs of the node. CUDA_VISIBLE_DEVICES then
// limits the command to the session's GPUs, unless the operator has set the variable.
const commandScript = `[ "$1" = - ] || { TERM=$1; export TERM; }
[ "$2" = - ] || { CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$NVIDIA_VISIBLE_DEVICES}; export CUDA_VISIBLE_DEVICES; }
shift 2
exec "$@"`

// run runs the command and returns its exit code. If this process has a terminal, the command also
// gets a terminal.
func (s *session) run(command []string) (int, error) {
	ctx, cancel := context.WithCancelCause(s.b.ctx)
	defer cancel(nil)
	go s.beat(ctx, cancel)
	started := func(term string) []string { // Nomad's docker driver drops empty arguments
		return append([]string{"/bin/sh", "-c", commandScript, "sh", cmp.Or(term, "-"), cmp.Or(s.seesAll, "-")}, command...)
	}
	in, out := terminalOf(s.b.io.in), terminalOf(s.b.raw())
	if in == nil || out == nil {
		return s.exec(ctx, started(""), s.b.io.in, s.b.raw(), s.b.rawErr(), nil)
	}
	was, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return 0, fmt.Errorf("making the terminal raw: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), was) }() // the terminal may already be closed
	return s.exec(ctx, started(os.Getenv("TERM")), in, out, out, sizes(ctx, out))
}

// exec runs a command in the session's task. If sizes is not nil, the command gets a terminal.
func (s *session) exec(ctx context.Context, command []string, in io.Reader, out, err io.Writer, sizes <-chan api.TerminalSize) (int, error) {
	q := &api.QueryOptions{Namespace: s.alloc.Namespace}
	code, failed := s.api.Allocations().Exec(ctx, s.alloc, "shell", sizes != nil, command, in, out, err, sizes, q)
	if cause := context.Cause(ctx); failed != nil && cause != nil {
		failed = cause
	}
	return code, failed
}

// beat sends the session's heartbeat to the job until ctx ends. If heartbeats fail for longer than
// sessionGrace, the job ends itself, so beat ends the session.
func (s *session) beat(ctx context.Context, end context.CancelCauseFunc) {
	heard := time.Now()
	for n := 1; ctx.Err() == nil; n++ {
		once, cancel := context.WithTimeout(ctx, sessionBeat)
		code, err := s.exec(once, []string{"/bin/sh", "-c", sessionFile, "sh", strconv.Itoa(n)}, strings.NewReader(""), io.Discard, io.Discard, nil)
		cancel()
		switch {
		case err == nil && code == 0:
			heard = time.Now()
		case time.Since(heard) > sessionGrace:
			end(errSilent)
		}
		pause(ctx, sessionBeat)
	}
}

// terminalOf returns a reader or writer as a file if it is a terminal, otherwise nil.
func terminalOf(of any) *os.File {
	if f, ok := of.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// sizes returns a channel with the terminal's size now and after each change.
func sizes(ctx context.Context, of *os.File) <-chan api.TerminalSize {
	changed, out := make(chan os.Signal, 1), make(chan api.TerminalSize, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		defer signal.Stop(changed)
		for {
			if width, height, err := term.GetSize(int(of.Fd())); err == nil {
				select {
				case out <- api.TerminalSize{Width: width, Height: height}:
				case <-ctx.Done():
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// pause waits for the duration d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
