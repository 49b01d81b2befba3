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
	if k := (cluster.JobKey{Namespace: b.namespace, ID: strings.Join(rest, "")}); !*all && state.Jobs[k] == nil {
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
		b.printf("Nothing to release.\n")
	}
	if len(r.tied) > 0 {
		b.complain("Note: Nomad restarts a job whose device blocks change, so the constraints of " + firstOf(r.tied) + " still name GPUs or a class. To remove these constraints, run the job's file again.")
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
	told           bool // [releases.tell] has printed something
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

// countMembers returns how many members the job requests.
func countMembers(job *api.Job) (n int) {
	for _, g := range job.TaskGroups {
		n += rewrite.Members(g)
	}
	return n
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
			r.done(k, out, "Released")
			if n := countMembers(out); n > 1 && rewrite.Gated(job) {
				r.b.complain(fmt.Sprintf("Note: Nomad places the %d members of %s as they fit. To see what missing members wait for: %s", n, k, palapi.ExplainCommand(k.Namespace, k.ID)))
			}
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
	for said, since := false, time.Now(); ; {
		began := time.Now()
		jobs, err := a.Jobs()
		if err == nil {
			err = r.follow(a, jobs)
		}
		switch {
		case b.ctx.Err() != nil:
			return r.interrupted(a)
		case err != nil && !said: // the agent restarts, or another one takes over
			b.complain("Note: " + err.Error() + "\nTrying again. Ctrl-C ends this command.")
		case err == nil && len(r.left) == 0:
			return nil
		case err == nil:
			if stuck := r.stuck(jobs); stuck != nil {
				return errors.Join(stuck, r.withdraw(a))
			}
			if time.Since(since) > soon {
				r.tell(a, jobs)
			}
		}
		if said = err != nil; !said {
			pause(b.ctx, lookAgain(time.Since(began)))
			continue
		}
		pause(b.ctx, 5*time.Second) // each search for an agent opens connections, whose number Nomad limits
		if again, err := b.ask(); err == nil {
			a = again
		}
	}
}

const withoutPlacer = "Without an active agent, waiting gangs cannot be handed over whole. nomad-pal release -now takes the gates off at once: Nomad may then start some members of a gang, which hold their GPUs while they wait for room for the others."

// follow notes which jobs have been handed over, and asks the agent to hand over further jobs: first
// those that run, then those that wait, in the order of the queue.
func (r *releases) follow(a *answers, jobs []palapi.JobStatus) error {
	first := len(r.released) == 0 && len(r.asked) == 0
	ours := map[cluster.JobKey]palapi.JobStatus{}
	for _, j := range jobs {
		k := cluster.JobKey{Namespace: j.Namespace, ID: j.Job}
		if !j.State.Ours() || !r.wants(k) {
			continue
		}
		ours[k] = j
	}
	for _, k := range slices.Clone(r.left) {
		if _, is := ours[k]; is {
			continue
		}
		job, err := r.client.Job(r.b.ctx, k)
		switch {
		case err != nil:
			return err
		case job != nil && !carries(job):
			r.done(k, job, "Released")
		case job == nil || cluster.Ended(job):
			r.done(k, job, "Ended before its release:")
		}
	}
	slices.SortStableFunc(r.left, func(x, y cluster.JobKey) int { return cmp.Compare(turn(ours[x]), turn(ours[y])) })
	if first {
		r.begin(ours)
	}
	for _, k := range r.left {
		if r.asked[k] || r.refused[k] != nil || len(r.asked) >= mostAsked {
			continue
		}
		_, err := a.order(r.b.ctx, k, "release", palapi.ControlRequest{})
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

// turn sorts jobs: those that run come first, those that wait outside the queue last.
func turn(j palapi.JobStatus) int {
	if slices.Contains(runStates, j.State) {
		return -1
	}
	return cmp.Or(j.Position, 1<<31)
}

// begin prints what the command waits for.
func (r *releases) begin(ours map[cluster.JobKey]palapi.JobStatus) {
	waits := slices.DeleteFunc(slices.Clone(r.left), func(k cluster.JobKey) bool { return turn(ours[k]) < 0 })
	if r.b.json || len(waits) == 0 {
		return
	}
	next := ours[waits[0]]
	start := ""
	if !next.StartTo.IsZero() {
		start = "; expected start " + palapi.Soon(next.StartFrom, next.StartTo, time.Now())
	}
	r.b.printf("Of %s to release, %s. The next is %s: %s%s\n", counted(len(r.left), "job"), reason.Counted(len(waits), "waits until it fits", "wait until they fit"), waits[0].String(), next.Reason.String(), start)
	r.b.printf("Ctrl-C ends this command; jobs that still wait then stay in nomad-pal's queue.\n")
}

// soon is the time within which the agent hands over a running job, unless the job waits for its
// deployment.
const soon = 3 * time.Second

// tell prints, once, what happens to the running jobs that the agent does not hand over yet.
func (r *releases) tell(a *answers, jobs []palapi.JobStatus) {
	if r.told || r.b.json {
		return
	}
	for _, j := range jobs {
		k := cluster.JobKey{Namespace: j.Namespace, ID: j.Job}
		if !r.asked[k] || turn(j) >= 0 {
			continue
		}
		if e, err := a.Explain(k); err == nil {
			r.told = true
			r.b.printf("Not handed over yet: %s\n", e.Headline(time.Now()))
		}
	}
}

// done notes that the job needs no release any more.
func (r *releases) done(k cluster.JobKey, job *api.Job, how string) {
	r.left = slices.DeleteFunc(r.left, func(o cluster.JobKey) bool { return o == k })
	delete(r.asked, k)
	if how == "Released" {
		r.released = append(r.released, k.String())
		if rewrite.Tied(job) {
			r.tied = append(r.tied, k.String())
		}
	}
	left := ""
	if n := len(r.left); n > 0 {
		left = fmt.Sprintf(" (%d left)", n)
	}
	if !r.b.json {
		r.b.printf("%s %s%s\n", how, k.String(), left)
	}
}

// stuck returns an error if no job that is left can start before somebody does something about it.
func (r *releases) stuck(jobs []palapi.JobStatus) error {
	why := map[cluster.JobKey]string{}
	for _, j := range jobs {
		k := cluster.JobKey{Namespace: j.Namespace, ID: j.Job}
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
		r.b.complain(fmt.Sprintf("The order for %s cannot be withdrawn, so the agent may still hand over: %s\n%s", counted(len(r.asked), "job"), names, err))
	case len(r.left) > 0:
		r.b.complain(fmt.Sprintf("%s left in nomad-pal's queue: %s", reason.Counted(len(r.left), "job is", "jobs are"), names))
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
			r.done(k, job, "Released")
			continue
		}
		if _, err := a.order(ctx, k, "keep", palapi.ControlRequest{}); err != nil && !errors.Is(err, nomad.ErrNoJob) {
			return err
		}
		delete(r.asked, k)
	}
	return nil
}
