// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// plan says in our words what Nomad would refuse: a namespace that does not exist, and an invalid
// count. It does not ask Nomad to compare such a job.
func TestPlanRefused(t *testing.T) {
	c := newCluster(t)
	c.nomad.AddNamespace("research")
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\n"))
	if code, out, said := c.reads(jobText("reserch", "a", 2), "plan", "-"); code != 255 || out != "" || !strings.HasPrefix(said, "Error: no namespace \"reserch\" (did you mean \"research\"?)") {
		t.Errorf("no namespace: %d %s%s", code, out, said)
	}
	c.runs(c.job("default", "a", 2), "a")
	negative := strings.Replace(jobText("default", "a", 2), "task \"t\"", "count = -1\n    task \"t\"", 1)
	if code, out, said := c.reads(negative, "plan", "-"); code != 2 || said != "" || !strings.Contains(out, "a count cannot be negative") {
		t.Errorf("count -1: %d %s%s", code, out, said)
	}
}

// A diff shows the author's changes, without gate and pins.
func TestDiffLines(t *testing.T) {
	field := func(kind, name, was, is string, notes ...string) *api.FieldDiff {
		return &api.FieldDiff{Type: kind, Name: name, Old: was, New: is, Annotations: notes}
	}
	constraint := func(left, right string) *api.ObjectDiff {
		return &api.ObjectDiff{Type: "Added", Name: "Constraint", Fields: []*api.FieldDiff{field("Added", "LTarget", "", left), field("Added", "RTarget", "", right)}}
	}
	ours := []*api.ObjectDiff{constraint("${meta.pal_gate}", "open"), constraint("${node.unique.id}", "nomad-pal,a"), constraint("${meta.rack}", "nomad-pal/job,r1"), constraint("${device.attr.unique.variability_a_le_2}", "${device.ids}")}
	d := &api.JobDiff{Type: "Edited", ID: "train", Objects: append(ours, constraint("${attr.kernel.name}", "linux")), TaskGroups: []*api.TaskGroupDiff{
		{Type: "Edited", Name: "workers", Updates: map[string]uint64{"create/destroy update": 2}, Fields: []*api.FieldDiff{field("Edited", "Count", "1", "2", "forces create"), field("None", "Name", "w", "w")},
			Tasks: []*api.TaskDiff{{Type: "Edited", Name: "main", Objects: []*api.ObjectDiff{{Type: "Edited", Name: "Resources", Objects: []*api.ObjectDiff{{Type: "Edited", Name: "Device", Objects: ours}}, Fields: []*api.FieldDiff{field("Edited", "MemoryMB", "32", "64")}}}}}},
		{Type: "Edited", Name: "pinned", Objects: ours},
		{Type: "Deleted", Name: "gone", Fields: []*api.FieldDiff{field("Deleted", "Count", "1", "")}},
	}}
	want := `+ Constraint > LTarget: "${attr.kernel.name}"
+ Constraint > RTarget: "linux"
+/- Task Group "workers" > Task "main" > Resources > MemoryMB: "32" => "64"
+/- Task Group "workers" > Count: "1" => "2" (forces create)
Task Group "workers": 2 create/destroy update
- Task Group "gone" > Count: "1"`
	if diff := cmp.Diff(want, strings.Join(diffLines(d), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := diffLines(&api.JobDiff{Type: "Edited", ID: "train", Objects: ours}); got != nil {
		t.Errorf("only the placer has changed it: %q", got)
	}
}
