// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package reason

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/reasons.txt again")

// when is the time of all examples.
var when = time.Date(2026, 11, 27, 18, 0, 0, 0, time.UTC)

// beside is an obstacle that other reasons rest on.
func beside(cause string, nodes, total int) []Reason {
	return []Reason{{Kind: Obstacle, Cause: cause, Nodes: nodes, Total: total}}
}

// examples are reasons of each kind in each of its forms, by state.
var examples = []struct {
	state string
	of    []Reason
}{
	{"waiting", []Reason{
		{Kind: Stopping, Jobs: []string{"default/low"}},
		{Kind: Stopping, Jobs: []string{"default/low", "ml/test"}, Shrinking: []string{"ml/elastic"}},
		{Kind: Shrinking, Shrinking: []string{"ml/elastic"}},
		{Kind: Quota, Needs: 8, Tenant: "lab/research", Held: 12, Limit: 16},
		{Kind: Quota, Needs: 2, Counts: 0.5, Tenant: "lab/research", Held: 15.75, Limit: 16},
		{Kind: Quota, Needs: 2, Tenant: "lab", User: "ada", Held: 3, Limit: 4},
		{Kind: Quota, Tenant: "lab", User: "ada", Held: 4, Limit: 4},
		{Kind: Limit, Needs: 8, User: "ada", Limit: 4},
		{Kind: Array, Have: 6, Limit: 6},
		{Kind: GPUs, Needs: 4},
		{Kind: GPUs, Needs: 4, Free: 1},
		{Kind: GPUs, Needs: 4, Free: 2, FreeOthers: 3},
		{Kind: GPUs, Needs: 8, Match: 12, Free: 5, Small: 4, Used: &Used{Allocated: 7}},
		{Kind: GPUs, Needs: 4, Free: 1, Used: &Used{Outliers: 1}},
		{Kind: GPUs, Needs: 8, Free: 1, FreeOthers: 3, Used: &Used{Outliers: 2}},
		{Kind: GPUs, Needs: 4, Free: 2, Match: 8, Used: &Used{Allocated: 5, Unhealthy: 1}},
		{Kind: GPUs, Needs: 4, Free: 2, Match: 8, Used: &Used{Allocated: 3, Quarantined: 1, Unavailable: 1, Outliers: 1}},
		{Kind: GPUs, Needs: 4, Free: 3, Match: 8, Used: &Used{Allocated: 4, Outliers: 1}},
		{Kind: GPUs, Needs: 1, Free: 0, Match: 8, Used: &Used{Allocated: 7, Outliers: 1}},
		{Kind: Scattered, Needs: 4, Free: 2, Used: &Used{Outliers: 2}},
		{Kind: Scattered, Needs: 2, Free: 0, Used: &Used{Outliers: 2}},
		{Kind: Scattered, Needs: 4, Free: 6},
		{Kind: Scattered, Needs: 4, Free: 6, Small: 3},
		{Kind: Scattered, Needs: 1, Free: 1},
		{Kind: Scattered, Needs: 4, Free: 6, Because: []Reason{{Kind: WindowKeeps, Window: "weekend", Needs: 4, Until: when}}},
		{Kind: Scattered, Needs: 4, Free: 6, Because: []Reason{{Kind: WindowKeeps, Window: "weekend", Needs: 4, From: when.Add(-time.Hour), Until: when}}},
		{Kind: Scattered, Needs: 2, Free: 3, Because: []Reason{{Kind: Neighbours}}},
		{Kind: Scattered, Needs: 2, Free: 3, Because: []Reason{{Kind: MembersApart}}},
		{Kind: Scattered, Needs: 4, Free: 6, Small: 1, Because: []Reason{{Kind: SeveralModels, Free: 3}}},
		{Kind: Scattered, Needs: 4, Free: 6, Because: []Reason{{Kind: PerNode, Cause: "static port 29500 (dist)", Members: 1}}},
		{Kind: TooWide, Group: "workers", Each: 2, Room: 2, Members: 4, Because: []Reason{{Kind: PerNode, Cause: "distinct_hosts", Members: 1}}},
		{Kind: Scattered, Needs: 4, Free: 6, Because: append([]Reason{{Kind: SeveralModels, Free: 1}}, beside("the node is down", 1, 3)...)},
		{Kind: TooFar, Group: "workers", Members: 2, Each: 1, Room: 1, Tier: "node", Because: []Reason{{Kind: MembersApart}}},
		{Kind: Apart, Needs: 4, Tier: "node", Free: 6},
		{Kind: Services, Needs: 4},
		{Kind: Services, Needs: 4, Because: beside("the node is down", 1, 3)},
		{Kind: Away, Because: beside("the node is draining", 2, 3)},
		{Kind: Reserved, Ahead: "default/big"},
		{Kind: Spared, Ahead: "default/train"},
		{Kind: Order, Ahead: "default/big"},
		{Kind: InWindow},
		{Kind: InWindow, Until: when},
		{Kind: Refused, Needs: 1, Free: 2}, {Kind: Refused, Needs: 2, Free: 3},
		{Kind: WindowBegins},
		{Kind: WindowBegins, From: when.Add(-time.Hour), Until: when},
		{Kind: Locality},
		{Kind: Next},
		{Kind: NoPlacer},
		{Kind: Held, Cause: "anna", Until: when},
		{Kind: Held, Until: when, Because: []Reason{Unread("the data set is being repaired")}},
		{Kind: ComesAfter, Jobs: []string{"default/prepare"}, Because: []Reason{{Kind: AheadRuns}}},
		{Kind: ComesAfter, Jobs: []string{"default/prepare"}, Because: []Reason{{Kind: AheadWaits}}},
		{Kind: ComesAfter, Jobs: []string{"default/prepare"}, Because: []Reason{{Kind: AheadGoesOn}}},
		{Kind: ComesAfter, Jobs: []string{"default/prepare"}, Because: []Reason{{Kind: AheadFailed}}},
		{Kind: ComesAfter, Jobs: []string{"default/prepare"}, Because: []Reason{{Kind: AheadStopped}}},
		{Kind: ComesAfter, Jobs: []string{"default/prepare"}, Because: []Reason{{Kind: AheadRejected}}},
		{Kind: ComesAfter, Jobs: []string{"default/web"}, Because: []Reason{{Kind: AheadEndless, Cause: "service"}}},
		{Kind: ComesAfter, Jobs: []string{"default/nightly"}, Because: []Reason{{Kind: AheadTemplate}}},
		{Kind: ComesAfter, Jobs: []string{"default/prepaer"}, Because: []Reason{{Kind: AheadMissing}}},
		{Kind: ComesAfter, Jobs: []string{"default/prepare"}, Because: []Reason{{Kind: AheadChecked}}},
		{Kind: ComesAfter, Jobs: []string{"default/prepare"}, Because: []Reason{{Kind: AheadUnread, Cause: "Permission denied"}}},
		{Kind: Begins, Until: when},
		{Kind: RetriesAt, Tries: 3, Until: when, Cause: "no such image"},
		{Kind: InDoubt, Tries: 3, Until: when, Cause: `task "rank" ended with exit code 1`},
		{Kind: OneTried, Tries: 1, Cause: "no such image"},
		Reason{Kind: GPUs, Needs: 4, Free: 1}.And(Reason{Kind: Provided, Jobs: []string{"default/a", "default/b"}}),
		{Kind: NomadRefuses, Cause: `group "g": port collision (2 nodes)`},
		{Kind: DryRunRefuses, Group: "g", Cause: "missing compatible host volumes (2 nodes)"},
		{Kind: NewJob},
		{Kind: BeingRead},
		{Kind: GPUs, Needs: 4, Free: 2, Match: 8, Used: &Used{Allocated: 4, Kept: 2}},
		{Kind: Error, Cause: "registering the job: connection refused"},
	}},
	{"committing", []Reason{{Kind: Starting}}},
	{"completing", []Reason{{Kind: StillEnding, Have: 1}, {Kind: StillEnding, Have: 3}}},

	{"unschedulable", []Reason{
		{Kind: TooLarge, Needs: 64},
		{Kind: Limit, Needs: 8, Limit: 4},
		{Kind: NoGPUs},
		{Kind: TooFew, Needs: 64, Match: 8},
		{Kind: TooFew, Needs: 4, Because: beside("missing devices: intel/gpu", 3, 3)},
		{Kind: TooFew, Needs: 4, Because: append(beside("missing drivers: docker", 2, 3), Reason{Kind: More, Total: 2})},
		{Kind: TooWide, Group: "g", Members: 4, Each: 8, Room: 1},
		{Kind: TooWide, Group: "workers", Members: 1, Each: 16},
		{Kind: ManyParts, Group: "workers", Members: 2, Each: 5},
		{Kind: CanariesRun, Have: 1, Want: 3},
		{Kind: TooMany, Group: "g", Members: 4, Each: 8, Room: 1},
		{Kind: TooFar, Group: "g", Members: 4, Each: 2, Room: 2, Tier: "node"},
		{Kind: TooFar, Group: "g", Members: 4, Each: 2, Room: 2, Tier: "rack", Rackless: true},
		{Kind: Barred, Group: "g", Because: beside("missing drivers: docker", 3, 3)},
		{Kind: Never, Because: []Reason{{Kind: NeverGroup, Group: "g", Cause: "missing devices: intel/gpu", Nodes: 1, Total: 1}}},
	}},
	{"rejected", []Reason{
		{Kind: Rejected, Cause: `pal_class "E" is not A, B, C or D`},
		{Kind: StaysGated, Cause: "the job requests no GPUs"},
		{Kind: NoChild, Cause: "its payload would be lost"},
		{Kind: Unreadable, Cause: "the job has no task groups"},
		{Kind: PlacerFault, Cause: "index out of range [3] with length 3"},
	}},
	{"template", []Reason{
		{Kind: Template},
		{Kind: Template, Cause: "periodic"},
		Reason{Kind: Template}.And(Reason{Kind: UngatedChildren}),
		Reason{Kind: Template}.And(Reason{Kind: PayloadChildren}),
	}},
	{"native", []Reason{
		{Kind: Ungated, Want: 2},
		{Kind: Ungated, Needs: 4, Have: 2, Want: 2},
		{Kind: NotOurs, Needs: 2, Have: 1, Want: 2, Cause: "system jobs have no gate"},
		{Kind: WithoutGPUs, Cause: "the job requests no GPUs"},
		{Kind: PartNative, Have: 1, Want: 2},
		{Kind: WouldBeNative, Cause: "system jobs have no gate"},
	}},
	{"running", []Reason{
		{Kind: WaitsPromotion, Version: 3, Have: 1, Want: 1},
		{Kind: Deploys, Version: 3, Have: 1, Want: 3},
		{Kind: Deploys, Version: 3, Have: 0, Want: 1, Tries: 1},
		{Kind: DeployFailed, Version: 3, Cause: "Failed due to progress deadline"},
		{Kind: DeployPaused, Version: 3},
		{Kind: SpreadOut, Members: 3, Nodes: 3, Room: 1},
		{Kind: SpreadOut, Members: 5, Nodes: 3, Room: 2},
		{Kind: SpreadOut, Members: 2, Nodes: 1, Room: 2},
		{Kind: MembersRun, Want: 4, Doing: &Doing{Run: 4}},
		{Kind: MembersRun, Want: 1, Doing: &Doing{Run: 1}},
		{Kind: MembersRun, Want: 6, Doing: &Doing{Run: 1, Restarting: 1, Replacing: 1, Complete: 1, Preempted: 2}},
		Reason{Kind: MembersRun, Want: 2, Doing: &Doing{Run: 2}}.And(Reason{Kind: RunsUnread, Cause: `pal_class "E" is not A, B, C or D`}),
		{Kind: BesidePins},
		{Kind: PlansChild, Cause: "parameterized"},
		{Kind: NodesLeaving, Cause: "node gpu-00 is being drained: Nomad stops the members on that node at 18:00"},
	}},
	{"starting", []Reason{
		{Kind: MembersRun, Want: 4, Doing: &Doing{Run: 2, Pending: 2}},
		{Kind: Incomplete, Have: 1, Want: 2, Because: []Reason{{Kind: Blocked, Group: "g", Cause: "memory (1 node)"}}},
		{Kind: Incomplete, Have: 1, Want: 2, Because: []Reason{{Kind: Blocked}}},
		{Kind: Incomplete, Have: 1, Want: 2, Because: []Reason{{Kind: MemberLost, Node: "n1", Cause: "the node went down", Also: []Reason{{Kind: Blocked, Group: "g", Cause: "memory (1 node)"}}}}},
		{Kind: Deploying, Have: 1, Want: 2, Because: []Reason{{Kind: MemberFailed, Cause: "exit code 1"}}},
		Reason{Kind: NomadPreempted}.And(Reason{Kind: OthersRun}),
		Reason{Kind: PreemptedOnce}.And(Reason{Kind: OthersDone}),
		Reason{Kind: CutShort}.And(Reason{Kind: NomadPlaces}),
		Reason{Kind: MemberStopped}.And(Reason{Kind: OthersRun}),
		{Kind: Replacing},
		{Kind: MemberMissing, Member: "g[1]", Until: when, Cause: "exit code 1", Node: "gpu-03"},
		{Kind: MemberMissing, Member: "g[1]", Until: when, Cause: "Nomad preempted the member"},
		{Kind: MoreMissing, Total: 2},
		{Kind: Misplaced},
	}},
	{"resubmitted", []Reason{
		{Kind: RunsOnAsBefore, Because: []Reason{{Kind: GPUs, Needs: 8, Free: 2}}},
	}},
	{"stopped", []Reason{
		{Kind: MakesRoom}, {Kind: MakesRoom, Ahead: "default/big"}, {Kind: Moves}, {Kind: RequeueAsked}, {Kind: RequeueAsked, Cause: "anna"}, {Kind: Edited}, {Kind: NotWhole},
		{Kind: NotWhole, Because: []Reason{{Kind: Misplaced}}}, {Kind: MembersStopped},
	}},
	{"failed", []Reason{
		{Kind: GaveUp, Tries: 1, Cause: "exit code 1"},
		{Kind: GaveUp, Tries: 3, Cause: "exit code 1"},
		{Kind: LostTooOften, Tries: 6, Cause: "the node went down"},
		{Kind: FailedUnseen, Minutes: 10, Cause: "exit code 1"},
	}},
	{"ended", []Reason{
		{Kind: EndedComplete, Have: 2, Want: 2},
		{Kind: EndedComplete, Want: 1, Doing: &Doing{Ending: 1}},
		{Kind: EndedFailed, Cause: "exit code 1", Node: "gpu-03", Have: 1, Want: 2},
		{Kind: NoMembers, Cause: "every group with GPUs has count = 0"},
		{Kind: NoMoreRuns},
	}},
	{"next", []Reason{
		{Kind: WiderFits, Tier: "node", Try: "pal_locality="},
		{Kind: WiderFits, Tier: "node", Until: when, Try: "pal_locality="},
		Reason{Kind: FewerFit, Key: "count", Room: 3, Members: 5, Try: "count=3"}.And(Reason{Kind: EditCount}),
		{Kind: AskLess, Limit: 4}, {Kind: AwaitTenant}, {Kind: AwaitPart},
		{Kind: AskLess, Limit: 4, User: "ada"}, {Kind: AwaitTenant, User: "ada"},
		{Kind: ChangeJob}, {Kind: FixVersion},
	}},
	{"plan: train", []Reason{
		{Kind: WouldStart}, {Kind: WouldStart, Because: []Reason{{Kind: Provided, Jobs: []string{"default/nosuch", "default/mine"}}}},
		{Kind: WouldStart, Because: []Reason{{Kind: Provided, Jobs: []string{"default/a", "default/b"}}}},
		{Kind: WouldStartIdle},
		{Kind: WouldRest, Cause: "every group with GPUs has count = 0"},
		{Kind: WouldKeep, Needs: 1}, {Kind: WouldCanary, Needs: 4}, {Kind: WouldReplace, Needs: 4}, {Kind: WouldRestart, Needs: 4},
		{Kind: WouldRunOn, Needs: 4, Because: []Reason{{Kind: GPUs, Needs: 8, Free: 2}}},
	}},
}

