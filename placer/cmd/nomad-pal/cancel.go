// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpCancel = help("cancel [options] <job>... | -mine", `
Stops jobs, and all runs of a parameterized or periodic one: an array as a whole.
"nomad job stop" leaves these running. A job that is stopped gives up its place
in the queue.

Cancel Options:

  -mine                    All your jobs with GPUs in the namespace, by their meta pal_user:
                           see nomad-pal queue -mine.
`, examples(
	"Stop an array with all of its elements:", "nomad-pal cancel array",
	"Stop all of your jobs:", "nomad-pal cancel -mine",
), outputOptions, generalOptions)

func (b *base) runCancel(args []string) int {
	fs := b.flags("cancel")
	mine := fs.Bool("mine", false, "")
	ids, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	if *mine == (len(ids) > 0) {
		return b.fail(fmt.Errorf("stopping jobs: no job is named; say which, or -mine"))
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	if *mine {
		if ids, err = b.myJobs(client); err != nil {
			return b.fail(err)
		}
	}
	stopped := []string{}
	for _, id := range ids {
		k := cluster.JobKey{Namespace: b.namespace, ID: id}
		job, err := client.Job(b.ctx, k)
		if err == nil && job == nil {
			err = nomad.NoJob(k)
		}
		if err != nil {
			return b.fail(err)
		}
		all, err := b.withRuns(client.API(), job)
		if err != nil {
			return b.fail(err)
		}
		for _, id := range all {
			if _, _, err := client.API().Jobs().Deregister(id, false, (&api.WriteOptions{Namespace: b.namespace}).WithContext(b.ctx)); err != nil {
				return b.fail(fmt.Errorf("stopping job %q: %w", id, err))
			}
			if id = b.namespace + "/" + id; !slices.Contains(stopped, id) {
				stopped = append(stopped, id)
			}
		}
	}
	return b.show(stopped, func() { b.printEach(stopped, "Stopped", "Nothing to stop.") })
}

// withRuns are a job and the jobs that it has made, those that have not ended: itself first,
// so that it makes no more.
func (b *base) withRuns(c *api.Client, job *api.Job) (ids []string, err error) {
	if (job.Status == nil || *job.Status != "dead") && !rewrite.Stopped(job) {
		ids = append(ids, *job.ID)
	}
	if !job.IsParameterized() && !job.IsPeriodic() {
		return ids, nil
	}
	stubs, _, err := c.Jobs().List((&api.QueryOptions{Namespace: b.namespace, Prefix: *job.ID + "/"}).WithContext(b.ctx))
	if err != nil {
		return nil, fmt.Errorf("listing the runs of job %q: %w", *job.ID, err)
	}
	for _, s := range stubs {
		if s.ParentID == *job.ID && s.Status != "dead" && !s.Stop {
			ids = append(ids, s.ID)
		}
	}
	return ids, nil
}
