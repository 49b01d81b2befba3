// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

const controlRights = `
The token needs the right to register the job (submit-job). The agent stores the request
in Nomad's variables, so the request outlives restarts of the agent, and applies to new
versions of the job.
`

var helpHold = help("hold [options] <job>... | -lift [options] <job>...", `
Holds jobs, as scontrol hold does: a waiting job leaves the queue and does not start
until the hold is lifted. Afterwards, its place in the queue again depends on its submission time. A
running job keeps running, but waits if it is requeued. If the job's start has already
begun, hold reports that it came too late to stop the start. explain and queue show who
holds a job, since when and why. A second hold without -reason changes nothing.
`+controlRights+`
Hold Options:

  -lift                    Lift the hold, so that the jobs can start.
  -reason=<text>           The reason that explain and queue show: at most 200 bytes.
`, examples(
	"Hold a job until its data is repaired:", "nomad-pal hold -reason 'data set is being repaired' train",
	"Let the job start:", "nomad-pal hold -lift train",
), outputOptions, generalOptions)

var helpRequeue = help("requeue [options] <job>...", `
Stops running jobs and queues them again, as scontrol requeue does. They start again
when it is their turn, maybe on other GPUs; with -hold, after the hold is lifted.
Work since the last checkpoint (pal_checkpoint) is lost. A waiting job keeps its
place. A job that neither runs nor waits cannot be requeued: run it again.
`+controlRights+`
Requeue Options:

  -hold                    Also hold the jobs: see nomad-pal hold.
  -reason=<text>           The reason that explain and queue show: at most 200 bytes.
`, examples(
	"Stop a running job and queue it again:", "nomad-pal requeue train",
), outputOptions, generalOptions)

var helpPriority = help("priority [options] <job> <n>", `
Changes the priority of a running or waiting job in nomad-pal's queue. The jobspec
and Nomad's own priority, which decides Nomad's preemption, stay as they are. 0
restores the jobspec's priority.
`+controlRights, examples(
	"Put a job first:", "nomad-pal priority train 90",
	"Restore the jobspec's priority:", "nomad-pal priority train 0",
), outputOptions, generalOptions)

// controlled is what hold, requeue and priority print as JSON for one job.
type controlled struct {
	Job string `json:"job"` // namespace/id
	// Waits reports whether the job to requeue already waits.
	Waits bool `json:"waits,omitempty"`
	placer.Controlled
	notHeld bool // there was no hold to lift
	runs    bool // the job to hold runs
}

// orders maps the names of orders in the agent's API to their descriptions in error messages.
var orders = map[string]string{"hold": "holding", "unhold": "lifting the hold on", "requeue": "requeueing", "priority": "changing the priority of", "release": "releasing", "keep": "keeping"}

// order sends the placer an order about a job.
func (a *answers) order(ctx context.Context, k cluster.JobKey, what string, in palapi.ControlRequest) (is placer.Controlled, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if on, err := user.Current(); err == nil {
		in.By = on.Username
	}
	_, err = a.agent.Raw().Write("/v1/job/"+url.PathEscape(k.ID)+"/"+what, in, &is, (&api.WriteOptions{Namespace: k.Namespace}).WithContext(ctx))
	if err = a.plain(err); err != nil && !errors.Is(err, nomad.ErrNoJob) {
		err = fmt.Errorf("%s job %q: %w", orders[what], k.ID, err)
	}
	return is, err
}

// tell sends the placer the orders in what for each of the jobs. After an error, tell returns the
// jobs for which the placer has carried out the orders.
func tell(b *base, ids []string, in palapi.ControlRequest, what ...string) ([]controlled, error) {
	a, err := b.ask()
	if err != nil {
		return nil, err
	}
	told := []controlled{}
	for _, id := range ids {
		k := cluster.JobKey{Namespace: b.namespace, ID: id}
		c := controlled{Job: k.String()}
		if slices.Contains(what, "requeue") {
			if c.Waits, err = a.waits(k); err != nil {
				return told, err
			}
		}
		c.notHeld = slices.Contains(what, "unhold") && a.is(k, func(j palapi.JobStatus) bool { return !j.Held })
		for _, w := range what {
			c.Controlled, err = a.order(b.ctx, k, w, in)
			if errors.Is(err, nomad.ErrNoJob) {
				err = didYouMean(b, a, id, err)
			}
			if err != nil {
				return told, err
			}
		}
		// The job may have started just before the hold, so only its state after the hold counts.
		c.runs = slices.Equal(what, []string{"hold"}) && a.is(k, func(j palapi.JobStatus) bool { return slices.Contains(runStates, j.State) })
		c.Waits = c.Waits && !c.Starting
		told = append(told, c)
	}
	return told, nil
}

// is reports whether f is true of a job's state. If the agent does not answer, is returns false.
func (a *answers) is(k cluster.JobKey, f func(palapi.JobStatus) bool) bool {
	all, err := a.Jobs()
	return err == nil && slices.ContainsFunc(all, func(j palapi.JobStatus) bool { return j.Namespace == k.Namespace && j.Job == k.ID && f(j) })
}