// The file of examples is the product's voice: read it aloud.
func TestVoice(t *testing.T) {
	shown := map[Kind]bool{}
	var note func(r Reason)
	note = func(r Reason) {
		shown[r.Kind] = true
		for _, of := range append(r.Because, r.Also...) {
			note(of)
		}
	}
	var b strings.Builder
	for _, e := range examples {
		for _, r := range e.of {
			note(r)
			between := ": "
			if r.Kind.Predicate() {
				between = " "
			}
			b.WriteString(wrapped(e.state+between+r.String(), 80))
		}
		b.WriteString("\n")
	}
	const path = "testdata/reasons.txt"
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("-rewrite writes %s (-file +now):\n%s", path, d)
	}
	for _, name := range kinds(t) {
		if texts[name] == nil {
			t.Errorf("kind %s has no text", name)
		}
		if !shown[name] {
			t.Errorf("kind %s has no example", name)
		}
	}
	if n := len(kinds(t)); n != len(texts) {
		t.Errorf("%d kinds, and %d texts", n, len(texts))
	}
}

// kinds are the constants of the package.
func kinds(t *testing.T) (all []Kind) {
	f, err := parser.ParseFile(token.NewFileSet(), "text.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, is := n.(*ast.ValueSpec); is {
			if of, is := spec.Type.(*ast.Ident); is && of.Name == "Kind" {
				all = append(all, Kind(strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)))
			}
		}
		return true
	})
	if len(all) == 0 {
		t.Fatal("no kinds")
	}
	return all
}

