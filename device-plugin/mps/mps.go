// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package mps asks whether NVIDIA's MPS control daemon answers, and names the variables that a task
// needs to use the daemon. The daemon is a service of the node, which the plugin neither starts nor
// stops.
//
// Tasks reach the daemon through its pipe directory. A task may be hostile, so this package opens
// no file in that directory, limits the time and the output of the program that it runs, and passes
// on no environment.
package mps

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Variables of a task that uses MPS, as NVIDIA documents them.
const (
	EnvPipe    = "CUDA_MPS_PIPE_DIRECTORY"
	EnvThreads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	EnvMemory  = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
)

// NoDaemon is the health reason of a GPU whose control daemon does not answer.
const NoDaemon = "mps-daemon"

// Program is NVIDIA's control program, found on PATH. The program is both the daemon and its client.
const Program = "nvidia-cuda-mps-control"

// answersWithin is the maximum time of a question to the daemon.
const answersWithin = 5 * time.Second

// Answers returns an error unless the control daemon with this pipe directory answers.
func Answers(ctx context.Context, pipe string) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var said limited
	cmd := exec.CommandContext(ctx, Program)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{EnvPipe + "=" + pipe}, "/", time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("get_server_list\n"), &said, &said
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", answersWithin)
	}
	if err != nil {
		return fmt.Errorf("asking the MPS control daemon with pipe directory %s: %w %s", pipe, err, strings.TrimSpace(string(said.said)))
	}
	return nil
}

// limited keeps the first bytes that a program writes, and drops the rest.
type limited struct{ said []byte }

// mostSaid is the maximum number of bytes of a program's output in an error.
const mostSaid = 400

func (l *limited) Write(p []byte) (int, error) {
	l.said = append(l.said, p[:min(mostSaid-len(l.said), len(p))]...)
	return len(p), nil
}
