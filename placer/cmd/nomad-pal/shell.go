// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/term"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpShell = help("shell [options] [--] [<command>...]", `
Runs a command on GPUs, as srun --pty does. It submits a batch job, waits for its GPUs, and
runs the command there, by default bash or sh. The job ends with the command, or a minute
after the connection is lost.

The exit code is the command's, or 2: the job cannot start as it is; 3: no agent is active;
130: interrupted while waiting; 255: the session was cut off.

Shell Options:

  -gpus=<n>                GPUs, all on one node. Default: 1.
  -time=<duration>         The time limit, as in 90m, 2d or 1-12:00:00. Default: 2h.
  -image=<image>           A docker image with sh, sleep and date. Default: no container.
  -job=<name>              The job's name. Default: shell-<user>-<random>.
  -var=<name>=<value>      cpu (MHz, 1000), memory (MB, 4096), node_pool, or meta, as in
                           'meta={pal_class="A"}'. May be given several times.
`, examples(
	"Two GPUs for four hours:", "nomad-pal shell -gpus 2 -time 4h -- bash",
), generalOptions)

const (
	exitInterrupted = 130
	exitBroken      = 255
	// commandScript runs the session's command, with the terminal's type in $1. The drivers raw_exec
	// and exec hide no GPUs, so it sets CUDA_VISIBLE_DEVICES.
	commandScript = `export TERM="$1" CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-$NVIDIA_VISIBLE_DEVICES}"; shift; exec "$@"`
	// beatScript is a heartbeat for the job's script, shell.nomad.hcl. Nomad's drivers do not end a
	// session whose client is gone.
	beatScript = `date +%s > "$NOMAD_TASK_DIR/heartbeat"`
)

// shellJob is what a session asks for. The other values are variables of its jobspec.
type shellJob struct {
	job, image, driver string
	jobFlags
}

func runShell(b *base, args []string) int {
	fs := b.flagsWithoutJSON("shell")
	v := shellJob{driver: "exec"}
	gpus, limit := fs.Uint("gpus", 1, ""), fs.String("time", "2h", "")
	fs.StringVar(&v.image, "image", "", "")
	fs.StringVar(&v.job, "job", fmt.Sprintf("shell-%s-%08x", cmp.Or(os.Getenv("USER"), "user"), rand.Uint32()), "")
	fs.Var(&v.vars, "var", "")
	command, ok := b.parse(fs, args, anyWords)
	if !ok {
		return 1
	}
	if len(command) == 0 {
		command = []string{"/bin/sh", "-c", "command -v bash > /dev/null && exec bash; exec sh"}
	}
	span, err := rewrite.ParseSpan(*limit)
	if err != nil {
		return b.fail(fmt.Errorf("-time %s: %w", *limit, err))
	}
	v.vars = append(v.vars, fmt.Sprintf("gpus=%d", *gpus), fmt.Sprintf("seconds=%.0f", span.Seconds()))
	ctx, stop := signal.NotifyContext(b.ctx, syscall.SIGHUP) // the terminal is closed
	defer stop()
	b.ctx = ctx
	a, err := b.ask() // fails early, before a job is submitted
	if err != nil {
		return b.fail(err)
	}
	if a.activity.Idle() {
		return a.close(0)
	}
	nodes, _, err := a.nomad.API().Nodes().List((&api.QueryOptions{}).WithContext(b.ctx))
	if err == nil && slices.ContainsFunc(nodes, func(n *api.NodeListStub) bool { return firstHealthy(n.Drivers, "raw_exec") != "" }) {
		v.driver = "raw_exec"
	}
	job, err := v.parse(b.namespace)
	if err == nil {
		err = sayUser(b, a.nomad, job)
	}
	if err != nil {
		return b.fail(err)
	}
	return shell(b, a, job, command)
}

