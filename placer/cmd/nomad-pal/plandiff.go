// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// What would change of a job that Nomad has, as nomad job plan shows it, but of the job
// as its author writes it: Nomad compares with what the placer has made of it.

// diff is what would change, a line each; none for a job that Nomad does not have.
func (c *planCommand) diff(s *answers, is, job *api.Job, override bool) ([]string, error) {
	if is == nil {
		return nil, nil
	}
	planned := rewrite.Gate(job)
	if pins, ok := rewrite.Pinned(is); ok && !rewrite.Gated(is) {
		if pinned, err := rewrite.Pin(job, pins, rewrite.Racks{}); err == nil {
			planned = pinned
		}
	}
	w := (&api.WriteOptions{Namespace: *job.Namespace}).WithContext(c.ctx)
	resp, _, err := s.nomad.API().Jobs().PlanOpts(planned, &api.PlanOptions{Diff: true, PolicyOverride: override}, w)
	if err != nil {
		return nil, err
	}
	return diffLines(resp.Diff), nil
}

// diffLines are a diff without what the placer wrote.
func diffLines(d *api.JobDiff) (out []string) {
	if d == nil {
		return nil
	}
	out = append(fieldLines(1, d.Fields), objectLines(1, d.Objects)...)
	for _, g := range d.TaskGroups {
		of := append(fieldLines(2, g.Fields), objectLines(2, g.Objects)...)
		for _, t := range g.Tasks {
			parts := append(fieldLines(3, t.Fields), objectLines(3, t.Objects)...)
			of = append(of, headed(2, t.Type, fmt.Sprintf("Task: %q%s", t.Name, noted(t.Annotations)), parts)...)
		}
		var updates []string
		for _, what := range slices.Sorted(maps.Keys(g.Updates)) {
			updates = append(updates, fmt.Sprintf("%d %s", g.Updates[what], what))
		}
		out = append(out, headed(1, g.Type, fmt.Sprintf("Task Group: %q%s", g.Name, noted(updates)), of)...)
	}
	return headed(0, d.Type, fmt.Sprintf("Job: %q", d.ID), out)
}

// headed are lines below what they belong to; none where only the placer changed it.
func headed(depth int, kind, head string, lines []string) []string {
	if kind == "None" || kind == "Edited" && len(lines) == 0 {
		return nil
	}
	return append([]string{marked(depth, kind, head)}, lines...)
}

func marked(depth int, kind, text string) string {
	sign := map[string]string{"Added": "+", "Deleted": "-", "Edited": "+/-"}[kind]
	return fmt.Sprintf("%s%-3s %s", strings.Repeat("  ", depth), sign, text)
}

func fieldLines(depth int, fields []*api.FieldDiff) (out []string) {
	for _, f := range fields {
		text := fmt.Sprintf("%s: %q", f.Name, cmp.Or(f.New, f.Old))
		if f.Type == "Edited" {
			text = fmt.Sprintf("%s: %q => %q", f.Name, f.Old, f.New)
		}
		if f.Type != "None" {
			out = append(out, marked(depth, f.Type, text+noted(f.Annotations)))
		}
	}
	return out
}

func objectLines(depth int, objects []*api.ObjectDiff) (out []string) {
	for _, o := range objects {
		if !written(o) {
			out = append(out, headed(depth, o.Type, o.Name, append(fieldLines(depth+1, o.Fields), objectLines(depth+1, o.Objects)...))...)
		}
	}
	return out
}

// written says whether a constraint or an affinity is the placer's.
func written(o *api.ObjectDiff) bool {
	if o.Name != "Constraint" && o.Name != "Affinity" {
		return false
	}
	was, is := map[string]string{}, map[string]string{}
	for _, f := range o.Fields {
		was[f.Name], is[f.Name] = f.Old, f.New
	}
	return rewrite.Wrote(was["LTarget"], was["RTarget"]) || rewrite.Wrote(is["LTarget"], is["RTarget"])
}

func noted(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	return " (" + strings.Join(notes, ", ") + ")"
}
