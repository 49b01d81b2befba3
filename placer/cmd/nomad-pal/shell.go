// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpShell = help("shell [options] [--] [<command>...]", `
Runs a command on GPUs, as srun --pty does: it submits a batch job, reports on standard
error what the job waits for, and attaches your terminal to the command once the job has
its GPUs. Without a command it runs bash, or sh if there is no bash. Without a terminal the
command reads standard input, and its standard output and standard error stay apart.

The job ends with the session: when the command ends, on Ctrl-C while the job waits, and
when the terminal is closed. If nomad-pal is killed or loses the connection, the job ends
by itself a minute later. The job always ends at its -time limit.

The drivers raw_exec and exec show the command all GPUs of the node. With them,
CUDA_VISIBLE_DEVICES limits CUDA programs to the session's GPUs.

The job is not preempted and not moved (pal_preempt, pal_migrate). If its node fails or is
drained, the session ends, and you are told why.

Exit codes: the command's own; otherwise 1 an error; 2 the job cannot start as it is; 3 no
placer is active; 130 interrupted while waiting; 255 the session was cut off.

Shell Options:

  -gpus=<n>                GPUs, all on one node. Default: 1.
  -class=<A-D>             The application class (pal_class). Default: the agent's default_class.
  -time=<duration>         The time limit, as in 90m, 2d or 1-12:00:00. Default: 2h.
  -image=<image>           A docker image; it needs sh, sleep and date.
  -driver=<driver>         Nomad's task driver. Default: with -image, docker; otherwise
                           raw_exec if a client has this driver, else exec.
  -cpu=<MHz>               Default: 1000.
  -memory=<MB>             Default: 4096.
  -node-pool=<pool>        Default: default.
  -job=<name>              The job's name. Default: shell-<user>-<random>.
  -meta=<key>=<value>      A hint for the placer, or other meta; may be given several times.
