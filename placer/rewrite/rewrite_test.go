// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestStories: `job` reads a jobspec. The other commands print what the
// rewritten job has (+) and lacks (-) compared with the author's, as JSON
// leaves.
func TestStories(t *testing.T) {
	stories := 0
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.HasPrefix(path, "testdata/fuzz/") {
			return // inputs that the fuzz targets have found
		}
		stories++
		var author, last *api.Job
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "job":
				job, err := jobspec2.Parse(d.Pos, strings.NewReader(d.Input))
				if err != nil {
					return "error: " + err.Error() + "\n"
				}
				job.Canonicalize()
				author, last = rewrite.Author(job), job
				return diff(author, job)
			case "hints":
				h, err := rewrite.ParseHints(last)
				if err != nil {
					return "error: " + err.Error() + "\n"
				}
				return set(h)
			case "gate":
				last = rewrite.Gate(last)
			case "open":
				last = rewrite.Open(last)
			case "author":
				last = rewrite.Author(last)
			case "pin":
				job, err := rewrite.Pin(last, pinsOf(d), racksOf(d))
				if err != nil {
					return "error: " + err.Error() + "\n"
				}
				last = job
			default:
				d.Fatalf(t, "no command %q", d.Cmd)
			}
			return fmt.Sprintf("gated=%v\n%s", rewrite.Gated(last), diff(author, last))
		})
	})
	if stories == 0 {
		t.Fatal("no stories in testdata")
	}
}

// set lists the hints that differ from those of a job without hints, one per line.
func set(h rewrite.Hints) string {
	none, err := rewrite.ParseHints(&api.Job{})
	if err != nil {
		panic(err)
	}
	out, is, was := "", reflect.ValueOf(h), reflect.ValueOf(none)
	for _, f := range reflect.VisibleFields(is.Type()) {
		if v := is.FieldByIndex(f.Index); !v.Equal(was.FieldByIndex(f.Index)) {
			out += fmt.Sprintf("%s: %+v\n", f.Name, v)
		}
	}
	if out == "" {
		return "no hints\n"
	}
	return out
}

// pinsOf reads `pin mode=gpu group=(name, node+node, gpu+gpu) …`.
func pinsOf(d *datadriven.TestData) rewrite.Pins {
	p := rewrite.Pins{Mode: rewrite.ModeGPU}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "mode":
			p.Mode = rewrite.Mode(a.Vals[0])
		case "ceiling":
			fmt.Sscanf(a.Vals[0], "%d", &p.Ceiling)
			p.Class = pal.ClassA
		case "group":
			g := rewrite.GroupPins{Group: a.Vals[0], Nodes: strings.Split(a.Vals[1], "+")}
			if len(a.Vals) > 2 {
				g.GPUs = strings.Split(a.Vals[2], "+")
			}
			p.Groups = append(p.Groups, g)
		}
	}
	return p
}

// racksOf reads `pin … racks=(name, name)`.
func racksOf(d *datadriven.TestData) rewrite.Racks {
	for _, a := range d.CmdArgs {
		if a.Key == "racks" {
			return rewrite.Racks{Meta: "rack", Names: a.Vals}
		}
	}
	return rewrite.Racks{}
}

func diff(from, to *api.Job) string {
	a, b := leaves(from), leaves(to)
	var out []string
	for l := range b {
		if !a[l] {
			out = append(out, "+ "+l+"\n")
		}
	}
	for l := range a {
		if !b[l] {
			out = append(out, "- "+l+"\n")
		}
	}
	if len(out) == 0 {
		return "as the author wrote it\n"
	}
	slices.SortFunc(out, func(x, y string) int { return strings.Compare(x[2:], y[2:]) })
	return strings.Join(out, "")
}

// leaves flattens a job to "path = value" lines; a constraint is one leaf.
func leaves(j *api.Job) map[string]bool {
	b, err := json.Marshal(j)
	if err != nil {
		panic(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		panic(err)
	}
	out := map[string]bool{}
	flatten("job", v, out)
	return out
}

func flatten(path string, v any, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		if l, ok := v["LTarget"]; ok {
			out[fmt.Sprintf("%s = %v %v %v", path, l, v["Operand"], v["RTarget"])] = true
			return
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			flatten(path+"."+k, v[k], out)
		}
	case []any:
		for i, e := range v {
			flatten(fmt.Sprintf("%s[%d]", path, i), e, out)
		}
	default:
		out[fmt.Sprintf("%s = %v", path, v)] = true
	}
}

