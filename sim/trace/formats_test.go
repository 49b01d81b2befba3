// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTables reads the tables in testdata, and compares the jobs in each with the expected ones.
func TestTables(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			tr, err := Read("f", strings.NewReader(d.Input))
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return describe(tr)
		})
	})
}

// TestColumnsAreDocumented: the docs name each column that a format reads.
func TestColumnsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operators/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	section := func(heading string) string {
		_, rest, _ := strings.Cut(text, "### "+heading+"\n")
		part, _, _ := strings.Cut(rest, "\n##")
		return strings.ToLower(part)
	}
	for _, f := range formats() {
		part := section("A table of your own")
		if f.slurm {
			part = section("Slurm")
		}
		for _, c := range f.columns {
			if !strings.Contains(part, "`"+c.name+"`") {
				t.Errorf("the docs do not explain column %s of %s", c.name, f.title)
			}
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^|]*)` \\| ").FindAllStringSubmatch(section("A table of your own"), -1) {
		for _, name := range strings.Split(row[1], "`, `") {
			if !slices.ContainsFunc(formats(), func(f format) bool {
				return !f.slurm && slices.ContainsFunc(f.columns, func(c column) bool { return c.name == name })
			}) {
				t.Errorf("the docs name a column %s, which no format reads", name)
			}
		}
	}
}

func describe(t Trace) string {
	var b strings.Builder
	for _, j := range t.Jobs {
		fmt.Fprintf(&b, "%s:", j.ID)
		for _, part := range []struct {
			name string
			say  bool
			is   any
		}{
			{"name", j.Name != "", j.Name}, {"tenant", j.Tenant != "", j.Tenant}, {"class", true, j.Class},
			{"gpus", true, j.GPUs}, {"in", j.MemberGPUs > 0 || j.Groups != nil, j.TaskGroups()},
			{"submit", true, j.SubmitS}, {"work", true, j.WorkS()}, {"estimate", j.EstimateS > 0, j.EstimateS},
			{"priority", j.Priority != defaultPriority, j.Priority}, {"preemptible", j.Preemptible, "yes"},
			{"least", j.LeastMembers > 0, j.LeastMembers},
			{"speed", j.Speeds != nil, map[string]float64(j.Speeds)},
		} {
			if part.say {
				fmt.Fprintf(&b, " %s=%v", part.name, part.is)
			}
		}
		fmt.Fprintln(&b)
	}
	skipped, notes := t.Skipped(), t.Notes()
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(&b, "left out: %d %s\n", skipped[reason], reason)
	}
	for _, note := range slices.Sorted(maps.Keys(notes)) {
		fmt.Fprintf(&b, "note: %d: %s\n", notes[note], note)
	}
	return b.String()
}
