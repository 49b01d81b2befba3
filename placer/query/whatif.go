// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Changes are the changes that explain -what-if tries on a job: values by key.
type Changes map[string]string

// ParseChanges parses key=value pairs separated by commas. A piece without "=" belongs to the value
// before it, as in pal_after=a,b.
func ParseChanges(given ...string) (Changes, error) {
	out := Changes{}
	for _, g := range given {
		last := ""
		for _, piece := range strings.Split(g, ",") {
			k, v, ok := strings.Cut(piece, "=")
			k = strings.TrimSpace(k)
			switch {
			case !ok && last == "", ok && k == "":
				return nil, fmt.Errorf("-what-if %q is not <key>=<value>,…", g)
			case !ok:
				out[last] += "," + piece
			default:
				out[k], last = strings.TrimSpace(v), k
			}
		}
	}
	return out, nil
}

// String formats the changes in the form that -what-if accepts.
func (c Changes) String() string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, key+"="+c[key])
	}
	return strings.Join(parts, ",")
}

// Apply changes the job.
func (c Changes) Apply(job *api.Job) error {
	for _, key := range slices.Sorted(maps.Keys(c)) {
		if err := alter(job, key, c[key]); err != nil {
			return fmt.Errorf("-what-if %s=%s: %w", key, c[key], err)
		}
	}
	return nil
}

// groupKeys are the keys that can be limited to one of several groups, in the form <group>.<key>.
var groupKeys = []string{"count", "min", "max", "gpus", "device", "cpu", "memory"}

func alter(job *api.Job, key, value string) error {
	if strings.HasPrefix(key, "pal_") {
		delete(job.Meta, key)
		for _, g := range job.TaskGroups {
			delete(g.Meta, key)
		}
		if value != "" {
			job.SetMeta(key, value)
		}
		_, err := rewrite.ParseHints(job)
		return err
	}
	what, group := key, ""
	i := strings.LastIndex(key, ".")
	if i >= 0 {
		group, what = key[:i], key[i+1:]
	}
	switch {
	case key == "without":
		return dropConstraint(job, value)
	case key == "priority":
		return setNumber(&job.Priority, value)
	case key == "datacenters":
		job.Datacenters = strings.Split(value, ",")
		return nil
	case key == "node_pool":
		job.NodePool = &value
		return nil
	case !slices.Contains(groupKeys, what):
		return fmt.Errorf("no such key; the keys are the pal_… hints, priority, datacenters, node_pool, without, count, min, max, gpus, device, cpu and memory; in a job with several groups, the keys are <group>.count and so on")
	}
	g, err := groupOf(job, group)
	if err != nil {
		return err
	}
	return alterGroup(g, what, value)
}

// alterGroup changes the property of a group that one of the groupKeys names.
func alterGroup(g *api.TaskGroup, what, value string) error {
	switch {
	case what == "count":
		return setNumber(&g.Count, value)
	case (what == "min" || what == "max") && g.Scaling == nil:
		return fmt.Errorf("group %q has no scaling block", *g.Name)
	case what == "min":
		return setNumber(&g.Scaling.Min, value)
	case what == "max":
		return setNumber(&g.Scaling.Max, value)
	}
	task, device, err := gpuTask(g)
	switch {
	case err != nil:
		return err
	case what == "gpus":
		return setNumber(&device.Count, value)
	case what == "cpu":
		return setNumber(&task.Resources.CPU, value)
	case what == "memory":
		return setNumber(&task.Resources.MemoryMB, value)
	}
	device.Name = value
	return nil
}

func setNumber[T int | int64 | uint64](field **T, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a positive integer", value)
	}
	*field = new(T(n))
	return nil
}

// groupOf returns the group with GPUs that has this name. For the name "", groupOf returns the only
// group with GPUs.
func groupOf(job *api.Job, name string) (found *api.TaskGroup, err error) {
	var names []string
	for _, g := range job.TaskGroups {
		if rewrite.GPUsPerMember(g) > 0 {
			names = append(names, *g.Name)
			if name == "" || name == *g.Name {
				found = g
			}
		}
	}
	switch {
	case found == nil:
		return nil, fmt.Errorf("the job has no group %q with GPUs", name)
	case name == "" && len(names) > 1:
		return nil, fmt.Errorf("the job has several groups with GPUs: use a key such as %s.count (groups: %s)", names[0], strings.Join(names, ", "))
	}
	return found, nil
}

// gpuTask returns the one task of the group that requests GPUs, and its device block.
func gpuTask(g *api.TaskGroup) (task *api.Task, device *api.RequestedDevice, err error) {
	n := 0
	for _, t := range g.Tasks {
		for _, d := range rewrite.GPURequests(t) {
			task, device = t, d
			n++
		}
	}
	if n != 1 {
		return nil, nil, fmt.Errorf("group %q has %d device blocks for GPUs, not one", *g.Name, n)
	}
	return task, device, nil
}

// subject returns what a constraint is about: its left side, or its operand if it has no left side.
func subject(c *api.Constraint) string { return cmp.Or(c.LTarget, c.Operand) }

// dropConstraint removes all constraints on this subject, in the job, its groups, tasks and
// devices.
func dropConstraint(job *api.Job, on string) error {
	dropped := false
	for _, cs := range constraintsOf(job) {
		n := len(*cs)
		*cs = slices.DeleteFunc(*cs, func(c *api.Constraint) bool { return subject(c) == on })
		dropped = dropped || len(*cs) < n
	}
	if !dropped {
		return fmt.Errorf("the job has no constraint on %s", on)
	}
	return nil
}

// constraintsOf returns the lists of constraints of a job, of its groups and tasks, and of the
// tasks' device blocks for GPUs.
func constraintsOf(job *api.Job) []*[]*api.Constraint {
	all := []*[]*api.Constraint{&job.Constraints}
	for _, g := range job.TaskGroups {
		all = append(all, &g.Constraints)
		for _, t := range g.Tasks {
			all = append(all, &t.Constraints)
			for _, d := range rewrite.GPURequests(t) {
				all = append(all, &d.Constraints)
			}
		}
	}
	return all
}
