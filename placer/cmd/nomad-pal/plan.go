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

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpPlan = help("plan [options] <jobspec>", `
Reports whether the job would start now, on which GPUs and why, or what it would
wait for, with the queue and the cluster as they are. For a running job it
reports whether the job would keep its GPUs. If Nomad has the job already, plan first
shows what would change, as nomad job plan does. plan applies the limits of the user
(pal_user) that nomad-pal run would give the job.

Exit codes: 0 the job would wait, would keep running, or is left to Nomad (see nomad job
plan); 1 it would start now; 2 it would never start, because of the jobspec or the
cluster; 3 no agent is active, so it does not start; 255 an error, such as a job that
Nomad refuses. (As with nomad job plan, 1 means that allocations would be made.)
`, examples(
	"Would it start now, and where?", "nomad-pal plan train.nomad.hcl",
	"In a script:", "nomad-pal plan -json train.nomad.hcl | jq -r .reason.text",
), jobOptions, outputOptions, generalOptions)

// planned is the JSON object that `nomad-pal plan -json` prints.
type planned struct {
	*palapi.Explanation
	// JobModifyIndex is the job's index in Nomad, for run -check-index; 0 for a new job.
	JobModifyIndex uint64 `json:"job_modify_index"`
	// Diff is what would change in Nomad's job, one change per line. The parts that the placer
	// wrote are left out.
	Diff []string `json:"diff,omitempty"`
}

// planFailed is the exit code of plan after an error.
const planFailed = 255

func runPlan(b *base, args []string) int {
	failed := func(err error) int { return max(b.fail(err), map[bool]int{false: planFailed}[lacksAgent(err)]) }
	fs := b.flags("plan")
	f := b.jobFlags(fs)
	rest, ok := b.parse(fs, args, 1)
	if !ok {
		return planFailed
	}
	job, _, err := b.readJob(rest[0], f)
	if err != nil {
		return failed(err)
	}
	b.jobspec = rest[0]
	s, err := b.ask()
	if err != nil {
		return failed(err)
	}
	if err := sayUser(b, s.nomad, job); err != nil {
		return failed(err)
	}
	e, err := s.Plan(job)
	if err != nil {
		return failed(cmp.Or(b.noNamespace(s.nomad, *job.Namespace), err))
	}
	x := planned{Explanation: e}
	is, unread := s.nomad.Job(b.ctx, cluster.KeyOf(job))
	if is != nil {
		x.JobModifyIndex = *is.JobModifyIndex
	} else if none := b.noNamespace(s.nomad, *job.Namespace); none != nil {
		return failed(none)
	}
	if unread == nil && e.State != palapi.Rejected { // for a rejected job, the diff would only add Nomad's own error
		if x.Diff, err = b.diff(s, is, job); err != nil {
			b.complain(fmt.Sprintf("Note: cannot show the changes to the job: %v", err))
		}
	}
	w := request.PastNomad(job)
	if w != "" {
		b.complain("Warning: " + w)
	}
	code := b.show(x, func() { printPlan(b, x, unread == nil) })
	if code != 0 {
		return planFailed
	}
	if e.State == palapi.Native { // Nomad places the job, and needs no placer
		return 0
	}
	return x.exitCode(s.close(0))
}

// exitCode returns the exit code of the plan of a job that needs the placer. idle is the exit code
// if no placer is active, and otherwise 0.
func (x planned) exitCode(idle int) int {
	switch {
	case x.never():
		return 2
	case x.State == palapi.Starting:
		return cmp.Or(idle, 1)
	}
	return idle
}

// never reports whether the job can never start as it is written.
func (x planned) never() bool { return x.State == palapi.Rejected || x.State == palapi.Unschedulable }

// printPlan prints a plan for people. indexKnown reports whether x.JobModifyIndex is known.
func printPlan(b *base, x planned, indexKnown bool) {
	for _, line := range x.Diff {
		b.write(quoted(line, "") + "\n")
	}
	if len(x.Diff) > 0 {
		b.write("\n")
	}
	printExplanation(b, x.Explanation)
	if indexKnown && !x.never() {
		b.write("\n")
		b.say(plain, fmt.Sprintf("Job modify index: %d. nomad-pal run -check-index %d submits only if the job is unchanged.", x.JobModifyIndex, x.JobModifyIndex))
	}
}

// The command shows changes to a job as nomad job plan does. But it compares the new job with the
// one that the author wrote, not with what the placer has made of it.

// diff returns the changes, one per line; none if Nomad does not have the job.
func (b *base) diff(s *answers, is, job *api.Job) ([]string, error) {
	if is == nil {
		return nil, nil
	}
	planned := request.Gate(job)
	if pins, ok := rewrite.Pinned(is); ok && !rewrite.Gated(is) {
		if pinned, err := rewrite.Pin(job, pins, rewrite.Racks{}); err == nil {
			planned = pinned
		}
	}
	w := (&api.WriteOptions{Namespace: *job.Namespace}).WithContext(b.ctx)
	resp, _, err := s.nomad.API().Jobs().PlanOpts(planned, &api.PlanOptions{Diff: true}, w)
	if err != nil {
		return nil, nomad.NoDryRun(err)
	}
	return diffLines(resp.Diff), nil
}

// diffLines formats a diff, one change per line, without the changes that the placer made.
func diffLines(d *api.JobDiff) (out []string) {
	if d == nil {
		return nil
	}
	out = changesIn("", d.Fields, d.Objects)
	for _, g := range d.TaskGroups {
		group := fmt.Sprintf("Task Group %q", g.Name)
		for _, t := range g.Tasks {
			task := fmt.Sprintf("%s > Task %q", group, t.Name)
			out = append(out, changesIn(task+" > ", t.Fields, t.Objects)...)
			if len(t.Annotations) > 0 {
				out = append(out, task+noted(t.Annotations))
			}
		}
		out = append(out, changesIn(group+" > ", g.Fields, g.Objects)...)
		for _, what := range slices.Sorted(maps.Keys(g.Updates)) {
			out = append(out, fmt.Sprintf("%s: %d %s", group, g.Updates[what], what))
		}
	}
	return out
}

// changesIn returns the changed fields of an object at a path, and of the objects in it.
func changesIn(path string, fields []*api.FieldDiff, objects []*api.ObjectDiff) (out []string) {
	for _, f := range fields {
		switch f.Type {
		case "Added":
			out = append(out, fmt.Sprintf("+ %s%s: %q%s", path, f.Name, f.New, noted(f.Annotations)))
		case "Deleted":
			out = append(out, fmt.Sprintf("- %s%s: %q%s", path, f.Name, f.Old, noted(f.Annotations)))
		case "Edited":
			out = append(out, fmt.Sprintf("+/- %s%s: %q => %q%s", path, f.Name, f.Old, f.New, noted(f.Annotations)))
		}
	}
	for _, o := range objects {
		if !written(o) {
			out = append(out, changesIn(path+o.Name+" > ", o.Fields, o.Objects)...)
		}
	}
	return out
}

// written reports whether the placer wrote the constraint or affinity in o.
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
