// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/agent"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// simulate runs the command and returns what it printed.
func simulate(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	return simulatePast(t, want, nil, args...)
}

// simulatePast is the same with runs in the agent's history.
func simulatePast(t *testing.T, want int, past PastRuns, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := (Command{Past: past}).Run(args, &out, &errs); code != want {
		t.Fatalf("simulate %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	header := "job_id,gpus,submit_time,duration,model\n"
	good := write("good.csv", header+"0,1,5,10,vgg19\n")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no such file":          {[]string{"-trace", dir + "/none.csv"}, "no such file"},
		"unknown format":        {[]string{"-trace", write("x.csv", "a,b\n1,2\n")}, "x.csv:1: unknown trace format"},
		"empty":                 {[]string{"-trace", write("e.csv", header)}, "has no job that can be simulated\n"},
		"missing column":        {[]string{"-trace", write("c.csv", "job_id,gpus,submit_time,model\n")}, `c.csv:1: these columns are missing: duration or start_time and end_time (the table`},
		"nothing to play":       {[]string{"-trace", write("w.csv", "job_id,gpus,submit_time,duration\n0,0,5,10\n1,0,5,10\n2,1,5,0\n")}, "has no job that can be simulated; left out are 3 of 3 jobs: 2 no GPU, 1 no run time"},
		"policy":                {[]string{"-trace", good, "-policy", "best"}, `policy "best" is unknown; it must be one of pal, pm-first, packed, spread, random, nomad, nomad-spread, fifo, easy, easy-users`},
		"order":                 {[]string{"-trace", good, "-set", "order=best"}, `queue order "best" is unknown`},
		"profile":               {[]string{"-trace", good, "-profile", write("a.csv", "gpu,app,time\nGPU-0,A,100\n")}, `a.csv: no GPU has times for all application classes; GPU "GPU-0" has no time for class D`},
		"no profile":            {[]string{"-trace", good, "-profile", "A=" + good}, "reading -profile: open A="},
		"profile, column":       {[]string{"-trace", good, "-profile", good}, `good.csv:1: `},
		"estimates":             {[]string{"-trace", good, "-estimates", "wrong:0.5"}, `-estimates "wrong:0.5" is not`},
		"queue of a baseline":   {[]string{"-trace", good, "-policy", "easy", "-set", "order=fifo"}, "-set cannot be combined with -policy easy, which has a queue of its own"},
		"estimates of baseline": {[]string{"-trace", good, "-policy", "easy", "-estimates", "wrong:2"}, "-estimates cannot be combined with -policy easy, which has estimates of its own"},
		"configuration":         {[]string{"-trace", good, "-config", write("bad.hcl", "queue { order = \"best\" }\n")}, `queue order "best" is unknown`},
		"run of centuries":      {[]string{"-trace", write("slow.csv", "job_id,submit_time,duration,gpus,speed\na,0,86400000,8,\"V100=1,T4=0.000001\"\n"), "-gpus", "16xV100,32xT4", "-gpus-per-node", "8", "-policy", "nomad"}, `job "a" would run for`},
		"unknown flag":          {[]string{"-trase", good}, "simulate: flag provided but not defined: -trase (did you mean -trace?); see nomad-pal simulate -help\n"},
		"no key":                {[]string{"-set", "colour=red"}, `the block queue has no key "colour"; it has order, `},
		"models":                {[]string{"-gpus", "16xV100,P100"}, `"P100" is not COUNTxMODEL, such as 16xV100`},
		"history and trace":     {[]string{"-from-history", "-trace", good}, "-from-history cannot be combined with -trace"},
		"since of a trace":      {[]string{"-trace", good, "-since", "1d"}, "-since can be used only with -from-history"},
		"a model twice":         {[]string{"-gpus", "16xV100,4xV100"}, "V100 is listed twice"},
		"part of a node":        {[]string{"-gpus", "16xV100,6xP100"}, "-gpus: 6 GPUs of P100 cannot be divided into nodes of 4 GPUs (-gpus-per-node)"},
		"models and nodes":      {[]string{"-gpus", "16xV100,4xP100", "-nodes", "4"}, "-gpus cannot be combined with -nodes"},
		"estimates, infinite":   {[]string{"-estimates", "wrong:inf"}, `-estimates "wrong:inf" is not none`},
		"no outliers":           {[]string{"-outliers", "-2"}, "-outliers -2 is neither -1 nor a number of GPUs"},
		"countless nodes":       {[]string{"-nodes", "9000000000000000000"}, "-nodes 9000000000000000000 with -gpus-per-node 4 are more than 16777216 GPUs"},
		"number of a trace":     {[]string{"-trace", good, "-jobs", "5"}, "-jobs cannot be combined with -trace or -from-history, which read the jobs"},
		"kind of a trace":       {[]string{"-trace", good, "-generate", "heavy"}, "-generate cannot be combined with -trace"},
		"nodes of Nomad":        {[]string{"-from-history", "-nodes", "40"}, "-nodes cannot be combined with -from-history, which reads the cluster"},
		"profile of Nomad":      {[]string{"-from-history", "-profile", good}, "-profile cannot be combined with -from-history"},
		"measured outliers":     {[]string{"-profile", good, "-outliers", "3"}, "-outliers cannot be combined with -profile"},
		"other models":          {[]string{"-trace", write("om.csv", "job_id,submit_time,duration,gpus,speed\na,0,60,4,\"V100=1,K80=0.3\"\n"), "-gpus", "16xT4"}, "om.csv have speeds on K80, V100, but the cluster has only GPUs of nvidia/gpu/T4\n"},
		"no models":             {[]string{"-trace", write("om1.csv", "job_id,submit_time,duration,gpus,speed\na,0,60,4,\"V100=1,K80=0.3\"\n")}, "om1.csv have speeds on K80, V100, but -gpus does not give the models of the cluster\n"},
		"argument":              {[]string{"extra"}, `argument "extra" is not a flag`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, stderr := simulate(t, 1, tc.args...); !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") > 1 {
				t.Errorf("got %q, want it to say %q", stderr, tc.want)
			}
		})
	}
}

