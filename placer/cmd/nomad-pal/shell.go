// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/term"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpShell = help("shell [options] [--] [<command>...]", `
Runs a command on GPUs, as srun --pty does. It submits a batch job, reports on standard
error what the job waits for, and runs the command in it, by default bash or sh. The job
ends with the session, and a minute after nomad-pal is killed or loses the connection.

The exit code is the command's; otherwise 2: the job cannot start as it is; 3: no placer
is active; 130: interrupted while waiting; 255: the session was cut off.

Shell Options:

  -gpus=<n>                GPUs, all on one node. Default: 1.
  -time=<duration>         The time limit, as in 90m, 2d or 1-12:00:00. Default: 2h.
  -image=<image>           A docker image; it needs sh, sleep and date. Default: no container.
  -cpu=<MHz>, -memory=<MB>
                           Default: 1000 and 4096.
  -node-pool=<pool>        Default: default.
  -job=<name>              The job's name. Default: shell-<user>-<random>.
  -meta=<key>=<value>      A hint, such as pal_class=A; may be given several times.
`, examples(
	"Two GPUs for four hours:", "nomad-pal shell -gpus 2 -time 4h -- bash",
	"In a docker image:", "nomad-pal shell -image nvcr.io/nvidia/pytorch:25.10-py3 -- python",
), generalOptions)

const (
	exitInterrupted = 130
	exitBroken      = 255
	// sessionBeat is the interval of a session's heartbeats to its job. The job ends if it gets none
	// for sessionGrace.
	sessionBeat  = 10 * time.Second
	sessionGrace = time.Minute
)

// shellJob are the values of the session's jobspec.
type shellJob struct {
	Job, Image, Driver, Pool string
	GPUs, CPU, Memory        int
	Limit                    time.Duration
	Seconds, Grace           int // the limit, and how long the job runs on without a heartbeat
}

func runShell(b *base, args []string) int {
	fs := b.flagsWithoutJSON("shell")
	v, meta := shellJob{Grace: int(sessionGrace.Seconds())}, paths{}
	fs.IntVar(&v.GPUs, "gpus", 1, "")
	limit := fs.String("time", "2h", "")
	fs.StringVar(&v.Image, "image", "", "")
	fs.IntVar(&v.CPU, "cpu", 1000, "")
	fs.IntVar(&v.Memory, "memory", 4096, "")
	fs.StringVar(&v.Pool, "node-pool", "default", "")
	fs.StringVar(&v.Job, "job", fmt.Sprintf("shell-%s-%08x", cmp.Or(os.Getenv("USER"), "user"), rand.Uint32()), "")
	fs.Var(&meta, "meta", "")
	command, ok := b.parse(fs, args, anyWords)
	if !ok {
		return 1
	}
	if len(command) == 0 {
		command = []string{"/bin/sh", "-c", "command -v bash > /dev/null && exec bash; exec sh"}
	}
	var err error
	if v.Limit, err = rewrite.ParseSpan(*limit); err != nil || v.Limit < time.Second {
		return b.fail(fmt.Errorf("-time %q: %w", *limit, cmp.Or(err, errors.New("it is less than a second"))))
	}
	v.Seconds = int(v.Limit.Seconds())
	if v.GPUs < 1 {
		return b.fail(fmt.Errorf("-gpus %d: a session has at least one GPU", v.GPUs))
	}
	var stop context.CancelFunc
	b.ctx, stop = signal.NotifyContext(b.ctx, syscall.SIGHUP) // a closed terminal also ends the session
	defer stop()
	return shell(b, v, meta, command)
}

// shell submits the session's job, and runs the command in it.
func shell(b *base, v shellJob, meta, command []string) int {
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	a, err := b.ask() // fails early, before a job is submitted
	if err != nil {
		return b.fail(err)
	}
	if a.activity.Idle() {
		b.complain(idleSentence(a.activity, time.Now()))
		return exitNoPlacer
	}
	v.Driver = shellDriver(b, client, v.Image)
	job, err := v.parse(b.namespace, meta)
	if err == nil {
		err = sayUser(b, client, job)
	}
	if err != nil {
		return b.fail(err)
	}
	gated, err := gateForRun(job)
	if err != nil {
		b.fail(err)
		return 2
	}
	ended, err := endedIndex(b, client, job)
	if err != nil {
		return b.fail(err)
	}
	if _, err := register(b, client, gated, &api.RegisterOptions{EnforceIndex: true, ModifyIndex: ended}); err != nil {
		return notRegistered(b, client, job, err) // without an answer, the job may run; it ends without heartbeats
	}
	defer endShell(b, client, job)
	return attend(b, a, v, cluster.KeyOf(job), command)
}

// endedIndex returns the modify index of an ended job with the session's name, or 0 if there is none.
// A registration with this index replaces the ended job, but no job that runs or waits.
func endedIndex(b *base, client *nomad.Client, job *api.Job) (uint64, error) {
	was, err := client.Job(b.ctx, cluster.KeyOf(job))
	if err != nil {
		return 0, fmt.Errorf("reading job %q: %w", *job.ID, err)
	}
	if was == nil || !cluster.Ended(was) {
		return 0, nil
	}
	return *was.JobModifyIndex, nil
}

// shellDriver returns docker for an image; otherwise raw_exec if a client has it, or else exec.
func shellDriver(b *base, client *nomad.Client, image string) string {
	if image != "" {
		return "docker"
	}
	nodes, _, err := client.API().Nodes().List((&api.QueryOptions{}).WithContext(b.ctx))
	if err == nil && slices.ContainsFunc(nodes, func(n *api.NodeListStub) bool { return firstHealthy(n.Drivers, "raw_exec") != "" }) {
		return "raw_exec"
	}
	return "exec"
}

func (v shellJob) parse(namespace string, meta []string) (*api.Job, error) {
	t := template.Must(template.New("shell.nomad.hcl.tmpl").Delims("[[", "]]").Funcs(template.FuncMap{"hcl": hclString}).ParseFS(initFiles, "initfiles/shell.nomad.hcl.tmpl"))
	var text strings.Builder
	if err := t.Execute(&text, v); err != nil {
		return nil, err
	}
	job, _, err := (&jobFlags{}).parse("shell.nomad.hcl", []byte(text.String()))
	if err != nil {
		return nil, err
	}
	for _, m := range meta {
		key, value, ok := strings.Cut(m, "=")
		if !ok {
			return nil, fmt.Errorf("-meta %q is not <key>=<value>", m)
		}
		job.SetMeta(key, value)
	}
	job.Namespace = &namespace
	cluster.Canonicalize(job)
	return job, nil
}

// endShell stops the session's job.
func endShell(b *base, client *nomad.Client, job *api.Job) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 20*time.Second)
	defer cancel()
	if err := client.Deregister(ctx, cluster.KeyOf(job), false); err != nil {
		b.complain(fmt.Sprintf("Job %q could not be stopped; it ends by itself: %v", *job.ID, err))
	}
}

// attend waits until the session's job runs, and then runs the command in it.
func attend(b *base, a *answers, v shellJob, k cluster.JobKey, command []string) int {
	told := *b
	told.io.out = b.io.err // standard output is reserved for the command
	e, _, err := told.awaitStart(a, k)
	switch {
	case b.ctx.Err() != nil:
		b.complain(fmt.Sprintf("Interrupted: job %q is stopped.", k.ID))
		return exitInterrupted
	case err != nil:
		return b.fail(err)
	case refusedToStart(e) || len(e.Allocations) == 0:
		told.say(plain, e.Headline(time.Now()))
		return 2
	}
	client, err := b.nodeAPI()
	if err != nil {
		return b.fail(err)
	}
	s := session{b, client, &api.Allocation{ID: e.Allocations[0].ID, Namespace: k.Namespace}}
	told.say(plain, fmt.Sprintf("Job %q runs on node %s with %s. It ends with this session, at the latest %s.", k.ID, e.Allocations[0].Node, firstOf(e.Allocations[0].GPUs), clock(time.Now().Add(v.Limit))))
	code, err := s.run(command)
	if b.ctx.Err() != nil {
		return exitInterrupted
	}
	if err != nil || code > 128 { // killed by a signal, perhaps because the job ended
		if why := s.whyEnded(v.Limit, err); why != "" {
			b.complain("Error: the session ended: " + why)
			return exitBroken
		}
	}
	return code
}

// session runs a command in the job that holds the session's GPUs.
type session struct {
	b     *base
	nomad *api.Client
	alloc *api.Allocation
}

// commandScript starts the session's command, with the terminal type in $1. The drivers raw_exec
// and exec hide no GPUs, so CUDA_VISIBLE_DEVICES limits the command to the session's.
const commandScript = `TERM=$1 CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$NVIDIA_VISIBLE_DEVICES}
export TERM CUDA_VISIBLE_DEVICES
shift
exec "$@"`

// run runs the command and returns its exit code. If this process has a terminal, so has the
// command.
func (s *session) run(command []string) (int, error) {
	ctx, cancel := context.WithCancel(s.b.ctx)
	defer cancel()
	go s.beat(ctx, cancel)
	command = append([]string{"/bin/sh", "-c", commandScript, "sh", cmp.Or(os.Getenv("TERM"), "dumb")}, command...)
	in, out := terminalOf(s.b.io.in), terminalOf(s.b.raw())
	if in == nil || out == nil {
		return s.exec(ctx, command, s.b.io.in, s.b.raw(), s.b.rawErr(), nil)
	}
	was, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return 0, fmt.Errorf("making the terminal raw: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), was) }() // the terminal may already be closed
	return s.exec(ctx, command, in, out, out, sizes(ctx, out))
}

// exec runs a command in the session's task. If sizes is not nil, the command gets a terminal.
func (s *session) exec(ctx context.Context, command []string, in io.Reader, out, err io.Writer, sizes <-chan api.TerminalSize) (int, error) {
	return s.nomad.Allocations().Exec(ctx, s.alloc, "shell", sizes != nil, command, in, out, err, sizes, &api.QueryOptions{Namespace: s.alloc.Namespace})
}

// beat sends heartbeats to the session's job until ctx ends. It ends the session if the job has got
// none for so long that it ends.
func (s *session) beat(ctx context.Context, end context.CancelFunc) {
	for heard := time.Now(); ctx.Err() == nil; pause(ctx, sessionBeat) {
		once, cancel := context.WithTimeout(ctx, sessionBeat)
		code, err := s.exec(once, []string{"/bin/sh", "-c", `date +%s > "$NOMAD_TASK_DIR/heartbeat"`}, strings.NewReader(""), io.Discard, io.Discard, nil)
		cancel()
		if err == nil && code == 0 {
			heard = time.Now()
		} else if time.Since(heard) > sessionGrace {
			end()
		}
	}
}

// whyEnded returns why a session was cut off: err, or what happened to its allocation; "" for
// nothing.
func (s *session) whyEnded(limit time.Duration, err error) string {
	why := ""
	if err != nil {
		why = nomad.Denied(err, nomad.ExecAlloc).Error()
	}
	a, _, err := s.nomad.Allocations().Info(s.alloc.ID, &api.QueryOptions{Namespace: s.alloc.Namespace})
	if err != nil {
		return why
	}
	return cmp.Or(ended(a, limit, time.Now()), why)
}

// ended returns why a session's allocation has ended or is about to end; "" for no reason.
func ended(a *api.Allocation, limit time.Duration, now time.Time) string {
	t := cmp.Or(a.TaskStates["shell"], &api.TaskState{})
	switch {
	case a.ClientStatus == api.AllocClientStatusLost || a.DesiredTransition.ShouldMigrate():
		return fmt.Sprintf("node %s is lost or drained", a.NodeName)
	case a.DesiredStatus != "" && a.DesiredStatus != api.AllocDesiredStatusRun:
		return "Nomad stopped its job: " + cmp.Or(a.DesiredDescription, "no reason given")
	// The job counts whole seconds from the start of its task, which can be long before the session.
	case !t.StartedAt.IsZero() && now.After(t.StartedAt.Add(limit-min(5*time.Second, limit/2))):
		return fmt.Sprintf("its time limit of %s is reached", limit)
	}
	return ""
}

// sizes returns a channel with the terminal's size now and after each change.
func sizes(ctx context.Context, of *os.File) <-chan api.TerminalSize {
	changed, out := make(chan os.Signal, 1), make(chan api.TerminalSize, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	changed <- syscall.SIGWINCH
	go func() {
		defer signal.Stop(changed)
		for ctx.Err() == nil {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			width, height, err := term.GetSize(int(of.Fd()))
			if err != nil {
				continue
			}
			select {
			case out <- api.TerminalSize{Width: width, Height: height}:
			case <-ctx.Done():
			}
		}
	}()
	return out
}
