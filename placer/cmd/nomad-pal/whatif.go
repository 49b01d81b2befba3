// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// changes are what -what-if tries on a job, by key.
type changes map[string]string

// parseChanges reads key=value pairs with commas between. A piece without "=" belongs to
// the value before it, as in pal_after=a,b.
func parseChanges(given []string) (changes, error) {
	out := changes{}
	for _, g := range given {
		last := ""
		for _, piece := range strings.Split(g, ",") {
			k, v, ok := strings.Cut(piece, "=")
			switch k = strings.TrimSpace(k); {
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

// apply changes the job.
func (c changes) apply(job *api.Job) error {
	for _, key := range slices.Sorted(maps.Keys(c)) {
		if err := change(job, key, c[key]); err != nil {
			return fmt.Errorf("-what-if %s=%s: %w", key, c[key], err)
		}
	}
	return nil
}

func change(job *api.Job, key, value string) error {
	if strings.HasPrefix(key, "pal_") {
		for _, g := range job.TaskGroups {
			delete(g.Meta, key)
		}
		job.SetMeta(key, value)
		_, err := rewrite.ParseHints(job)
		return err
	}
	what, group := key, ""
	if i := strings.LastIndex(key, "."); i >= 0 {
		group, what = key[:i], key[i+1:]
	}
	n, err := strconv.Atoi(value)
	switch {
	case what != "count" && what != "gpus" && key != "priority":
		return fmt.Errorf("no such key (pal_… hints, priority, count, gpus, <group>.count, <group>.gpus)")
	case err != nil || n < 1:
		return fmt.Errorf("%q is not a number from 1", value)
	case key == "priority":
		job.Priority = &n
		return nil
	}
	g, err := groupOf(job, group)
	if err != nil {
		return err
	}
	if what == "count" {
		g.Count = &n
		return nil
	}
	return setGPUs(g, n)
}

// groupOf is the group with GPUs of that name, or the only one.
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
		return nil, fmt.Errorf("the job has several groups with GPUs: say %s.count or the like (%s)", names[0], strings.Join(names, ", "))
	}
	return found, nil
}

func setGPUs(g *api.TaskGroup, n int) error {
	var devices []*api.RequestedDevice
	for _, t := range g.Tasks {
		devices = append(devices, rewrite.GPURequests(t)...)
	}
	if len(devices) != 1 {
		return fmt.Errorf("group %q has %d device blocks for GPUs, not one", *g.Name, len(devices))
	}
	count := uint64(n)
	devices[0].Count = &count
	return nil
}

// sentence says what is tried; "" for nothing.
func (c changes) sentence() string {
	if len(c) == 0 {
		return ""
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, k+" = "+c[k])
	}
	return "With " + strings.Join(parts, " and ") + ": "
}

// isJobFile says whether an argument of explain is a jobspec: no name of a job that
// people use looks like one.
func isJobFile(name string) bool {
	for _, end := range []string{".hcl", ".nomad", ".json"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return name == "-" || isURL(name) || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../")
}