// TestExample: the table in the docs means what the docs say.
func TestExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/operators/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```csv\n")
	table, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the docs have no table")
	}
	file := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(file, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := simulate(t, 0, "-trace", file, "-outliers", "0", "-json")
	type job struct {
		ID, Class     string
		GPUs          int
		Start, Finish float64
	}
	var r struct {
		Jobs []struct {
			job
			Start  float64 `json:"start_s"`
			Finish float64 `json:"finish_s"`
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	is := map[string]job{}
	for _, j := range r.Jobs {
		is[j.ID] = job{j.ID, j.Class, j.GPUs, j.Start, j.Finish}
	}
	for what, holds := range map[string]bool{
		"two jobs":              len(is) == 2,
		"train has 18 GPUs":     is["train"].GPUs == 18 && is["train"].Class == "A" && is["train"].Start == 0,
		"tune has 2 to 8 GPUs":  is["tune"].GPUs == 8 && is["tune"].Start == 3600,
		"the class of a column": is["tune"].Class == "B",
	} {
		if !holds {
			t.Errorf("not so: %s\n%+v", what, is)
		}
	}
}

// TestLeftOut: the report says what is left out and why, and warns above a share of 5 %.
func TestLeftOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.csv")
	for _, tc := range []struct{ jobs, without int }{{19, 1}, {18, 2}} {
		text := "job_id,group,gpus,submit_time,duration\n"
		for i := range tc.jobs {
			text += fmt.Sprintf("%d,,1,%d,100\n", i, i)
		}
		for i := range tc.without {
			text += fmt.Sprintf("cpu%d,,0,1,100\n", i)
		}
		text += "0,,1,200,100\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		table, _ := simulate(t, 0, "-trace", file)
		out, said := simulate(t, 0, "-json", "-trace", file)
		var r struct {
			Skipped, Notes map[string]int
			Warnings       []string
			Jobs           []struct{ ID string }
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Jobs) != tc.jobs || r.Skipped["no GPU"] != tc.without || r.Notes["ran several times (requeued); the run times add up"] != 1 {
			t.Errorf("%d jobs, skipped %v, notes %v", len(r.Jobs), r.Skipped, r.Notes)
		}
		warning := "10.0 % of the jobs are left out: the figures cover the other jobs"
		warned := tc.without == 2
		if warned != (len(r.Warnings) == 1 && r.Warnings[0] == warning) || warned != strings.Contains(table, warning) || warned != strings.Contains(said, "warning: "+warning) {
			t.Errorf("%d left out of 20: warnings %q and %q, and\n%s", tc.without, r.Warnings, said, table)
		}
		if want := fmt.Sprintf("%d of 20 jobs: %d no GPU\n", tc.without, tc.without); !strings.Contains(table, want) || !strings.Contains(table, "1 job: ran several times") {
			t.Errorf("the table does not say %q:\n%s", want, table)
		}
	}
}

// TestMeasuredGPUs: with -profile, the cluster's GPUs are the measured GPUs of a table that
// nomad-pal profile export -csv writes. A GPU that lacks a class is left out.
func TestMeasuredGPUs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "times.csv")
	table := "gpu,app,time,model\nGPU-partial,A,100,H200\n"
	slow := map[int]map[string]float64{3: {"A": 300, "B": 150}, 5: {"A": 110}}
	for g := range 8 {
		for _, class := range []string{"A", "B", "C", "D"} {
			table += fmt.Sprintf("GPU-%d,%s,%g,H200\n", g, class, max(100, slow[g][class]))
		}
	}
	if err := os.WriteFile(file, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := Command{}.parse([]string{"-profile", file, "-nodes", "2", "-gpus-per-node", "8"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.population(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	count := map[[pal.NumClasses]pal.PMScore]int{}
	for _, s := range p.Scores {
		count[s]++
	}
	want := map[[pal.NumClasses]pal.PMScore]int{{1, 1, 1, 1}: 12, {3, 1.5, 1, 1}: 2, {1.1, 1, 1, 1}: 2}
	if !maps.Equal(count, want) {
		t.Errorf("scores of the 16 GPUs: %v, want %v", count, want)
	}
}

// TestRepeatable: the same seed gives the same bytes in every form, another
// seed does not.
func TestRepeatable(t *testing.T) {
	dir := t.TempDir()
	all := func(seed string) string {
		html := filepath.Join(dir, "r.html")
		out, _ := simulate(t, 0, "-jobs", "60", "-seed", seed, "-preempt", "-estimates", "wrong:3", "-json", "-html", html)
		page, err := os.ReadFile(html)
		if err != nil {
			t.Fatal(err)
		}
		return out + string(page)
	}
	one, again, other := all("7"), all("7"), all("8")
	if d := cmp.Diff(one, again); d != "" {
		t.Errorf("seed 7 twice:\n%.2000s", d)
	}
	if one == other {
		t.Error("seeds 7 and 8 give the same")
	}
	for _, want := range []string{"new uPlot(", "Waiting jobs", `"avg_jct_s"`, "average JCT"} {
		if !strings.Contains(one, want) {
			t.Errorf("the reports do not contain %q", want)
		}
	}
	loads := strings.ReplaceAll(one, "https://github.com/leeoniya/uPlot", "") // a comment in uPlot
	if strings.Contains(loads, "http://") || strings.Contains(loads, "https://") || strings.Contains(one, "<script src") {
		t.Error("the page is not self-contained")
	}
}

// TestEveryPolicyEnds runs every policy on a small generated workload.
func TestEveryPolicyEnds(t *testing.T) {
	var runs [][]string
	for _, policy := range pal.Policies() {
		for _, order := range queue.Orders() {
			runs = append(runs, []string{string(policy), "-set", "order=" + string(order)})
		}
	}
	for _, p := range sim.Baselines() {
		runs = append(runs, []string{p.Name})
	}
	for _, run := range runs {
		out, _ := simulate(t, 0, append([]string{"-jobs", "40", "-json", "-policy"}, run...)...)
		var r struct {
			AvgJCT float64 `json:"avg_jct_s"`
			Jobs   []struct {
				JCT float64 `json:"jct_s"`
			} `json:"jobs"`
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Jobs) != 40 || !(r.AvgJCT > 0) {
			t.Errorf("%v: %d jobs, average JCT %v", run, len(r.Jobs), r.AvgJCT)
		}
	}
	if f := figuresOf(t, "-policy", "nomad"); f.Restarts == 0 {
		t.Error("under plain Nomad no gang gives up")
	}
}

// A report says why jobs never finish: under the agent's queue because of a limit of their
// tenant, not because they hold GPUs.
func TestNeverFinishes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	jobs := write("jobs.csv", "job_id,gpus,submit_time,duration,tenant\nsmall,1,0,60,lab\nlarge,4,0,60,lab\n")
	config := write("agent.hcl", "tenant \"lab\" {\n  quota = 2\n  borrowing_limit = 0\n}\n")
	page := filepath.Join(dir, "page.html")
	out, _ := simulate(t, 0, "-trace", jobs, "-config", config, "-nodes", "1", "-outliers", "0", "-html", page)
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{out, string(html)} {
		if !strings.Contains(text, "more than a limit of their tenant") || strings.Contains(text, "hold GPUs and wait") {
			t.Errorf("%s", text[:min(len(text), 1500)])
		}
	}
	var nomad strings.Builder
	if err := (&Report{Policy: "nomad", Unfinished: 2}).writeTable(&nomad); err != nil || !strings.Contains(nomad.String(), "hold GPUs and wait for each other") {
		t.Error(nomad.String(), err)
	}
}

// TestFromHistory replays the agent's history on the cluster in Nomad. Work is the time for which
// a run ran, without waits, at slowdown 1. Runs that have not ended or cannot be played are
// counted.
func TestFromHistory(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(map[string]string{
			"/v1/nodes": `[{"ID":"n1","Name":"one","Datacenter":"dc1","NodeResources":{"Devices":[{"Vendor":"nvidia","Type":"gpu","Name":"H200",
				"Instances":[{"ID":"GPU-1"},{"ID":"GPU-2"}]}]}},{"ID":"n2","Name":"two","Datacenter":"dc1","NodeResources":{"Devices":[{"Vendor":"nvidia",
				"Type":"gpu","Name":"H200","Instances":[{"ID":"GPU-3"},{"ID":"GPU-4"}]}]}}]`,
		}[r.URL.Path]))
	}))
	defer server.Close()
	t.Setenv("NOMAD_ADDR", server.URL)
	at := func(minutes int) time.Time { return time.UnixMilli(1e12).Add(time.Duration(minutes) * time.Minute) }
	span := func(minutes int) palapi.Seconds { return palapi.Seconds(time.Duration(minutes) * time.Minute) }
	run := func(job string, gpus, member, submitted, minutes int) palapi.Run {
		return palapi.Run{Namespace: "default", Job: job, Class: "B", GPUs: gpus, MemberGPUs: member, State: palapi.RunComplete,
			Submitted: at(submitted), Started: at(submitted), Ended: at(submitted + minutes)}
	}
	// It waited 5 and 20 minutes, 5 minutes for its other members, and ran for 60 at slowdown
	// 1.5.
	train := run("train", 2, 2, 0, 90)
	train.Started, train.Whole, train.Waited, train.Predicted = at(5), at(10), span(25), 1.5
	whole := run("whole", 1, 1, 1000, 90)
	whole.Took, whole.State, whole.Preemptible, whole.Family = span(30), palapi.RunFailed, true, "parent"
	waits, runs, gone, never := run("waits", 1, 1, 0, 1), run("runs", 1, 1, 0, 1), run("gone", 1, 1, 0, 1), run("never", 1, 1, 0, 1)
	waits.State, waits.Started, waits.Ended = palapi.RunPending, time.Time{}, time.Time{}
	runs.State, runs.Ended = palapi.RunRunning, time.Time{}
	gone.State, never.State, never.Started = palapi.RunUnknown, palapi.RunStopped, time.Time{}
	mig, part := run("mig", 1, 1, 0, 90), run("part", 2, 2, 0, 90)
	mig.Model, part.Model, train.Model = "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "Tesla T4-SHARED", "Tesla T4"
	past := func(since string) ([]palapi.Run, error) {
		if since != "30d" {
			t.Errorf("asked for runs from %q", since)
		}
		return []palapi.Run{whole, train, waits, runs, gone, never, run("no GPU", 0, 0, 0, 1), run("short", 1, 1, 0, 0), run("all", 4, 0, 2000, 1), run("wide", 4, 4, 0, 1), mig, part}, nil
	}
	out, _ := simulatePast(t, 0, past, "-from-history", "-since", "30d", "-json")
	var got struct {
		GPUs    int            `json:"gpus"`
		Skipped map[string]int `json:"skipped"`
		Jobs    []jobLine      `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.GPUs != 4 || len(got.Jobs) != 3 {
		t.Fatalf("%d GPUs and jobs %+v, want 4 and 3", got.GPUs, got.Jobs)
	}
	train0, whole0, all0 := got.Jobs[0], got.Jobs[1], got.Jobs[2]
	if train0.ID != "default/train@2001-09-09T01:46:40.000Z" || train0.Class != "B" || train0.GPUs != 2 || train0.JCT != 40*60 || train0.Submit != 0 {
		t.Errorf("the first is %+v", train0)
	}
	if whole0.JCT != 30*60 || whole0.Submit != 1000*60 || all0.GPUs != 4 {
		t.Errorf("the others are %+v and %+v", whole0, all0)
	}
	if d := cmp.Diff(map[string]int{"still waiting": 1, "still running": 1, "no end": 1, "never started": 1, "no GPU": 1, "no run time": 1, "larger than the cluster": 1, "only parts of GPUs": 2}, got.Skipped); d != "" {
		t.Errorf("left out (-want +got):\n%s", d)
	}
	if j := jobOf(whole); !j.Preemptible || j.Name != "parent" || j.Tenant != "default" {
		t.Errorf("a preemptible one is %+v", j)
	}
	away := func(string) ([]palapi.Run, error) { return nil, errors.New("no agent answers") }
	if _, said := simulatePast(t, 1, away, "-from-history"); said != "simulate: no agent answers\n" {
		t.Errorf("without an agent: %s", said)
	}
	none := func(string) ([]palapi.Run, error) { return nil, nil }
	if _, said := simulatePast(t, 1, none, "-from-history"); !strings.Contains(said, `trace "the agent's history" has no job that can be simulated`) {
		t.Errorf("without runs: %s", said)
	}
}