// runStates are the states of jobs that have started and not ended.
var runStates = []palapi.State{palapi.Starting, palapi.Running, palapi.Stopping, palapi.Resubmitted, palapi.Lost}

// waits reports whether a job waits already, so that requeueing it would change nothing. waits
// returns an error for a job that neither waits nor runs. If the job cannot be explained, waits
// returns false, and the placer decides.
func (a *answers) waits(k cluster.JobKey) (bool, error) {
	e, err := a.Explain(k)
	switch {
	case err != nil || e.Behind:
		return false, nil
	case slices.Contains([]palapi.State{palapi.Waiting, palapi.Committing, palapi.Completing}, e.State):
		return true, nil
	case slices.Contains(runStates, e.State):
		return false, nil
	}
	return false, fmt.Errorf("requeueing job %q: the job neither runs nor waits in nomad-pal's queue: %s", k.ID, e.Headline(time.Now()))
}

// control calls tell, and then prints a line for each job: the text in done, with the job's name
// instead of %s.
func control(b *base, ids []string, in palapi.ControlRequest, done string, what ...string) int {
	told, err := tell(b, ids, in, what...)
	lines := func() {
		for _, c := range told {
			c.print(b, done, what)
			if slices.Contains(what, "hold") && in.Why == "" && c.Held != nil && c.Held.Why != "" {
				b.printf("%s was already held, and the reason stays: %s\n", c.Job, c.Held.Why)
			}
		}
	}
	if err != nil {
		lines()
		return b.fail(err)
	}
	return b.show(told, func() {
		lines()
		b.printf("To see its state: nomad-pal explain %s\n", palapi.InNamespace(b.namespace, palapi.ShellQuoted(ids[len(ids)-1])))
	})
}

// print prints what an order has done to the job: usually the text in done, with the job's name
// instead of %s.
func (c controlled) print(b *base, done string, what []string) {
	switch holds := slices.Contains(what, "hold"); {
	case c.notHeld:
		b.printf("%s is not held, so no hold was lifted\n", c.Job)
	case c.Starting && slices.Equal(what, []string{"hold"}):
		b.printf("Held %s, but too late to stop the start that has begun; if the job is requeued, it waits until the hold is lifted\n", c.Job)
	case c.runs:
		b.printf("Held %s, which keeps running; if it is requeued, it waits until the hold is lifted\n", c.Job)
	case !c.Waits:
		b.printf(done+"\n", c.Job)
	case holds:
		b.printf("Held %s, which was already waiting\n", c.Job)
	default:
		b.printf("%s is already waiting, so nothing was stopped\n", c.Job)
	}
}

// someJobs parses the arguments of a command that takes one or more jobs.
func someJobs(b *base, fs *flag.FlagSet, args []string) (ids []string, ok bool) {
	ids, ok = b.parse(fs, args, anyArgs)
	if ok && len(ids) == 0 {
		b.fail(errors.New("give at least one job; see nomad-pal " + fs.Name() + " -help"))
		return nil, false
	}
	return ids, ok
}

func runHold(b *base, args []string) int {
	fs := b.flags("hold")
	lift := fs.Bool("lift", false, "")
	why := fs.String("reason", "", "")
	ids, ok := someJobs(b, fs, args)
	switch {
	case !ok:
		return 1
	case *lift && *why != "":
		return b.fail(errors.New("-reason cannot be combined with -lift"))
	case *lift:
		return control(b, ids, palapi.ControlRequest{}, "Lifted the hold on %s", "unhold")
	}
	return control(b, ids, palapi.ControlRequest{Why: *why}, "Held %s", "hold")
}

func runRequeue(b *base, args []string) int {
	fs := b.flags("requeue")
	hold := fs.Bool("hold", false, "")
	why := fs.String("reason", "", "")
	ids, ok := someJobs(b, fs, args)
	if !ok {
		return 1
	}
	if *hold {
		return control(b, ids, palapi.ControlRequest{Why: *why}, "Requeued and held %s", "hold", "requeue")
	}
	return control(b, ids, palapi.ControlRequest{Why: *why}, "Requeued %s", "requeue")
}

func runPriority(b *base, args []string) int {
	fs := b.flags("priority")
	rest, ok := b.parse(fs, args, 2)
	if !ok {
		return 1
	}
	n, err := strconv.Atoi(rest[1])
	if err != nil || n < 0 {
		return b.fail(fmt.Errorf("priority %q is not a number of at least 1, or 0 for the jobspec's priority", rest[1]))
	}
	done := fmt.Sprintf("Changed the priority of %%s to %d", n)
	if n == 0 {
		done = "Restored the jobspec's priority of %s"
	}
	return control(b, rest[:1], palapi.ControlRequest{Priority: n}, done, "priority")
}