// wrapped wraps a line at this column.
func wrapped(text string, columns int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		switch n := len([]rune(word)); {
		case i == 0:
			at = n
		case at+1+n > columns:
			b.WriteString("\n    ")
			at = 4 + n
		default:
			b.WriteString(" ")
			at += 1 + n
		}
		b.WriteString(word)
	}
	return b.String() + "\n"
}

// If a reader may not see a job, its name is not in the text, however deeply the reason is
// nested.
func TestFor(t *testing.T) {
	for _, e := range examples {
		for _, r := range e.of {
			hidden := Reason{Kind: NotWhole, Because: []Reason{r}}.And(r).RedactedFor(func(string) string { return "(hidden)" })
			b, err := json.Marshal(hidden)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range append(append([]string{r.Ahead}, r.Jobs...), r.Shrinking...) {
				if strings.Contains(name, "/") && strings.Contains(string(b), name) {
					t.Errorf("%s is in %s", name, b)
				}
			}
		}
	}
}

// JSON keeps the fields, and has the text for programs that only show it. A reason of an unknown
// kind, from a newer version, keeps its text.
func TestJSON(t *testing.T) {
	for _, e := range examples {
		for _, r := range e.of {
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var got Reason
			if err := json.Unmarshal(b, &got); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(r, got); d != "" {
				t.Errorf("%s: %s", b, d)
			}
		}
	}
	var newer Reason
	if err := json.Unmarshal([]byte(`{"kind":"moon","text":"the moon is full"}`), &newer); err != nil || newer.String() != "the moon is full" {
		t.Errorf("%v: %q", err, newer)
	}
	if b, err := json.Marshal(newer); err != nil || !strings.Contains(string(b), "the moon is full") {
		t.Errorf("%v: %s", err, b)
	}
}

// Another program's text becomes a clause: on one line, without its period.
func TestForeign(t *testing.T) {
	if got := Unread("first\n second. ").String(); got != "first second" {
		t.Errorf("%q", got)
	}
}