`, examples(
	"Two GPUs for two hours:", "nomad-pal shell -gpus 2 -class A -time 2h -- bash",
	"One GPU, in a docker image:", "nomad-pal shell -image nvcr.io/nvidia/pytorch:25.10-py3 -- python",
	"In a script:", "nomad-pal shell -gpus 1 -- python check.py",
), generalOptions)

const (
	exitInterrupted = 130
	exitBroken      = 255
)

// anyShell is the command that runs if the user names none.
var anyShell = []string{"/bin/sh", "-c", "command -v bash > /dev/null && exec bash; exec sh"}

func runShell(b *base, args []string) int {
	fs := b.only(b.flags("shell"))
	o := shellOptions{limit: 2 * time.Hour}
	fs.IntVar(&o.gpus, "gpus", 1, "")
	fs.StringVar(&o.class, "class", "", "")
	limit := fs.String("time", "", "")
	fs.StringVar(&o.image, "image", "", "")
	fs.StringVar(&o.driver, "driver", "", "")
	fs.IntVar(&o.cpu, "cpu", 1000, "")
	fs.IntVar(&o.memory, "memory", 4096, "")
	fs.StringVar(&o.pool, "node-pool", "default", "")
	fs.StringVar(&o.job, "job", shellName(), "")
	fs.Var(&o.meta, "meta", "")
	command, ok := b.parse(fs, args, anyWords)
	if !ok {
		return 1
	}
	if o.gpus < 1 {
		return b.fail(fmt.Errorf("-gpus %d: a session has at least one GPU", o.gpus))
	}
	if *limit != "" {
		d, err := rewrite.ParseSpan(*limit)
		if err != nil || d < time.Second {
			return b.fail(fmt.Errorf("-time %q: %w", *limit, cmp.Or(err, errors.New("it is less than a second"))))
		}
		o.limit = d
	}
	if len(command) == 0 {
		command = anyShell
	}
	var stop context.CancelFunc
	b.ctx, stop = signal.NotifyContext(b.ctx, syscall.SIGHUP) // a closed terminal also ends the session
	defer stop()
	return shell(b, o, command)
}

// shell submits the session's job, waits until it runs, runs the command in it, and stops the job.
func shell(b *base, o shellOptions, command []string) int {
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
	o.driver = shellDriver(b, client, o)
	job, err := o.shellJob(b.namespace)
	if err != nil {
		return b.fail(err)
	}
	if was, err := client.Job(b.ctx, cluster.KeyOf(job)); err != nil || was != nil && !cluster.Dead(was) {
		return b.fail(cmp.Or(err, fmt.Errorf("a job %q exists already", o.job)))
	}
	if err := sayUser(b, client, job); err != nil {
		return b.fail(err)
	}
	gated, err := gateForRun(job)
	if err != nil {
		b.fail(err)
		return 2
	}
	if _, err := register(b, client, gated, &api.RegisterOptions{}); err != nil {
		if nomad.StatusOf(err) == 0 { // without an answer, Nomad may have registered the job
			endShell(b, client, job)
		}
		return notRegistered(b, client, job, err)
	}
	defer endShell(b, client, job)
	return attend(b, a, o, job, command)
}

// endWithin is the time limit for stopping the job.
const endWithin = 20 * time.Second

// endShell stops the session's job.
func endShell(b *base, client *nomad.Client, job *api.Job) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), endWithin)
	defer cancel()
	if err := client.Deregister(ctx, cluster.KeyOf(job), false); err != nil {
		b.complain(fmt.Sprintf("Job %q could not be stopped; it ends by itself within %s: %v", *job.ID, 2*sessionGrace, err))
	}
}

// attend waits until the session's job runs, and then runs the command in it.
func attend(b *base, a *answers, o shellOptions, job *api.Job, command []string) int {
	told := *b
	told.io.out = b.io.err // standard output is reserved for the command
	e, _, err := told.awaitStart(a, cluster.KeyOf(job))
	switch {
	case b.ctx.Err() != nil:
		b.complain(fmt.Sprintf("Interrupted: job %q is stopped.", *job.ID))
		return exitInterrupted
	case err != nil:
		return b.fail(err)
	case refusedToStart(e):
		told.say(plain, e.Headline(time.Now()))
		return 2
	}
	s, err := newSession(b, o, job)
	if err != nil {
		return b.fail(err)
	}
	gpus := ""
	if len(e.Allocations) > 0 && len(e.Allocations[0].GPUs) > 0 {
		gpus = " with " + firstOf(e.Allocations[0].GPUs)
	}
	told.say(plain, fmt.Sprintf("Job %q runs on node %s%s. It ends with this session, at the latest %s.", *job.ID, s.alloc.NodeName, gpus, clock(time.Now().Add(o.limit))))
	code, err := s.run(command)
	if err == nil && code > 128 { // killed by a signal, perhaps because the job ended
		if why := s.ended(b.ctx); why != "" {
			err = errors.New(why)
		}
	}
	switch {
	case b.ctx.Err() != nil:
		return exitInterrupted
	case err != nil:
		b.complain("Error: " + s.broken(err).Error())
		return exitBroken
	}
	return code
}

// toldWithin is how long to wait, after a session was cut off, until Nomad can explain why.
const toldWithin = 5 * time.Second

// broken explains why a session ended before its command.
func (s *session) broken(cause error) error {
	if nomad.Refused(cause) {
		return fmt.Errorf("the session was refused: %w", nomad.Denied(cause, nomad.ExecAlloc))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.b.ctx), toldWithin)
	defer cancel()
	for ; ctx.Err() == nil; pause(ctx, 500*time.Millisecond) {
		if why := s.ended(ctx); why != "" {
			return fmt.Errorf("the session ended: %s", why)
		}
	}
	return fmt.Errorf("the session broke off: %w", cause)
}

// ended returns why the session's job has ended or is about to end; "" if Nomad knows no reason.
func (s *session) ended(ctx context.Context) string {
	a, _, err := s.api.Allocations().Info(s.alloc.ID, (&api.QueryOptions{Namespace: s.alloc.Namespace}).WithContext(ctx))
	if err != nil {
		return ""
	}
	return whyEnded(a, s.limit, time.Now())
}

// whyEnded returns why a session's allocation has ended or is about to end; "" for no reason.
func whyEnded(a *api.Allocation, limit time.Duration, now time.Time) string {
	t := cmp.Or(a.TaskStates["shell"], &api.TaskState{})
	// shellKeeper counts whole seconds from the start of the task, which can be long before the
	// session attaches.
	nearly := t.StartedAt.Add(limit - min(5*time.Second, limit/2))
	switch {
	case a.DesiredStatus == api.AllocDesiredStatusEvict:
		return "Nomad preempted its job for one of higher priority: " + a.DesiredDescription
	case a.ClientStatus == api.AllocClientStatusLost:
		return fmt.Sprintf("its node %s was lost", a.NodeName)
	case a.DesiredTransition.ShouldMigrate():
		return fmt.Sprintf("its node %s is being drained", a.NodeName)
	case a.DesiredStatus == api.AllocDesiredStatusStop:
		return fmt.Sprintf("its job was stopped (%s)", cmp.Or(a.DesiredDescription, "Nomad gives no reason"))
	case !t.StartedAt.IsZero() && !now.Before(nearly):
		return fmt.Sprintf("its time limit of %s is reached", limit)
	case t.State == "dead":
		return fmt.Sprintf("%s. %s says more", lastEvent(t, api.TaskTerminated, api.TaskDriverFailure, api.TaskKilled),
			query.ExplainCommand(cluster.JobKey{Namespace: a.Namespace, ID: a.JobID}))
	}
	return ""
}

// lastEvent looks for events of the given kinds, one kind after the other. For the first kind
// found, lastEvent returns Nomad's message about the last event.
func lastEvent(s *api.TaskState, kinds ...string) string {
	for _, k := range kinds {
		for _, e := range slices.Backward(s.Events) {
			if e.Type == k && e.DisplayMessage != "" {
				return e.DisplayMessage
			}
		}
	}
	return "Nomad gives no reason"
}
