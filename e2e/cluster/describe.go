// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// lastFew is how many objects of each kind are in Describe's text.
const lastFew = 12

// Describe returns a text about the current state of the cluster, for the message of a failed test.
// The text has nodes, jobs, evaluations, allocations with the events of their tasks, and the ends
// of the agents' logs.
func (c *Cluster) Describe(ctx context.Context) string {
	var b strings.Builder
	opts := (&api.QueryOptions{Namespace: api.AllNamespacesNamespace}).WithContext(ctx)
	c.describeNodes(&b, opts)
	c.describeJobs(&b, opts)
	c.describeAllocations(&b, opts)
	for _, a := range slices.Concat(c.servers, c.clients) {
		state := "runs"
		if a.PID() == 0 {
			state = "does not run"
		}
		fmt.Fprintf(&b, "agent %s %s; the end of its log:\n%s\n", a.Name, state, a.LogTail(lastFew))
	}
	return b.String()
}

func (c *Cluster) describeNodes(b *strings.Builder, opts *api.QueryOptions) {
	nodes, _, err := c.API().Nodes().List(opts)
	if err != nil {
		fmt.Fprintf(b, "nodes: %v\n", err)
	}
	for _, n := range nodes {
		fmt.Fprintf(b, "node %s is %s, %s, draining %v\n", n.Name, n.Status, n.SchedulingEligibility, n.Drain)
	}
}

func (c *Cluster) describeJobs(b *strings.Builder, opts *api.QueryOptions) {
	jobs, _, err := c.API().Jobs().List(opts)
	if err != nil {
		fmt.Fprintf(b, "jobs: %v\n", err)
	}
	slices.SortFunc(jobs, func(x, y *api.JobListStub) int { return cmp.Compare(x.ModifyIndex, y.ModifyIndex) })
	for _, j := range last(jobs) {
		fmt.Fprintf(b, "job %s is %s, stopped %v\n", j.ID, j.Status, j.Stop)
	}
	evals, _, err := c.API().Evaluations().List(opts)
	if err != nil {
		fmt.Fprintf(b, "evaluations: %v\n", err)
	}
	slices.SortFunc(evals, func(x, y *api.Evaluation) int { return cmp.Compare(x.ModifyIndex, y.ModifyIndex) })
	for _, e := range last(evals) {
		fmt.Fprintf(b, "evaluation of %s by %s: %s %s, %d groups not placed\n", e.JobID, e.TriggeredBy, e.Status, e.StatusDescription, len(e.FailedTGAllocs))
	}
}

func (c *Cluster) describeAllocations(b *strings.Builder, opts *api.QueryOptions) {
	allocs, _, err := c.API().Allocations().List(opts)
	if err != nil {
		fmt.Fprintf(b, "allocations: %v\n", err)
	}
	slices.SortFunc(allocs, func(x, y *api.AllocationListStub) int { return cmp.Compare(x.ModifyIndex, y.ModifyIndex) })
	for _, a := range last(allocs) {
		fmt.Fprintf(b, "allocation %s v%d on %s: %s, to %s %s\n", a.Name, a.JobVersion, a.NodeName, a.ClientStatus, a.DesiredStatus, a.DesiredDescription)
		for task, state := range a.TaskStates {
			for _, e := range last(state.Events) {
				fmt.Fprintf(b, "  %s: %s %s\n", task, e.Type, e.DisplayMessage)
			}
		}
	}
}

func last[T any](all []T) []T { return all[max(0, len(all)-lastFew):] }
