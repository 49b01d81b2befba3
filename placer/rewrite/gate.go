// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite

import (
	"slices"

	"github.com/hashicorp/nomad/api"
)

// The gate: a constraint that no node satisfies unless an operator opens it
// with `nomad node meta apply pal_gate=open`. Nomad then holds the job in a blocked
// evaluation. The job comes to Nomad with it: put there by the placer it would come too
// late, since Nomad schedules a job as soon as it is registered.
const (
	GateMeta   = "pal_gate"
	GateTarget = "${meta." + GateMeta + "}"
	GateValue  = "open"
)

// isGate knows the gate in each spelling that Nomad takes for equality.
func isGate(c *api.Constraint) bool {
	equals := c.Operand == "=" || c.Operand == "==" || c.Operand == "is" || c.Operand == ""
	return equals && c.LTarget == GateTarget && c.RTarget == GateValue
}

// Gated says whether the job, or any of its groups, carries the gate.
func Gated(job *api.Job) bool {
	return slices.ContainsFunc(job.Constraints, isGate) || slices.ContainsFunc(job.TaskGroups, groupGated)
}

func groupGated(g *api.TaskGroup) bool { return slices.ContainsFunc(g.Constraints, isGate) }

// FullyGated says whether no group of the job can be scheduled past the gate: it is on
// the job, or on every group.
func FullyGated(job *api.Job) bool { return Gated(job) && len(OpenGroups(job)) == 0 }

// OpenGroups are the groups, by name, of a job that Nomad schedules whatever the gates of others.
func OpenGroups(job *api.Job) (names []string) {
	if slices.ContainsFunc(job.Constraints, isGate) {
		return nil
	}
	for _, g := range job.TaskGroups {
		if !groupGated(g) {
			names = append(names, *g.Name)
		}
	}
	return names
}

// Gate is the job with the gate, on the whole job: a gang waits as a whole,
// its groups without GPUs with it. Pins are left as they are. A job that is
// fully gated is returned unchanged.
func Gate(job *api.Job) *api.Job {
	if FullyGated(job) {
		return job
	}
	out := *job
	gate := &api.Constraint{LTarget: GateTarget, RTarget: GateValue, Operand: "="}
	out.Constraints = append(slices.Clone(job.Constraints), gate)
	return &out
}

// Open is the job without the gate, pins left as they are.
func Open(job *api.Job) *api.Job {
	out := *job
	out.Constraints = without(job.Constraints, isGate)
	if slices.ContainsFunc(job.TaskGroups, groupGated) {
		out.TaskGroups = mapGroups(job.TaskGroups, func(g *api.TaskGroup) {
			g.Constraints = without(g.Constraints, isGate)
		})
	}
	return &out
}

// Stopped says whether somebody has stopped the job.
func Stopped(job *api.Job) bool { return job.Stop != nil && *job.Stop }

// Author is the job as its author would write it: without gate and pins.
func Author(job *api.Job) *api.Job { return unpin(Open(job)) }

// without is s without the elements that match; s itself if none does. A
// list that becomes empty becomes nil: so Nomad returns a job that has none, and the
// two must compare as equal.
func without[T any](s []T, match func(T) bool) []T {
	if !slices.ContainsFunc(s, match) {
		return s
	}
	var kept []T
	for _, e := range s {
		if !match(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// mapGroups copies the groups as far as f may change them. f gets a copy of
// each group; its lists are still those of the original, and f must replace them
// instead of writing to them.
func mapGroups(groups []*api.TaskGroup, f func(*api.TaskGroup)) []*api.TaskGroup {
	if groups == nil {
		return nil
	}
	out := make([]*api.TaskGroup, len(groups))
	for i, g := range groups {
		c := *g
		f(&c)
		out[i] = &c
	}
	return out
}