// TestUndo: whatever was done to a job, Author restores what the author wrote,
// Pin and Gate are idempotent, the pins can be read back, and the original job
// is unchanged.
func TestUndo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := drawJob(t)
		before := mustJSON(job)
		pins := drawPins(t, job)
		racks := rewrite.Racks{Meta: "rack", Names: rapid.SliceOfN(rapid.SampledFrom([]string{"r1", "r2"}), 0, 2).Draw(t, "racks")}
		pinned, err := rewrite.Pin(rewrite.Gate(job), pins, racks)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the input", string(before), string(mustJSON(job)))
		same(t, "undo after pin", job, rewrite.Author(pinned))
		same(t, "undo after gate", job, rewrite.Author(rewrite.Gate(job)))
		same(t, "undo after gate over pins", job, rewrite.Author(rewrite.Gate(pinned)))
		same(t, "open after gate over pins", pinned, rewrite.Open(rewrite.Gate(pinned)))
		again, err := rewrite.Pin(pinned, pins, racks)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "pin twice", pinned, again)
		same(t, "gate twice", rewrite.Gate(job), rewrite.Gate(rewrite.Gate(job)))
		read, ok := rewrite.Pinned(pinned)
		if !ok {
			t.Fatal("the pins are not recognized")
		}
		same(t, "the pins", pins, read)
		if rewrite.Gated(pinned) || !rewrite.Gated(rewrite.Gate(pinned)) {
			t.Fatal("the gate is not in its place")
		}
	})
}

func same(t *rapid.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s differs (-want +got):\n%s", what, d)
	}
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// drawJob draws a job with constraints of its own, some of which resemble ours.
func drawJob(t *rapid.T) *api.Job {
	own := rapid.SampledFrom([]*api.Constraint{
		{LTarget: "${attr.kernel.name}", RTarget: "linux", Operand: "="},
		{LTarget: "${node.unique.id}", RTarget: "n1,n2", Operand: "set_contains_any"},
		{LTarget: "${device.ids}", RTarget: "g1", Operand: "set_contains_any"},
		{LTarget: "${device.attr.unique.variability_a_le_2}", RTarget: "${device.ids}", Operand: "set_contains_any"},
		{LTarget: "${device.ids}", RTarget: "${device.attr.unique.variability_a_le_2}", Operand: "set_contains_any"},
	})
	constraints := func(name string) []*api.Constraint {
		cs := rapid.SliceOfN(own, 0, 3).Draw(t, name)
		if len(cs) == 0 {
			return nil
		}
		return cs
	}
	id := "train"
	job := &api.Job{ID: &id, Constraints: constraints("job"), Meta: map[string]string{"k": "v"}}
	for i := range rapid.IntRange(1, 3).Draw(t, "groups") {
		name := fmt.Sprintf("g%d", i)
		g := &api.TaskGroup{Name: &name, Constraints: constraints(name)}
		for k := range rapid.IntRange(1, 2).Draw(t, "tasks") {
			count := uint64(1)
			task := &api.Task{Name: fmt.Sprintf("t%d", k), Resources: &api.Resources{}}
			if k == 0 || rapid.Bool().Draw(t, "gpu") {
				task.Resources.Devices = []*api.RequestedDevice{
					{Name: "nvidia/gpu", Count: &count, Constraints: constraints("device")},
				}
			}
			g.Tasks = append(g.Tasks, task)
		}
		job.TaskGroups = append(job.TaskGroups, g)
	}
	return job
}

func drawPins(t *rapid.T, job *api.Job) rewrite.Pins {
	p := rewrite.Pins{Mode: rapid.SampledFrom([]rewrite.Mode{rewrite.ModeGPU, rewrite.ModeClass, rewrite.ModePrefer}).Draw(t, "mode")}
	if p.Mode == rewrite.ModeClass {
		p.Class, p.Ceiling = rapid.SampledFrom(pal.AppClasses()).Draw(t, "class"), rapid.IntRange(0, 12).Draw(t, "ceiling")
		if p.Ceiling == 0 {
			p.Class = "" // no class is written then
		}
	}
	for _, g := range job.TaskGroups {
		gp := rewrite.GroupPins{Group: *g.Name, Nodes: []string{"n1", "n3"}}
		if p.Mode == rewrite.ModeGPU || p.Mode == rewrite.ModeClass && rapid.Bool().Draw(t, "names GPUs") {
			gp.GPUs = []string{"g1", "g7"}
		}
		gp.Spread = rapid.Bool().Draw(t, "spread")
		p.Groups = append(p.Groups, gp)
	}
	return p
}

