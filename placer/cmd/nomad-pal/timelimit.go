// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"slices"

	"github.com/hashicorp/go-version"
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

// wouldBeUnlimited returns a warning if a server would drop the time limit of a job that is not
// registered. It returns "" in all other cases, and if the versions of the servers are unknown.
func wouldBeUnlimited(b *base, client *nomad.Client, job *api.Job) string {
	if !limitsTime(job) {
		return ""
	}
	servers, err := client.API().Agent().MembersOpts((&api.QueryOptions{}).WithContext(b.ctx))
	if err != nil {
		return ""
	}
	least, region := version.Must(version.NewVersion("2.0.3")), cmp.Or(b.config().Region, servers.ServerRegion)
	for _, s := range servers.Members { // the list has the servers of all federated regions
		if v, err := version.NewVersion(s.Tags["build"]); err == nil && s.Status == "alive" && s.Tags["region"] == region && v.Core().LessThan(least) {
			return noTimeLimit
		}
	}
	return ""
}
