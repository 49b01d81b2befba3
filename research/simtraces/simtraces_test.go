// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// madeUp is a directory with an invented trace of three virtual clusters, one of them with few
// jobs.
func madeUp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := "job_id,user,vc,gpu_num,submit_time,duration\n"
	sizes := []int{1, 2, 4, 8, 12}
	add := func(vc string, jobs, widths, seconds int) {
		for i := range jobs {
			at := time.Date(2020, 1, 1, 0, 0, 600*i, 0, time.UTC)
			text += fmt.Sprintf("%s%d,u,%s,%d,%s,%d\n", vc, i, vc, sizes[i%widths], at.Format(time.DateTime), seconds*(1+i%7))
		}
	}
	add("large", minJobs, 5, 2000)
	add("small", minJobs, 3, 500)
	add("tiny", minJobs-1, 2, 10)
	if err := os.Mkdir(filepath.Join(dir, "traces"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "traces", "philly.csv"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFind: find splits existing traces, and names missing ones.
func TestFind(t *testing.T) {
	found, missing, err := find(madeUp(t))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range found {
		got = append(got, fmt.Sprintf("%s: %s, %d jobs", s.part, s.trace.Name, len(s.trace.Jobs)))
	}
	want := []string{"whole: Philly, 1499 jobs", "choose: Philly, large, 500 jobs", "report: Philly, small, 500 jobs"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(missing) != len(known())-1 || !strings.Contains(strings.Join(missing, "\n"), "Helios Venus (traces/Venus/cluster_log.csv)") {
		t.Errorf("missing: %q", missing)
	}
	if _, _, err := find(""); err == nil || !strings.Contains(err.Error(), "PAL_DATA") {
		t.Errorf("without a directory: %v", err)
	}
	bad := t.TempDir()
	if err := os.WriteFile(filepath.Join(bad, "sia_workload_1.csv"), []byte("what,is,this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := find(bad); err == nil {
		t.Error("an unreadable trace gives no error")
	}
}

// TestCells: every cell has its load, on whole nodes with room for the widest gang, and one GPU
// in 64 is an outlier.
func TestCells(t *testing.T) {
	jobs := trace.HeavyTail(1, 3000, 256, 0.5)
	cs := cells(source{jobs, whole}, false)
	if len(cs) != 12 {
		t.Fatalf("%d cells, want 2 ways × 3 loads × 2 populations", len(cs))
	}
	for _, c := range cs {
		work, last := 0.0, 0.0
		for _, j := range c.jobs {
			work += j.WorkS() * float64(j.GPUs)
			last = j.SubmitS
			if j.GPUs > c.GPUs || j.MemberGPUs > c.TaskGPUs {
				t.Errorf("%s: job of %d GPUs in members of %d", c, j.GPUs, j.MemberGPUs)
			}
		}
		if got := work / (float64(c.GPUs) * (last - c.jobs[0].SubmitS)); math.Abs(got-c.Load) > 0.001 {
			t.Errorf("%s: the load is %v", c, got)
		}
		if c.GPUs%8 != 0 || c.Outliers != 0 && c.Outliers != max(1, c.GPUs/64) {
			t.Errorf("%s: wrong number of GPUs or outliers", c)
		}
	}
	if quick := cells(source{jobs, chosen}, true); len(quick) != 3 || quick[0].Jobs != quickJobs {
		t.Errorf("quick: %d cells of %d jobs", len(quick), quick[0].Jobs)
	}
	if quick := cells(source{jobs, whole}, true); quick != nil {
		t.Errorf("with quick, a whole cluster has %d cells", len(quick))
	}
	for _, c := range cells(source{jobs, sia}, false) {
		if c.GPUs != 64 || c.NodeGPUs != 4 || c.jobs[1].SubmitS != jobs.Jobs[1].SubmitS {
			t.Errorf("%s: the artifact's workloads have a cluster and a load of their own", c)
		}
	}
}

// TestRun: all policies run on all cells; the results are JSON, one line per run, and tables.
func TestRun(t *testing.T) {
	t.Setenv("PAL_DATA", madeUp(t))
	out := t.TempDir()
	o := options{json: filepath.Join(out, "r.json"), tables: filepath.Join(out, "r.md"), csv: filepath.Join(out, "r.csv"), runs: filepath.Join(out, "runs"), quick: true, workers: 2, only: regexp.MustCompile("large|small")}
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(o.json)
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Trace  string
		Part   part
		Policy string
		Load   float64
		Avg    float64 `json:"avg_jct_s"`
		Never  int     `json:"never_finished"`
		Asked  int     `json:"forecasts"`
	}
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	limits, answers := map[string]float64{}, map[string]int{}
	for _, r := range rows {
		answers[r.Policy] += r.Asked
		if r.Policy == limit {
			limits[fmt.Sprint(r.Trace, r.Load)] = r.Avg
		}
	}
	for policy, n := range answers {
		if (n > 0) != slices.Contains(asked(), policy) {
			t.Errorf("%s: %d starts were predicted", policy, n)
		}
	}
	if want := 2 * 3 * len(policies()); len(rows) != want || len(limits) != 6 {
		t.Errorf("%d runs in 6 cells, want %d; %d limits", len(rows), want, len(limits))
	}
	for _, r := range rows {
		// The clairvoyant policy is no proven bound, so a run may be a little better.
		if !(r.Avg > 0) || r.Never > 0 || r.Avg < 0.98*limits[fmt.Sprint(r.Trace, r.Load)] {
			t.Errorf("%+v: the average of the clairvoyant policy is %v s", r, limits[fmt.Sprint(r.Trace, r.Load)])
		}
	}
	if b, err = os.ReadFile(o.tables); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Virtual clusters not used to choose the rules",
		"| ours, preempting |", "| ours, preempting, exact times |",
		"## Expected starts", "| lost: average, p99, makespan |", "the best other policy that stops no gang", "| clairvoyant | 1.00 |", "; Acme Seren; ", "make sim-traces-quick SIM_TRACES_ARGS=\"-only 'large|small'\""} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the tables do not say %q", want)
		}
	}
	if strings.Contains(string(b), ", no bound |") || strings.Contains(string(b), "-unbounded |") {
		t.Error("the tables have policies without a limit on waiting, which belong only in the JSON file")
	}
	if strings.Contains(string(b), "NaN") || strings.Contains(string(b), "Inf") || strings.Contains(string(b), "Incomplete") {
		t.Errorf("the tables are incomplete:\n%s", b)
	}
	if b, err = os.ReadFile(o.csv); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	if err != nil || len(lines) != 1+2*6 || lines[1][0] != "Philly, large" || lines[1][6] != "nothing" || lines[2][6] != "exact times" {
		t.Errorf("a line for each of 6 cells and for what ours is told: %v\n%s", err, b)
	}
	// A second time, only the run with the incomplete line is made again.
	whole, err := os.ReadFile(o.runs)
	if err != nil {
		t.Fatal(err)
	}
	kept := strings.SplitAfter(string(whole), "\n")
	const mark = `"avg_jct_s":1,` // mark of an old run: such a run must not be made again
	changed := regexp.MustCompile(`"avg_jct_s":[^,]+,`).ReplaceAllString(strings.Join(kept[:len(kept)-2], ""), mark)
	if err := os.WriteFile(o.runs, []byte(changed+kept[len(kept)-2][:40]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile(o.json); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(b), mark); got != len(rows)-1 {
		t.Errorf("%d of %d runs are the kept ones, want all but one", got, len(rows))
	}
	o.only = regexp.MustCompile("none")
	if err := o.run(); err == nil {
		t.Error("no trace to run is no error")
	}
}

// TestAgain: with -again, only some policies run again, on some traces. All other runs stay as
// published, even those of a missing trace, and the page says so. Runs that were not published
// are not made.
func TestAgain(t *testing.T) {
	t.Setenv("PAL_DATA", madeUp(t))
	dir := t.TempDir()
	o := options{json: filepath.Join(dir, "r.json"), tables: filepath.Join(dir, "r.md"), quick: true, workers: 1}
	if err := o.compile("small", "^las"); err != nil {
		t.Fatal(err)
	}
	if err := o.run(); err == nil {
		t.Error("without results there is nothing to run again")
	}
	found, _, err := find(os.Getenv("PAL_DATA"))
	if err != nil {
		t.Fatal(err)
	}
	all := []*result{{cell: cell{Trace: "Helios Venus", Part: whole, Load: 0.6, Jobs: 1}}}
	for _, s := range found {
		all = append(all, cells(s, true)...)
	}
	var rows []row
	for _, c := range all {
		for _, p := range policies() {
			if c.Trace == "Philly, small" && c.Load == 1.1 {
				continue // not run yet
			}
			rows = append(rows, row{c.cell, run{Policy: p.name, AvgJCT: 1, P99: 1, Makespan: 1}})
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.json, text, 0o600); err != nil {
		t.Fatal(err)
	}
	o.version = "2026-11-25 0123abcd"
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	got, err := o.published()
	if err != nil || len(got) != len(rows) {
		t.Fatalf("%d of %d runs (%v)", len(got), len(rows), err)
	}
	for _, r := range got {
		if again := strings.HasPrefix(r.Policy, "las") && r.Trace == "Philly, small"; again != (r.AvgJCT != 1) || again != (r.Of == o.version) {
			t.Errorf("%s, %s: average %v, of %q", r.Trace, r.Policy, r.AvgJCT, r.Of)
		}
	}
	b, err := os.ReadFile(o.tables)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2026-11-25 0123abcd: 0 and 4.", "not recorded: 72 and 95; ", "Incomplete: 9 of 10 cells."} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the tables do not say %q:\n%.3000s", want, b)
		}
	}
	if regexp.MustCompile("Not run.*Helios Venus").Match(b) {
		t.Errorf("Helios Venus was run:\n%.3000s", b)
	}
}