// Members that work independently get no pins that could keep Nomad from placing them.
func TestIndependentMembersHaveNoPins(t *testing.T) {
	for _, tc := range []struct {
		kind, pin, onFailure, locality string
		independent, ok                bool
	}{
		{"batch", "gpu", "member", "", true, false},
		{"batch", "class", "member", "", true, false},
		{"batch", "prefer", "member", "", true, true},
		{"batch", "", "member", "", true, true},
		{"batch", "gpu", "gang", "", false, true},
		{"service", "", "", "", true, true},
		{"service", "", "member", "", true, true},
		{"service", "prefer", "", "", true, true},
		{"service", "class", "", "", true, false},
		{"service", "gpu", "", "", true, false},
		{"service", "gpu", "gang", "", false, true},
		{"service", "class", "", "node", false, true},
		{"service", "", "gang", "", false, true},
	} {
		job := &api.Job{Type: &tc.kind, Meta: map[string]string{}, TaskGroups: []*api.TaskGroup{{Name: new("g")}}}
		for k, v := range map[string]string{"pal_pin": tc.pin, "pal_on_failure": tc.onFailure, "pal_locality": tc.locality} {
			if v != "" {
				job.Meta[k] = v
			}
		}
		h, err := rewrite.ParseHints(job)
		if ok := err == nil; ok != tc.ok || !ok && !strings.Contains(err.Error(), "is for gangs") {
			t.Errorf("%+v: %v", tc, err)
		}
		if err == nil && h.Independent(job) != tc.independent {
			t.Errorf("%+v: independent: %v", tc, h.Independent(job))
		}
	}
}

// A dry run of the members on one node requests the GPUs that they will get there.
func TestPinAlone(t *testing.T) {
	job, err := jobspec2.Parse("j", strings.NewReader("job \"j\" {\n group \"a\" {\n count = 4\n task \"t\" {\n driver = \"raw_exec\"\n resources {\n device \"nvidia/gpu\" {}\n }\n }\n }\n}"))
	if err != nil {
		t.Fatal(err)
	}
	job.Canonicalize()
	p := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "a", Nodes: []string{"n1", "n2"}, GPUs: []string{"g1", "g2"}}}}
	alone, err := rewrite.PinAlone(job, p, "n2", map[string]int{"a": 1})
	if err != nil {
		t.Fatal(err)
	}
	p.Groups[0].Nodes = []string{"n2"}
	if got, _ := rewrite.Pinned(alone); *alone.TaskGroups[0].Count != 1 || cmp.Diff(p, got) != "" {
		t.Errorf("%d members pinned to %+v", *alone.TaskGroups[0].Count, got)
	}
	if none, err := rewrite.PinAlone(job, p, "n2", nil); err != nil || *none.TaskGroups[0].Count != 0 {
		t.Errorf("members on other nodes: %v, %v", none, err)
	}
}

// The placer's additions to a job are distinguished from the author's.
func TestWrote(t *testing.T) {
	for _, c := range []struct {
		left, right string
		want        bool
	}{
		{rewrite.GateTarget, rewrite.GateValue, true},
		{"${node.unique.id}", "nomad-pal,n1", true},
		{"${node.unique.id}", "nomad-pal/class,n1", true},
		{"${meta.rack}", "nomad-pal/job,r1", true},
		{"${device.attr.pal_a_3}", "${device.ids}", true},
		{"${node.unique.id}", "n1,nomad-pal", false},
		{"${meta.app}", "nomad-pal-demo", false},
	} {
		if got := rewrite.Wrote(c.left, c.right); got != c.want {
			t.Errorf("%s, %s: %v", c.left, c.right, got)
		}
	}
}