// shell submits the session's job, and runs the command in it.
func shell(b *base, a *answers, job *api.Job, command []string) int {
	gated, err := gateForRun(job)
	if err != nil {
		b.fail(err)
		return 2
	}
	k := cluster.KeyOf(job)
	once := &api.RegisterOptions{EnforceIndex: true} // replaces an ended job of this name, but none that runs or waits
	if was, err := a.nomad.Job(b.ctx, k); err == nil && was != nil && cluster.Ended(was) {
		once.ModifyIndex = *was.JobModifyIndex
	}
	if _, err := register(b, a.nomad, gated, once); err != nil {
		return notRegistered(b, a.nomad, job, err) // without an answer, the job may run; it ends a minute after its start
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 20*time.Second)
		defer cancel()
		if err := a.nomad.Deregister(ctx, k, false); err != nil {
			b.io.complain(fmt.Sprintf("Job %q could not be stopped; it ends by itself: %v", k.ID, err))
		}
	}()
	told := *b
	told.io.out = b.io.err // standard output is reserved for the command
	e, _, err := told.awaitStart(a, k)
	switch {
	case b.ctx.Err() != nil:
		b.io.complain(fmt.Sprintf("Interrupted: job %q is stopped.", k.ID))
		return exitInterrupted
	case err != nil:
		return b.fail(err)
	case refusedToStart(e) || len(e.Allocations) == 0:
		told.io.say(plain, e.Headline(time.Now()))
		return 2
	}
	on := e.Allocations[0]
	told.io.say(plain, fmt.Sprintf("Job %q runs on node %s with %s.", k.ID, on.Node, firstOf(on.GPUs)))
	code, err := session(b, &api.Allocation{ID: on.ID, Namespace: k.Namespace}, command)
	if err != nil {
		b.io.complain("Error: the session was cut off: " + nomad.Denied(err, nomad.ExecAlloc).Error())
		return exitBroken
	}
	return code
}

func (v shellJob) parse(namespace string) (*api.Job, error) {
	text, err := initFiles.ReadFile("initfiles/shell.nomad.hcl")
	if err != nil {
		return nil, err
	}
	job, _, err := v.jobFlags.parse("shell.nomad.hcl", text)
	if err != nil {
		return nil, unplaced{err}
	}
	job.ID = &v.job
	job.Name = &v.job
	job.Namespace = &namespace
	task := job.TaskGroups[0].Tasks[0]
	task.Driver = v.driver
	if v.image != "" {
		task.Driver = "docker"
		task.Config = map[string]any{"image": v.image, "entrypoint": []any{"/bin/sh"}, "args": task.Config["args"]} // not the image's entry point
	}
	cluster.Canonicalize(job)
	return job, nil
}

// session runs a command in the session's task, and returns its exit code. If this process has a
// terminal, so has the command. Meanwhile, session sends heartbeats to the job.
func session(b *base, alloc *api.Allocation, command []string) (int, error) {
	client, err := api.NewClient(b.config()) // without a deadline, because sessions can stay open for long
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	query := &api.QueryOptions{Namespace: alloc.Namespace}
	go func() {
		for ; ctx.Err() == nil; pause(ctx, 10*time.Second) {
			once, done := context.WithTimeout(ctx, 10*time.Second)
			_, _ = client.Allocations().Exec(once, alloc, "shell", false, []string{"/bin/sh", "-c", beatScript}, strings.NewReader(""), io.Discard, io.Discard, nil, query)
			done()
		}
	}()
	command = append([]string{"/bin/sh", "-c", commandScript, "sh", cmp.Or(os.Getenv("TERM"), "dumb")}, command...)
	in, out := terminalOf(b.io.in), terminalOf(b.io.raw())
	if in == nil || out == nil {
		return client.Allocations().Exec(ctx, alloc, "shell", false, command, b.io.in, b.io.raw(), unquoted(b.io.err), nil, query)
	}
	was, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return 0, fmt.Errorf("making the terminal raw: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), was) }() // the terminal may already be closed
	sizes := make(chan api.TerminalSize, 1)
	go func() {
		for ; ctx.Err() == nil; pause(ctx, time.Second) {
			width, height, err := term.GetSize(int(out.Fd()))
			if err == nil && len(sizes) == 0 {
				sizes <- api.TerminalSize{Width: width, Height: height}
			}
		}
	}()
	return client.Allocations().Exec(ctx, alloc, "shell", true, command, in, out, out, sizes, query)
}