// TestPolicies: the policies include ours with and without a limit on waiting, and the
// clairvoyant one, each once.
func TestPolicies(t *testing.T) {
	times := map[string]int{}
	for _, p := range policies() {
		times[p.name]++
	}
	for _, want := range []string{"ours", "ours, no bound", "ours, preempting", "ours, preempting, no bound",
		"ours, exact times", "ours, preempting, exact times", limit} {
		if times[want] == 0 {
			t.Errorf("%s is missing", want)
		}
	}
	for name, n := range times {
		if n != 1 {
			t.Errorf("%s occurs %d times", name, n)
		}
	}
}

// Results are published for one seed only.
func TestSeedIsForTrying(t *testing.T) {
	if err := (options{seed: 43}).run(); err == nil || !strings.Contains(err.Error(), "-seed can be used only with -try") {
		t.Errorf("a seed without a policy to try: %v", err)
	}
}

// Tables of only some cells say so.
func TestPartSaysSo(t *testing.T) {
	dir := t.TempDir()
	o := options{tables: filepath.Join(dir, "t.md"), workers: 1}
	small := &result{cell: cell{Trace: "small", Part: chosen, TaskGPUs: 8, NodeGPUs: 8, Load: 0.6, GPUs: 32, Jobs: 1}, jobs: []trace.Job{{ID: "a", Class: "A", GPUs: 1, Iterations: 60, IterTimeS: 1}}}
	broken := &result{cell: cell{Trace: "broken", Part: chosen, TaskGPUs: 8, NodeGPUs: 8, Load: 0.6, GPUs: 0, Jobs: 2}}
	if err := o.measure(report{cells: []*result{small, broken}}); err == nil {
		t.Fatal("a cell without GPUs can be run")
	}
	b, err := os.ReadFile(o.tables)
	if err != nil || !strings.Contains(string(b), "Incomplete: 1 of 2 cells.") {
		t.Errorf("the tables of one cell do not say that another one is missing (%v):\n%.600s", err, b)
	}
}

func TestInTasks(t *testing.T) {
	for gpus, want := range map[int]int{1: 1, 2: 2, 8: 8, 9: 8, 10: 5, 11: 8, 12: 6, 16: 8, 20: 5} {
		jobs := []trace.Job{{GPUs: gpus}}
		if in := inTasks(jobs, 8)[0].MemberGPUs; in != want || jobs[0].MemberGPUs != 0 {
			t.Errorf("%d GPUs in tasks of up to 8: of %d, want %d", gpus, in, want)
		}
	}
}
