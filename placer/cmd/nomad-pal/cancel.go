// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpCancel = help("cancel [options] <job>... | -mine", `
Stops jobs. Unlike "nomad job stop", it also stops all runs of a parameterized or
periodic job (an array). A stopped job loses its place in the queue. Stopping a
failed job removes it from the lists.

Cancel Options:

  -mine                    Stop all your jobs with GPUs in the namespace. nomad-pal status
                           -mine -namespace=<namespace> lists them.
`, examples(
	"Stop an array, with all of its runs:", "nomad-pal cancel array",
	"Stop all of your jobs:", "nomad-pal cancel -mine",
), outputOptions, generalOptions)

func runCancel(b *base, args []string) int {
	fs := b.flags("cancel")
	mine := fs.Bool("mine", false, "")
	ids, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	switch {
	case *mine && len(ids) > 0:
		return b.fail(fmt.Errorf("stopping jobs: -mine cannot be combined with the names of jobs"))
	case *mine && b.namespace == "*":
		return b.fail(fmt.Errorf("stopping jobs: -mine works in a single namespace, not in namespace *"))
	case !*mine && len(ids) == 0:
		return b.fail(fmt.Errorf("stopping jobs: no job is given; give one or use -mine"))
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	if *mine {
		if ids, err = myJobs(b, client); err != nil {
			return b.fail(err)
		}
	}
	running, err := running(b, client, ids)
	if err != nil && len(ids) > 1 {
		err = fmt.Errorf("no job was stopped: %w", err)
	}
	if err != nil {
		return b.fail(err)
	}
	stopped := []string{}
	for _, id := range running {
		if _, _, err := client.API().Jobs().Deregister(id, false, (&api.WriteOptions{Namespace: b.namespace}).WithContext(b.ctx)); err != nil {
			b.printEach(stopped, "Stopped", "")
			return b.fail(fmt.Errorf("stopping job %q: %w", id, nomad.Denied(err, nomad.SubmitJob)))
		}
		stopped = append(stopped, b.namespace+"/"+id)
	}
	return b.show(stopped, func() { b.printEach(stopped, "Stopped", fmt.Sprintf("Nothing to stop in namespace %q.", b.namespace)) })
}

// running returns the named jobs and their runs, without the jobs that have ended. For an unknown
// name, running returns an error, so that the command stops no job.
func running(b *base, client *nomad.Client, ids []string) (all []string, err error) {
	gaveUp := sync.OnceValue(func() []string { return givenUp(b) })
	for _, id := range ids {
		k := cluster.JobKey{Namespace: b.namespace, ID: id}
		job, err := client.Job(b.ctx, k)
		if err == nil && job == nil {
			err = b.noJob(client, k)
		}
		if err != nil {
			return nil, err
		}
		found, err := withRuns(b, client, job, gaveUp)
		if err != nil {
			return nil, err
		}
		for _, id := range found {
			if !slices.Contains(all, id) {
				all = append(all, id)
			}
		}
	}
	return all, nil
}

// givenUp returns the namespace's jobs in the state failed, or none if no agent answers. In Nomad,
// failed jobs are dead, like completed jobs, but commands list failed jobs until somebody stops
// them.
func givenUp(b *base) (ids []string) {
	a, err := b.ask()
	if err != nil {
		return nil
	}
	jobs, err := a.Jobs()
	for _, j := range jobs {
		if err == nil && j.Namespace == b.namespace && j.State == palapi.Failed {
			ids = append(ids, j.Job)
		}
	}
	return ids
}

// withRuns returns a job and its runs. withRuns leaves out jobs and runs that have ended, unless
// they have failed. The job comes first in the list, because a stopped job starts no further runs.
func withRuns(b *base, c *nomad.Client, job *api.Job, gaveUp func() []string) (ids []string, err error) {
	stops := func(id, status string, stopped bool) {
		if !stopped && (status != "dead" || slices.Contains(gaveUp(), id)) {
			ids = append(ids, id)
		}
	}
	stops(*job.ID, *cmp.Or(job.Status, new(string)), rewrite.Stopped(job))
	if !job.IsParameterized() && !job.IsPeriodic() {
		return ids, nil
	}
	runs, err := c.Runs(b.ctx, cluster.JobKey{Namespace: b.namespace, ID: *job.ID})
	if err != nil {
		return nil, err
	}
	for _, s := range runs {
		stops(s.ID, s.Status, s.Stop)
	}
	return ids, nil
}
