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
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpRelease = help("release [options] <job> | -all", `
Hands jobs over to Nomad, which alone manages them from then on. A waiting gang is
handed over when it fits: nomad-pal starts all of its members together, and then takes
gate and pins off. A running gang is handed over at once, or when its deployment ends,
and keeps running.

release waits until the jobs are handed over. Ctrl-C ends it: the other jobs then wait in
the queue as before.

Nomad restarts a job whose device blocks change. So a job that nomad-pal has pinned to
GPUs or to a class keeps these constraints, until you run its file again.

Release Options:

  -all                     All jobs that now carry a gate or pins, in the order of the queue, in
                           all namespaces unless -namespace selects one.
  -now                     Take gates off at once, without an agent. Nomad may then start
                           some members of a gang, which hold their GPUs while they wait
                           for room for the others.
`, examples(
	"Leave one job to Nomad:", "nomad-pal release train",
	"Before you remove nomad-pal:", "nomad-pal release -all",
), outputOptions, generalOptions)

func runRelease(b *base, args []string) int {
	fs := b.flags("release")
	all := fs.Bool("all", false, "")
	now := fs.Bool("now", false, "")
	rest, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	if *all && len(rest) > 0 || !*all && len(rest) != 1 {
		return b.fail(fmt.Errorf("give one job, or use -all"))
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	state, err := client.Resync(b.ctx, nil)
	if err != nil {
		return b.fail(err)
	}
	k := (cluster.JobKey{Namespace: b.namespace, ID: strings.Join(rest, "")})
	if !*all && state.Jobs[k] == nil {
		if _, err := client.Job(b.ctx, k); nomad.Refused(err) { // Resync does not list jobs that the token may not see
			return b.fail(err)
		}
		return b.fail(cmp.Or(b.noNamespace(client, b.namespace), fmt.Errorf("%w %q with GPUs in namespace %q", nomad.ErrNoJob, k.ID, k.Namespace)))
	}
	r := &releases{b: b, client: client, now: *now, asked: map[cluster.JobKey]bool{}, refused: map[cluster.JobKey]error{}, released: []string{}}
	r.wants = func(k cluster.JobKey) bool {
		within := k.Namespace == b.namespace || *all && (!b.given("namespace") || b.namespace == api.AllNamespacesNamespace)
		return within && (*all || k.ID == rest[0])
	}
	err = r.run(state)
	if len(r.released) == 0 && err == nil && b.given("namespace") {
		err = b.noNamespace(client, b.namespace)
	}
	code := 0
	if b.json {
		code = b.printJSON(r.released)
	} else if len(r.released) == 0 && err == nil {
		b.io.printf("Nothing to release.\n")
	}
	if len(r.tied) > 0 {
		b.io.complain("Note: Nomad restarts a job whose device blocks change, so the constraints of " + firstOf(r.tied) + " still name GPUs or a class. To remove these constraints, run the job's file again.")
	}
	if err != nil {
		return b.fail(err)
	}
	return code
}

// releases is one call of release.
type releases struct {
	b      *base
	client *nomad.Client
	now    bool
	wants  func(cluster.JobKey) bool
	// left are the jobs that carry a gate or pins. asked are those among them that the agent has been
	// asked to hand over. refused are jobs for which the agent does not accept this order.
	left    []cluster.JobKey
	asked   map[cluster.JobKey]bool
	refused map[cluster.JobKey]error
	// released are the jobs that Nomad alone manages now. tied are those among them that keep
	// constraints of the placer.
	released, tied []string
}

// run releases the jobs. Parameterized and periodic jobs have no members, so the placer is not
// needed for them.
func (r *releases) run(state *cluster.State) error {
	var errs []error
	for _, k := range state.SortedJobs() {
		job := state.Jobs[k]
		if !r.wants(k) || cluster.Ended(job) || !carries(job) {
			continue
		}
		err := r.client.MayRelease(r.b.ctx, job)
		switch {
		case err != nil:
			errs = append(errs, err)
		case r.now || cluster.Template(job):
			errs = append(errs, r.releaseNow(state, k))
		default:
			r.left = append(r.left, k)
		}
	}
	if len(r.left) > 0 {
		errs = append(errs, r.handOver())
	}
	return errors.Join(errs...)
}

// carries reports whether the job has a gate or pins.
func carries(job *api.Job) bool {
	_, pinned := rewrite.Pinned(job)
	return pinned || rewrite.Gated(job)
}

// releaseNow takes gate and pins off a job. If somebody else, such as an active placer, changes the
// job at the same time, releaseNow tries again.
func (r *releases) releaseNow(state *cluster.State, k cluster.JobKey) error {
	job := state.Jobs[k]
	for tries := 1; job != nil && carries(job); tries++ {
		out := rewrite.Author(job)
		if slices.ContainsFunc(state.AllocsOf(k), (*cluster.Alloc).Live) {
			out = rewrite.HandOver(job)
		}
		_, err := r.client.Register(r.b.ctx, out, *job.JobModifyIndex)
		if err == nil {
			r.done(k, out)
			return nil
		}
		if !errors.Is(err, nomad.ErrConflict) || tries == mostReleases {
			return err
		}
		if job, err = r.client.Job(r.b.ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// mostReleases is the maximum number of tries if a job changes during its release.
const mostReleases = 10

// mostAsked is the maximum number of jobs that release asks the agent to hand over at a time. The
// agent keeps these orders in a Nomad variable, whose size is limited.
const mostAsked = 100

// handOver asks the agent to hand over the jobs that are left, and waits until it has done so.
func (r *releases) handOver() error {
	b := r.b
	ctx, stop := signal.NotifyContext(b.ctx, syscall.SIGHUP) // like Ctrl-C, if the terminal is closed
	defer stop()
	b.ctx = ctx
	a, err := b.ask()
	switch {
	case lacksAgent(err):
		return fmt.Errorf("%w\n%s", err, withoutPlacer)
	case err != nil:
		return err
	case a.activity.Idle():
		return noAgent{looked: oneLine(idleSentence(a.activity, time.Now())), next: withoutPlacer, refused: true}
	}
	for said, told := false, false; ; {
		jobs, err := a.Jobs()
		if err == nil {
			err = r.follow(a, jobs)
		}
		switch {
		case b.ctx.Err() != nil:
			return r.interrupted(a)
		case err != nil && !told: // the agent restarts, or another one takes over
			told = true
			b.io.complain("Note: " + err.Error() + "\nTrying again. Ctrl-C ends this command.")
		case err != nil:
		case len(r.left) == 0:
			return nil
		default:
			stuck := r.stuck(jobs)
			if stuck != nil {
				return errors.Join(stuck, r.withdraw(a))
			}
			if !said && !b.json {
				b.io.printf("%s to release. Each waits until it fits, or until its deployment ends: see nomad-pal explain. Ctrl-C ends this command; jobs that still wait then stay in nomad-pal's queue.\n", counted(len(r.left), "job"))
			}
			said, told = true, false
		}
		pause(b.ctx, time.Second)
		if told {
			pause(b.ctx, 4*time.Second) // each search for an agent opens connections, whose number Nomad limits
			if again, err := b.ask(); err == nil {
				a = again
			}
		}
	}
}

const withoutPlacer = "Without an active agent, waiting gangs cannot be handed over whole. nomad-pal release -now takes the gates off at once: Nomad may then start some members of a gang, which hold their GPUs while they wait for room for the others."

// follow notes which jobs have been handed over, and asks the agent to hand over further jobs.
func (r *releases) follow(a *answers, jobs []palapi.JobStatus) error {
	ours := map[cluster.JobKey]bool{}
	for _, j := range jobs {
		ours[keyOfStatus(j)] = j.State.Ours()
	}
	for _, k := range slices.Clone(r.left) {
		if ours[k] {
			continue
		}
		job, err := r.client.Job(r.b.ctx, k)
		switch {
		case err != nil:
			return err
		case job == nil || cluster.Ended(job) || !carries(job):
			r.done(k, job)
		}
	}
	for _, k := range r.left {
		if r.asked[k] || r.refused[k] != nil || len(r.asked) >= mostAsked {
			continue
		}
		err := a.order(r.b.ctx, k, "release", palapi.ControlRequest{}, nil)
		switch {
		case lacksAgent(err) || r.b.ctx.Err() != nil:
			return err
		case err != nil && !errors.Is(err, nomad.ErrNoJob): // a purged job is noticed the next time
			r.refused[k] = err
		case err == nil:
			r.asked[k] = true
		}
	}
	return nil
}

// done notes that the job needs no release any more. job is nil if it was purged.
func (r *releases) done(k cluster.JobKey, job *api.Job) {
	r.left = slices.DeleteFunc(r.left, func(o cluster.JobKey) bool { return o == k })
	delete(r.asked, k)
	r.released = append(r.released, k.String())
	if job != nil && rewrite.Tied(job) {
		r.tied = append(r.tied, k.String())
	}
	if !r.b.json {
		r.b.io.printf("Released %s\n", k.String())
	}
}

// stuck returns an error if no job that is left can start before somebody does something about it.
func (r *releases) stuck(jobs []palapi.JobStatus) error {
	why := map[cluster.JobKey]string{}
	for _, j := range jobs {
		k := keyOfStatus(j)
		switch {
		case r.refused[k] != nil:
			why[k] = r.refused[k].Error()
		case j.Held && !slices.Contains(runStates, j.State):
			why[k] = j.Reason.String() + ". To lift the hold: nomad-pal hold -lift " + palapi.InNamespace(k.Namespace, palapi.ShellQuoted(k.ID))
		case slices.Contains([]palapi.State{palapi.Unschedulable, palapi.Rejected, palapi.Failed}, j.State):
			why[k] = fmt.Sprintf("%s: %s", j.State, j.Reason)
		}
	}
	lines := []string{}
	for _, k := range r.left {
		if why[k] == "" {
			return nil
		}
		lines = append(lines, quoted(fmt.Sprintf("%s: %s", k, why[k]), ""))
	}
	return fmt.Errorf("%s not start as things are, so nomad-pal cannot hand over whole gangs:\n%s\nTo take a gate off anyway: nomad-pal release -now", reason.Counted(len(lines), "job does", "jobs do"), strings.Join(lines, "\n"))
}

// interrupted ends the command after Ctrl-C, and says what is left.
func (r *releases) interrupted(a *answers) error {
	err := r.withdraw(a)
	names := quoted(firstOf(each(r.left, cluster.JobKey.String)), "")
	switch {
	case err != nil:
		r.b.io.complain(fmt.Sprintf("The order for %s cannot be withdrawn, so the agent may still hand over: %s\n%s", counted(len(r.asked), "job"), names, err))
	case len(r.left) > 0:
		r.b.io.complain(fmt.Sprintf("%s left in nomad-pal's queue: %s", reason.Counted(len(r.left), "job is", "jobs are"), names))
	}
	return context.Canceled
}

// withdraw tells the agent to keep the jobs that are left.
func (r *releases) withdraw(a *answers) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.b.ctx), reachTimeout)
	defer cancel()
	for _, k := range slices.Clone(r.left) {
		if !r.asked[k] {
			continue
		}
		if job, err := r.client.Job(ctx, k); err == nil && job != nil && !carries(job) {
			r.done(k, job)
			continue
		}
		if err := a.order(ctx, k, "keep", palapi.ControlRequest{}, nil); err != nil && !errors.Is(err, nomad.ErrNoJob) {
			return err
		}
		delete(r.asked, k)
	}
	return nil
}