type figures struct {
	AvgJCT   float64 `json:"avg_jct_s"`
	Restarts int     `json:"restarts"`
	Resizes  int     `json:"resizes"`
	Order    string  `json:"order"`
	Locality string  `json:"locality"`
	Jobs     []struct {
		ID       string  `json:"id"`
		JCT      float64 `json:"jct_s"`
		Slowdown float64 `json:"slowdown"`
	} `json:"jobs"`
}

func figuresOf(t *testing.T, args ...string) figures {
	t.Helper()
	out, _ := simulate(t, 0, append(args, "-json")...)
	var f figures
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// A program can read other traces, and have more policies.
func TestCommandOfAStudy(t *testing.T) {
	var read string
	c := Command{Policies: []sim.Policy{{Name: "mine", About: "my own", Queue: queue.Options{Order: queue.SRTF, Placement: pal.Policy{Name: pal.Packed}}}},
		ReadTrace: func(path string) (trace.Trace, error) {
			read = path
			return trace.SiaPhilly(1, trace.Shape{Jobs: 5}), nil
		}}
	for args, want := range map[string]string{"-help": "  mine\n    \tmy own\n", "-trace x -policy mine": "policy mine, order srtf"} {
		var out bytes.Buffer
		if code := c.Run(strings.Fields(args), &out, &out); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d\n%s", args, code, out.String())
		}
	}
	if read != "x" {
		t.Errorf("read %q", read)
	}
}