// Durations are read in Go's format, with days, and in Slurm's format.
func TestSpans(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "+2d": 48 * time.Hour, "0d30s": 30 * time.Second,
		"00:03:00": 3 * time.Minute, "36:00:00": 36 * time.Hour, "1-12:00:00": 36 * time.Hour, "2-00": 48 * time.Hour, "1-12:30": 36*time.Hour + 30*time.Minute,
		"": 0, "0d": 0, "00:00:00": 0, "10:30": 0, "2days": 0, "-2d": 0, "1.5d": 0, "d": 0, "1-": 0, "1d-5h": 0,
	} {
		if got, err := rewrite.ParseSpan(s); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"999999d", "99999999999999999999d", "99999999-00:00:00", "2000000h"} {
		if _, err := rewrite.ParseSpan(s); err == nil || !strings.Contains(err.Error(), "maximum") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// An invalid hint is refused, and the error lists the valid values.
func TestHintsRefused(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"pal_preempt", "perhaps", "not true or false"},
		{"pal_duration", "-5m", "not a positive duration"},
		{"pal_duration", "0s", "not a positive duration"},
		{"pal_begin", "-1h", "nor a positive duration"},
		{"pal_checkpoint", "hourly", "not a positive duration"},
		{"pal_checkpoint", "1h", `add pal_preempt = "true"`},
		{"pal_array_parallel", "many", "not a positive integer"},
		{"pal_neighbours", "A, D,self", ""},
		{"pal_neighbours", "none,self", ""},
		{"pal_neighbours", "E", "must be an application class (A to D), any, none or self"},
		{"pal_neighbours", "", "must be an application class (A to D), any, none or self"},
		{"pal_neighbours", "none,A", "none can be combined only with self"},
		{"pal_neighbours", "any,none", "none can be combined only with self"},
		{"pal_after", strings.Repeat("a,", 20) + "b", ""},
		{"pal_after", "a,", "not a list of jobs such as"},
		{"pal_after", "a,j", "contains the job itself"},
		{"pal_begin", "16:00", "neither a time such as 2026-11-25T18:00:00Z nor a positive duration"},
		{"pal_after", "a,b,c,d,e,f,g,h,i,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,1,2,3,4,5,6,7,8", "more than 32 jobs"},
	} {
		id := "j"
		_, err := rewrite.ParseHints(&api.Job{ID: &id, Meta: map[string]string{c.key: c.value}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s = %q: %v, want %q", c.key, c.value, err, c.want)
		}
	}
}

// A duration of centuries counts as a hundred years: the sum of two must fit into 64 bits in the
// queue.
func TestLongSpans(t *testing.T) {
	for _, span := range []string{"2540400h", "9999999h", "999999999999999999999999h", "9999999.5h30m", "9999999d"} {
		meta := map[string]string{}
		for _, key := range []string{"pal_duration", "pal_begin"} {
			meta[key] = span
		}
		const want = 876000 * time.Hour
		if h, err := rewrite.ParseHints(&api.Job{Meta: meta}); err != nil || h.Duration != want || h.Begin.Within != want {
			t.Errorf("%s: %+v, %v, want %v", span, h, err, want)
		}
	}
	for _, span := range []string{"-9999999h", "9999999", "d", "h", ".h", "1h-9999999h"} {
		if h, err := rewrite.ParseHints(&api.Job{Meta: map[string]string{"pal_duration": span}}); err == nil {
			t.Errorf("%s: %+v", span, h)
		}
	}
}

// Nomad lets a job run as long as its longest group may, and without a limit if
// a group has none. Our rewrites keep the limit.
func TestLimit(t *testing.T) {
	group := func(name, extra string) string {
		return "group \"" + name + "\" {\n" + extra + "task \"t\" {\n driver = \"raw_exec\"\n resources {\n device \"nvidia/gpu\" {}\n }\n }\n }\n"
	}
	limit := func(d string) string { return "max_run_duration = \"" + d + "\"\n" }
	for name, tc := range map[string]struct {
		groups string
		want   time.Duration
	}{
		"none":                   {group("a", ""), 0},
		"one":                    {group("a", limit("90m")), 90 * time.Minute},
		"the longer":             {group("a", limit("90m")) + group("b", limit("2h")), 2 * time.Hour},
		"one group forever":      {group("a", limit("90m")) + group("b", ""), 0},
		"but of no members":      {group("a", limit("90m")) + group("b", "count = 0\n"), 90 * time.Minute},
		"none, says the author":  {group("a", limit("0s")), 0},
		"of 290 years":           {group("a", limit("2540400h")), 876000 * time.Hour},
		"one with many members":  {group("a", "count = 4\n"+limit("1h")), time.Hour},
		"both with many members": {group("a", "count = 4\n"+limit("1h")) + group("b", "count = 2\n"+limit("3h")), 3 * time.Hour},
	} {
		job, err := jobspec2.Parse(name, strings.NewReader("job \"j\" {\n type = \"batch\"\n"+tc.groups+"}\n"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		job.Canonicalize()
		if got := rewrite.Limit(rewrite.Gate(job)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// Only a valid name counts as a job's user: the name of a rejected job could be anything.
func TestUserOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"ann": "ann", " ann ": "ann", "": "", "a\nb": "", "\x00": "", strings.Repeat("x", 129): ""} {
		if got := rewrite.UserOf(&api.Job{Meta: map[string]string{"pal_user": name}}); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}
