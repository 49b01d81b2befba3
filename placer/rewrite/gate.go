// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
)

// The gate is a constraint on a key in the meta of nodes. A node has this key only if an operator
// opens the gate on the node. Nomad holds a job with the gate in a blocked evaluation. The job must
// have the gate when it is registered. If the placer added the gate later, Nomad might already have
// scheduled the job.
//
// The gate's value can be any text. Nomad shows this value in "nomad job status", "nomad job plan"
// and its UI as the reason why nothing is placed. So nomad-pal's value tells people that the job
// waits in nomad-pal's queue.
const (
	GateMeta   = "pal_gate"
	GateTarget = "${meta." + GateMeta + "}"
	GateValue  = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
)

// isGate reports whether a constraint is the gate. The gate can have any value, and any of Nomad's
// operators for equality.
func isGate(c *api.Constraint) bool { return isEquality(c) && c.LTarget == GateTarget }

func isEquality(c *api.Constraint) bool {
	return c.Operand == "=" || c.Operand == "==" || c.Operand == "is" || c.Operand == ""
}

// Gated reports whether the job or at least one of its groups has the gate.
func Gated(job *api.Job) bool {
	return slices.ContainsFunc(job.Constraints, isGate) || slices.ContainsFunc(job.TaskGroups, groupGated)
}

func groupGated(g *api.TaskGroup) bool { return slices.ContainsFunc(g.Constraints, isGate) }

// MistypedGate returns an error if the author seems to have misspelled the gate in a constraint. No
// node would satisfy a misspelled gate, and the placer would not remove it.
func MistypedGate(job *api.Job) error {
	all := slices.Clone(job.Constraints)
	for _, g := range job.TaskGroups {
		all = append(all, g.Constraints...)
	}
	for _, c := range all {
		if meantAsGate(c) && !isGate(c) {
			return fmt.Errorf("the constraint on %s = %q is mistyped: the gate is %s = %q (nomad-pal run adds the gate to a job without a gate)", c.LTarget, c.RTarget, GateTarget, GateValue)
		}
	}
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			if slices.ContainsFunc(t.Constraints, meantAsGate) {
				return fmt.Errorf("the gate is a constraint of task %q, but belongs to the job, because all members start together", t.Name)
			}
		}
	}
	return nil
}

// meantAsGate reports whether the author seems to have meant a constraint as the gate. The
// constraint has either the gate's key in any spelling, or a similar key and a value like that of
// the gate.
func meantAsGate(c *api.Constraint) bool {
	key := strings.Trim(c.LTarget, "${} ")
	key = strings.ReplaceAll(strings.ToLower(key[strings.LastIndexByte(key, '.')+1:]), "-", "_")
	if !isEquality(c) {
		return false
	}
	value := strings.ToLower(c.RTarget)
	speaks := strings.Contains(value, "nomad-pal") || nearest.Misspells(value, "open")
	return key == GateMeta || speaks && nearest.Misspells(key, GateMeta)
}

// FullyGated reports whether the gate applies to every group of the job. A job is fully gated if
// the gate is either on the job or on every group.
func FullyGated(job *api.Job) bool { return Gated(job) && len(OpenGroups(job)) == 0 }

// OpenGroups returns the names of the groups to which no gate applies. Nomad schedules groups
// without a gate at once.
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

// Gate returns the job with the gate on the whole job, so that all groups wait, even groups without
// GPUs. Gate keeps the pins. If the job is fully gated, Gate returns the job itself.
func Gate(job *api.Job) *api.Job {
	if FullyGated(job) {
		return job
	}
	out := *job
	gate := &api.Constraint{LTarget: GateTarget, RTarget: GateValue, Operand: "="}
	out.Constraints = append(slices.Clone(job.Constraints), gate)
	return &out
}

// Open returns the job without the gate, but with its pins.
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

// Stopped reports whether somebody has stopped the job.
func Stopped(job *api.Job) bool { return job.Stop != nil && *job.Stop }

// Author returns the job as its author wrote it: without gate and pins.
func Author(job *api.Job) *api.Job { return unpin(Open(job)) }

// without returns s without the elements for which match returns true. If no element matches,
// without returns s itself. If no element is left, without returns nil. Nomad also returns nil for
// a list that was always empty.
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

// mapGroups calls f with a shallow copy of each group, and returns the copies. If f changes a list,
// f must replace the whole list, because the original group shares it.
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
