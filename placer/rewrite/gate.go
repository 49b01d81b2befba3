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

// The gate: a constraint on a node's meta that no node has, unless an operator opens the gate
// there. Nomad then holds the job in a blocked evaluation. The job comes to Nomad with it: put
// there by the placer it would come too late, since Nomad schedules a job as soon as it is
// registered.
//
// The gate's value is free. Nomad shows it in "nomad job status", "nomad job plan" and its UI as
// the reason why nothing is placed, so what nomad-pal writes there says where the job waits.
const (
	GateMeta   = "pal_gate"
	GateTarget = "${meta." + GateMeta + "}"
	GateValue  = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
)

// isGate recognizes the gate in each spelling of equality that Nomad takes, whatever its value.
func isGate(c *api.Constraint) bool { return isEquality(c) && c.LTarget == GateTarget }

func isEquality(c *api.Constraint) bool {
	return c.Operand == "=" || c.Operand == "==" || c.Operand == "is" || c.Operand == ""
}

// Gated reports whether the job, or any of its groups, carries the gate.
func Gated(job *api.Job) bool {
	return slices.ContainsFunc(job.Constraints, isGate) || slices.ContainsFunc(job.TaskGroups, groupGated)
}

func groupGated(g *api.TaskGroup) bool { return slices.ContainsFunc(g.Constraints, isGate) }

// MistypedGate is what is wrong with a constraint that was meant as the gate and is not; nil if no
// constraint is. No node satisfies such a constraint, and the placer does not take it off.
func MistypedGate(job *api.Job) error {
	all := slices.Clone(job.Constraints)
	for _, g := range job.TaskGroups {
		all = append(all, g.Constraints...)
	}
	for _, c := range all {
		if meantAsGate(c) && !isGate(c) {
			return fmt.Errorf("the constraint on %s = %q is mistyped: the gate is %s = %q (nomad-pal run adds it, if the job has none)", c.LTarget, c.RTarget, GateTarget, GateValue)
		}
	}
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			if slices.ContainsFunc(t.Constraints, meantAsGate) {
				return fmt.Errorf("the gate is a constraint of task %q: it belongs to the job, whose members start together", t.Name)
			}
		}
	}
	return nil
}

// meantAsGate recognizes the gate in any spelling: by its key on whatever side of the braces, or
// by a key and a value that are like those of the gate.
func meantAsGate(c *api.Constraint) bool {
	key := strings.Trim(c.LTarget, "${} ")
	key = strings.ReplaceAll(strings.ToLower(key[strings.LastIndexByte(key, '.')+1:]), "-", "_")
	if !isEquality(c) {
		return false
	}
	value := strings.ToLower(c.RTarget)
	speaks := strings.Contains(value, "nomad-pal") || nearest.Name(value, []string{"open"}) != ""
	return key == GateMeta || speaks && nearest.Name(key, []string{GateMeta}) != ""
}

// FullyGated reports whether no group of the job can be scheduled past the gate: it is on
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

// Gate returns the job with the gate as a constraint of the whole job: all groups
// wait, those without GPUs as well. Pins are left as they are. A job that is
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

// Stopped reports whether somebody has stopped the job.
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
