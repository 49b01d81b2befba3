// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Servers before Nomad 2.0.3 drop a group's max_run_duration without an error.

const noTimeLimit = "Warning: this Nomad ignores max_run_duration, which needs Nomad 2.0.3, so the job has no time limit. Instead, end the task after 6 hours as successful: timeout 6h python train.py || test $? = 124"

// limitsTime reports whether the job has a time limit.
func limitsTime(job *api.Job) bool {
	return slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return g.MaxRunDuration != nil && *g.MaxRunDuration > 0 })
}

// warnUnlimited warns if Nomad has dropped the time limit of a registered job.
func warnUnlimited(b *base, client *nomad.Client, job *api.Job) {
	if !limitsTime(job) {
		return
	}
	if now, err := client.Job(b.ctx, cluster.KeyOf(job)); err == nil && now != nil && !limitsTime(now) {
		b.complain(noTimeLimit)
	}
}