// TestPoliciesAreDescribed: -help describes each policy.
func TestPoliciesAreDescribed(t *testing.T) {
	_, help := simulate(t, 0, "-help")
	for _, p := range sim.Baselines() {
		if !strings.Contains(help, "  "+p.Name+"\n") || !strings.Contains(help, p.About) {
			t.Errorf("-help does not describe %s", p.Name)
		}
	}
	if list := strings.Trim(fmt.Sprint(pal.Policies()), "[]"); !strings.Contains(help, strings.ReplaceAll(list, " ", ", ")) {
		t.Errorf("-help does not list the placement policies: %s", list)
	}
}

// TestAgentsConfiguration: without flags all rules are the agent's; a configuration changes them,
// and flags override it.
func TestAgentsConfiguration(t *testing.T) {
	d := model.DefaultConfig()
	rules := func(args ...string) model.Config {
		t.Helper()
		o, err := Command{}.parse(args, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return o.rules
	}
	if diff := cmp.Diff(d, rules()); diff != "" {
		t.Errorf("without flags (-agent +simulate):\n%s", diff)
	}
	file := filepath.Join(t.TempDir(), "agent.hcl")
	text := `placement = "packed"
locality { cluster = 1.3 }
queue {
  order          = "las"
  backfill       = "best-effort"
  max_wait       = "6h"
  overdue_share  = 0.1
  preempt        = false
  migrate        = true
  quantum        = "30m"
  default_runtime = "20m"
  fair_share     = true
  usage_half_life = "24h"
  locality_wait  = false
  outlier_threshold = 1.7
  restart_cost   = "3m"
}
tenant "ann" {
  quota           = 8
  borrowing_limit = 0
  weight          = 2
}
calibration { min_gpus = 3 }
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := agent.Load([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	want, err := loaded.PlacerConfig()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, rules("-config", file)); diff != "" {
		t.Errorf("with a configuration (-agent +simulate):\n%s", diff)
	}
	want.Queue.Order, want.Queue.LocalityWait, want.RestartCost = "srtf", true, time.Second
	if diff := cmp.Diff(want, rules("-config", file, "-set", "order=srtf", "-set", "locality_wait=true", "-set", "restart_cost=1s")); diff != "" {
		t.Errorf("with flags over it (-want +got):\n%s", diff)
	}
	if f := figuresOf(t, "-config", file, "-jobs", "40"); f.Order != "las" || f.Locality != "node=1,cluster=1.3" {
		t.Errorf("the report says order %q and locality %q", f.Order, f.Locality)
	}
}

// TestPreemptedGangs: gangs are stopped only if they may be, and only if the queue preempts.
func TestPreemptedGangs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.hcl")
	if err := os.WriteFile(file, []byte("queue {\n  preempt = false\n  migrate = false\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := figuresOf(t); f.Restarts != 0 {
		t.Errorf("gangs that may not be stopped restarted %d times", f.Restarts)
	}
	if f := figuresOf(t, "-preempt"); f.Restarts == 0 {
		t.Error("gangs that may be stopped never were")
	}
	if f := figuresOf(t, "-preempt", "-config", file); f.Restarts != 0 {
		t.Errorf("the queue preempts nobody, but gangs restarted %d times", f.Restarts)
	}
}
