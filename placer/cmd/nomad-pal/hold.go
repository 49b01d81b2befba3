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
	placer.Controlled
}

// order sends the agent an order about a job, and decodes the answer into out.
func (a *answers) order(ctx context.Context, k cluster.JobKey, what string, in palapi.ControlRequest, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if on, err := user.Current(); err == nil {
		in.By = on.Username
	}
	_, err := a.agent.Raw().Write("/v1/job/"+url.PathEscape(k.ID)+"/"+what, in, out, (&api.WriteOptions{Namespace: k.Namespace}).WithContext(ctx))
	if err = a.plain(err); err != nil && !errors.Is(err, nomad.ErrNoJob) {
		err = fmt.Errorf("job %q: %w", k.ID, err)
	}
	return err
}

// order sends the agent an order about the job with this id, and says which job is similar if there
// is none.
func (b *base) order(a *answers, id, what string, in palapi.ControlRequest, out any) error {
	err := a.order(b.ctx, cluster.JobKey{Namespace: b.namespace, ID: id}, what, in, out)
	if errors.Is(err, nomad.ErrNoJob) {
		return didYouMean(b, a, id, err)
	}
	return err
}

// runStates are the states of jobs that have started and not ended.
var runStates = []palapi.State{palapi.Starting, palapi.Running, palapi.Stopping, palapi.Resubmitted, palapi.Lost}

// control sends the agent the orders in what for each of the jobs, and prints a line for each job:
// the text in done, with the job's name instead of %s.
func control(b *base, ids []string, in palapi.ControlRequest, done string, what ...string) int {
	a, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	told := []controlled{}
	lines := func() {
		for _, c := range told {
			b.io.printf(done+"\n", c.Job)
			if c.Starting && slices.Contains(what, "hold") {
				b.io.printf("%s was about to start, and the hold is too late to stop this\n", c.Job)
			}
		}
	}
	for _, id := range ids {
		c := controlled{Job: cluster.JobKey{Namespace: b.namespace, ID: id}.String()}
		for _, w := range what {
			if err := b.order(a, id, w, in, &c.Controlled); err != nil {
				lines()
				return b.fail(err)
			}
		}
		told = append(told, c)
	}
	return b.show(told, func() {
		lines()
		b.io.printf("To see its state: nomad-pal explain %s\n", palapi.InNamespace(b.namespace, palapi.ShellQuoted(ids[len(ids)-1])))
	})
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
	return control(b, ids, palapi.ControlRequest{Why: *why}, "Held %s: if it waits, it does not start; if it runs, it keeps running", "hold")
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
