// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// Every state handles every event, except the state that only the queue finds out
// ([Unschedulable]).
func TestTableIsWhole(t *testing.T) {
	t.Parallel()
	for _, s := range palapi.States() {
		if s.Meaning() == "" {
			t.Errorf("state %q has no meaning", s)
		}
		if s == palapi.Unschedulable {
			continue
		}
		for _, k := range kinds() {
			if handlerOf(s, k).do == nil {
				t.Errorf("state %s does not handle %s", s, k)
			}
		}
		if turns := len(duties[s]) > 0; turns != s.Ours() && s != palapi.Ended { // an ended job undoes a lost update
			t.Errorf("state %s has duties: %v; is ours: %v", s, turns, s.Ours())
		}
	}
}

// The lists in these tests contain all states and kinds of events in the source.
func TestListsAreWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, of string
		listed   int
	}{{"../api/state.go", "State", len(palapi.States())}, {"event.go", "Kind", len(kinds()) + 1}} { // answers are not in the table
		f, err := parser.ParseFile(token.NewFileSet(), c.file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		declared := 0
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				if of, ok := s.(*ast.ValueSpec).Type.(*ast.Ident); ok && of.Name == c.of {
					declared++
				}
			}
		}
		if declared != c.listed {
			t.Errorf("%d constants of %s in %s, %d are listed", declared, c.of, c.file, c.listed)
		}
	}
}

var rewriteDocs = flag.Bool("rewrite-docs", false, "write testdata/table.txt, and the states in docs/design/concepts.md")

// testdata/table.txt shows the table, and docs/design/concepts.md what each state is.
func TestDrawing(t *testing.T) {
	t.Parallel()
	const table, concepts = "testdata/table.txt", "../../docs/design/concepts.md"
	page, err := os.ReadFile(concepts)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- Written by go test ./placer/gang -run TestDrawing -rewrite-docs -->\n", "<!-- end -->"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the states", concepts)
	}
	for path, want := range map[string]string{table: drawing(), concepts: before + begin + statesTable() + end + after} {
		if *rewriteDocs {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(got)); d != "" {
			t.Errorf("%s is not what the code says; go test ./placer/gang -run TestDrawing -rewrite-docs writes it (-code +file):\n%s", path, d)
		}
	}
}

func statesTable() string {
	var b strings.Builder
	b.WriteString("| state | what it is |\n|---|---|\n")
	for _, s := range palapi.States() {
		fmt.Fprintf(&b, "| %s | %s |\n", s, s.Meaning())
	}
	return b.String()
}

func drawing() string {
	var b strings.Builder
	b.WriteString(`Written by go test ./placer/gang -run TestDrawing -rewrite-docs, from the table in placer/gang/table.go.

The changes of state that the placer causes. Events in Nomad can move a gang from any state to any other state at any time.

`)
	for _, s := range palapi.States() {
		out, _ := successors(s)
		for _, to := range out {
			fmt.Fprintf(&b, "  %s --> %s\n", s, to)
		}
	}
	b.WriteString("\nWhat is due in each state. In each cycle, the placer reconciles each gang: it performs the steps of the gang's state in the listed order, until a\nstep changes something in Nomad. After a failure, the placer waits before it repeats the steps: 2 s at first, 5 min at\nmost. Steps marked with * run without this wait. In most states, the first steps are:\n\n")
	for _, d := range []duty{dutyRecord, dutyPosition, dutyUndo} {
		fmt.Fprintf(&b, "* %s\n", d.say)
	}
	for _, s := range palapi.States() {
		if !slices.ContainsFunc(duties[s], func(d duty) bool { return !d.common }) {
			continue
		}
		fmt.Fprintf(&b, "\n%s:\n\n", s)
		for _, d := range duties[s] {
			if d.common {
				continue
			}
			fmt.Fprintf(&b, "* %s%s\n", d.say, map[bool]string{true: " *"}[d.always])
		}
	}
	b.WriteString("\nWhat an event does:\n\n| state |")
	verdicts := slices.DeleteFunc(kinds(), func(k Kind) bool { return k == OnObserve || k == OnReconcile })
	for _, k := range verdicts {
		fmt.Fprintf(&b, " %s |", k)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(verdicts)) + "\n")
	for _, s := range palapi.States() {
		if s == palapi.Unschedulable {
			continue
		}
		fmt.Fprintf(&b, "| %s |", s)
		for _, k := range verdicts {
			fmt.Fprintf(&b, " %s |", handlerOf(s, k).say)
		}
		b.WriteString("\n")
	}
	b.WriteString(`
With ` + "`sync`" + `, the gang reports to the queue what has happened since the previous cycle. The events start, preempt, move,
resize and room are decisions of the queue. "Refuse" means: the gang reports to the queue that the decision is not
carried out. The stories in placer/gang/testdata/stories show how a gang handles each event.
`)
	return b.String()
}

// kinds are the kinds of events in the table.
func kinds() []Kind {
	return []Kind{OnObserve, OnReconcile, OnSync, OnStart, OnPreempt, OnMove, OnResize, OnRoom}
}

// reaches are the states to which the placer's actions may bring a gang from this one. An
// observation may bring it to any state. Undoing a lost update may bring it to any state that the
// author's change leads to.
func reaches(s palapi.State) []palapi.State {
	out, common := successors(s)
	return others(s, out, common)
}

// others appends the states in to that are not s and not in out yet.
func others(s palapi.State, out, to []palapi.State) []palapi.State {
	for _, t := range to {
		if t != s && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// successors is [reaches], with the states that only the common duties lead to returned separately.
func successors(s palapi.State) (out, common []palapi.State) {
	for _, k := range kinds() {
		out = others(s, out, handlerOf(s, k).to)
	}
	for _, d := range duties[s] {
		if d.common {
			common = append(common, d.to...)
			continue
		}
		out = others(s, out, d.to)
	}
	return out, common
}
