// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// seen runs a command as at a terminal.
func (c *testCluster) seen(args ...string) (int, string, string) {
	c.t.Helper()
	var out, err bytes.Buffer
	ctx, cancel := patience.Context(c.t.Context(), patience.Long)
	defer cancel()
	code := run(ctx, args, streams{strings.NewReader(""), &out, &err, true})
	return code, out.String(), err.String()
}

// runs runs a job, and waits until explain shows the decision.
func (c *testCluster) runs(path, id string) {
	c.t.Helper()
	code, out, err := c.does("run", path)
	if code != 0 {
		c.t.Fatalf("run: %d\n%s%s", code, out, err)
	}
	if regexp.MustCompile(`(?m)^Reason .*pending`).MatchString(out) {
		c.t.Errorf("run does not wait until all members run:\n%s", out)
	}
	c.until(id+" is explained", func() bool {
		_, out, _ := c.does("explain", id)
		return regexp.MustCompile(`(?m)^GPUs +=`).MatchString(out)
	})
}

func (c *testCluster) firstAlloc(id string) *api.AllocationListStub {
	c.t.Helper()
	as, _, err := c.client("").API().Jobs().Allocations(id, false, nil)
	if err != nil || len(as) == 0 {
		c.t.Fatalf("allocations of %s: %v, %v", id, as, err)
	}
	return as[0]
}

// A GPU that was never measured has no PM scores, even if it is degraded and therefore in the last
// class.
func TestExplainDegradedUnmeasuredGPU(t *testing.T) {
	c := newCluster(t)
	node := nomadtest.GPUNode(2, 1)
	hot := "GPU-2-0"
	node.NodeResources.Devices[0].Attributes[attr.Degraded] = &api.Attribute{StringVal: &hot}
	c.nomad.AddNode(node)
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\n"))
	code, out, err := c.does("explain", hot)
	if code != 0 || !strings.Contains(out, "degraded") || !strings.Contains(out, "The GPU is not measured yet") {
		t.Errorf("%d\n%s%s", code, out, err)
	}
}

// explain answers with one sentence first, for jobs, GPUs, nodes and allocations, also
// if only a unique prefix of the name is given. It refuses an ambiguous prefix.
func TestExplainTargets(t *testing.T) {
	c := newCluster(t)
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\n"))
	c.runs(c.job("default", "train", 3), "train")
	alloc := c.firstAlloc("train")
	var gpus []struct{ ID, Node, Job string }
	if _, out, _ := c.does("gpus", "-json"); json.Unmarshal([]byte(out), &gpus) != nil {
		t.Fatal(out)
	}
	held, free := "", ""
	for _, g := range gpus {
		if g.Job != "" {
			held = g.ID
		} else {
			free = g.ID
		}
	}
	for _, s := range []struct{ name, want string }{
		{"train", "train runs on 3 GPUs of node "},
		{"tra", "train runs on 3 GPUs of node "},
		{alloc.ID[:7], "Allocation " + alloc.ID[:8] + " (train.g[0]) is running on node " + alloc.NodeName + ": a member of job train. train runs on 3 GPUs"},
		{held, "is allocated to default/train."},
		{free, "is free."},
		{alloc.NodeName, "Node " + alloc.NodeName + " has 4 GPUs: 3 allocated, 1 free."},
	} {
		code, out, err := c.does("explain", s.name)
		first, _, _ := strings.Cut(out, "\n")
		if code != 0 || !strings.Contains(first, s.want) {
			t.Errorf("%s: %d\n%s%s", s.name, code, out, err)
		}
		var as struct{ Kind, Summary string }
		timeless := func(s string) string { return regexp.MustCompile(`\(\d+s ago\)`).ReplaceAllString(s, "") } // time passes between the calls
		if _, out, _ := c.does("explain", "-json", s.name); json.Unmarshal([]byte(out), &as) != nil || timeless(as.Summary) != timeless(first) || as.Kind == "" {
			t.Errorf("%s: %+v is not %q\n%s", s.name, as, first, out)
		}
	}
	c.says(1, "type a longer prefix", "explain", held[:3])
	c.says(1, "-what-if is for jobs", "explain", "-what-if", "count=2", held)
	if code, _, err := c.does("explain", "nobody"); code != 1 || err != "Error: no job \"nobody\" in namespace \"default\"\nnomad-pal status lists the jobs with GPUs. -namespace=<name> selects another namespace.\n" {
		t.Errorf("an unknown name: %d %s", code, err)
	}
}

// A complete id takes precedence over longer ids with this prefix, also for a job that
// has ended or has no GPUs. If an id cannot be used in Nomad's HTTP API, the error says
// so.
func TestExplainWholeID(t *testing.T) {
	c := newCluster(t)
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\n"))
	c.runs(c.job("default", "train", 1), "train")
	c.runs(c.job("default", "trainee", 1), "trainee")
	if _, _, err := c.client("").API().Jobs().Deregister("train", false, nil); err != nil {
		t.Fatal(err)
	}
	c.until("train has ended", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "train was stopped")
	})
	if code, out, said := c.reads("job \"web\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"raw_exec\"\n    }\n  }\n}\n", "run", "-detach", "-"); code != 0 {
		t.Fatalf("%d %s%s", code, out, said)
	}
	if _, out, said := c.does("explain", "web"); !strings.HasPrefix(out, "web is left to Nomad") {
		t.Errorf("%s%s", out, said)
	}
	c.runs(c.job("default", "trains", 1), "trains")
	for id, want := range map[string]string{
		".": "conflicts with a path", "evaluate/plan": "ends with /plan, which", "./nosuch.hcl": "no such file",
		"trai": `job prefix "trai" is not unique: default/trainee, default/trains`, "nosuch": "no job \"nosuch\"",
	} {
		c.says(1, want, "explain", id)
	}
	if code, out, err := c.reads(`job "ml/evaluate" {
  group "g" {
    task "t" {
      driver = "raw_exec"
    }
  }
}`, "run", "-detach", "-"); code != 2 || !strings.Contains(err, "ends with /evaluate, which") {
		t.Errorf("run: %d %s%s", code, out, err)
	}
}

// After an edit that restarts the members, the gang keeps its GPUs: explain shows since when
// it has them, and when its members were restarted.
func TestExplainRestarted(t *testing.T) {
	c := newCluster(t)
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\n"))
	path := c.job("default", "train", 2)
	c.runs(path, "train")
	if _, out, _ := c.does("explain", "train"); strings.Contains(out, "again") {
		t.Errorf("before the edit:\n%s", out)
	}
	before := c.firstAlloc("train").ID
	edited := strings.Replace(jobText("default", "train", 2), "batch\"", "batch\"\n  meta {\n    pal_duration = \"1h\"\n  }", 1)
	if code, out, said := c.reads(edited, "run", "-"); code != 0 {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("explain tells of the restart", func() bool {
		_, out, _ := c.does("explain", "-verbose", "train")
		return strings.Contains(out, "; Nomad restarted its members ") && regexp.MustCompile(`Restarted +=`).MatchString(out)
	})
	if as, _, err := c.client("").API().Jobs().Allocations("train", false, nil); err != nil || len(as) < 2 {
		t.Errorf("the edit restarted no member: %v, %v (before: %s)", as, err, before)
	}
}

// When run submits a new version of a running service, it shows the new version's members. The old
// ones keep running until Nomad evaluates the update, which takes a while.
func TestRunUpdateOfService(t *testing.T) {
	c := newClusterWith(t, nomadtest.Options{Seed: 1, Scheduling: 300 * time.Millisecond})
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\n"))
	text := strings.Replace(jobText("default", "web", 2), `"batch"`, "\"service\"\n  update {\n    min_healthy_time = \"0s\"\n  }", 1)
	if code, out, said := c.reads(text, "run", "-"); code != 0 {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("the first version is deployed", func() bool {
		d, _, err := c.client("").API().Jobs().LatestDeployment("web", nil)
		return err == nil && d != nil && d.Status == api.DeploymentStatusSuccessful
	})
	before := c.firstAlloc("web").ID[:8]
	edited := strings.Replace(text, "update {", "meta {\n    edition = \"2\"\n  }\n  update {", 1)
	if code, out, said := c.reads(edited, "run", "-"); code != 0 || strings.Contains(out, before) {
		t.Errorf("%d %s%s", code, out, said)
	}
}

// run exits with 2 for a job that can never fit the cluster. For a job without GPUs, plan says what
// run does with it.
func TestRunUnschedulable(t *testing.T) {
	c := newCluster(t)
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\n"))
	c.says(2, "huge can never start here as written: needs 100 GPUs", "run", c.job("default", "huge", 100))
	cpu := strings.Replace(jobText("default", "cpu", 1), "nvidia/gpu", "vendor/fpga", 1)
	if code, out, said := c.reads(cpu, "plan", "-"); code != 0 || !strings.Contains(out, `the job requests no GPUs: its device "vendor/fpga" is not a GPU that nomad-pal serves, so nomad-pal leaves the job to Nomad`) {
		t.Errorf("plan: %d %s%s", code, out, said)
	}
	if code, out, said := c.reads(cpu, "run", "-detach", "-"); code != 0 {
		t.Errorf("run without a gate: %d %s%s", code, out, said)
	}
}

// For a job that runs on every node, plan and explain say what run does: Nomad alone places
// it.
func TestPlanOfSystemJob(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	for _, kind := range []string{"system", "sysbatch"} {
		text := strings.Replace(jobText("default", kind, 1), `"batch"`, `"`+kind+`"`, 1)
		want := kind + " is left to Nomad: Nomad alone would place the job: a " + kind + " job runs on every node, so nomad-pal has nothing to choose."
		for _, does := range []string{"plan", "explain"} {
			if code, out, said := c.reads(text, does, "-"); code != 0 || !strings.Contains(out, want) {
				t.Errorf("%s: %d %s%s", does, code, out, said)
			}
		}
		if code, out, said := c.reads(text, "run", "-detach", "-"); code != 0 || strings.Contains(out, "waiting") {
			t.Errorf("run: %d %s%s", code, out, said)
		}
	}
}

// A gate with a mistyped key is refused, and explained if Nomad has the job, because neither Nomad
// nor the placer would ever start it.
func TestMistypedGate(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort)
	gated := func(key, value string) string {
		constraint := fmt.Sprintf("constraint {\n    attribute = %q\n    value     = %q\n  }\n", key, value)
		return strings.Replace(jobText("default", "typo", 1), `group "g"`, constraint+`  group "g"`, 1)
	}
	for key, value := range map[string]string{"${meta.pal_gat}": rewrite.GateValue, "${meta.pal-gate}": "open", "${meta.PAL_GATE}": "open", "meta.pal_gate": "open"} {
		want := fmt.Sprintf("the constraint on %s = %q is mistyped: the gate is ${meta.pal_gate} = %q", key, value, rewrite.GateValue)
		if code, out, said := c.reads(gated(key, value), "run", "-detach", "-"); code != 2 || !strings.Contains(said, want) {
			t.Errorf("run: %d %s%s", code, out, said)
		}
		if code, out, said := c.reads(gated(key, value), "plan", "-"); code != 2 || !strings.Contains(out, want) {
			t.Errorf("plan: %d %s%s", code, out, said)
		}
	}
	b := base{ctx: t.Context(), namespace: "default"}
	b.io.in = strings.NewReader(gated("${meta.pal_gat}", "open"))
	job, _, err := b.readJob("-", &jobFlags{})
	if err == nil {
		_, _, err = c.client("").API().Jobs().Register(job, nil) // as nomad job run does
	}
	if err != nil {
		t.Fatal(err)
	}
	c.until("explain tells of the gate", func() bool {
		_, out, _ := c.does("explain", "typo")
		return strings.Contains(out, "Nomad has placed none of the job's members: the constraint on ")
	})
	if code, out, said := c.reads(gated("${meta.gate}", "open"), "plan", "-"); code == 2 && strings.Contains(out, "mistyped") {
		t.Errorf("another key: %d %s%s", code, out, said)
	}
}

// If a name is ambiguous or not a job's, the error lists what it may
// mean.
func TestExplainNames(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	c.runs(c.job("default", "train", 2), "train")
	for name, want := range map[string]string{
		"TRAIN": `no job "TRAIN" in namespace "default" (did you mean "train"?)`,
		"trian": `(did you mean "train"?)`,
		"GPU-0": `"GPU-0" matches 4 GPUs and nodes: type a longer prefix (GPU-0-0, GPU-0-1, GPU-0-2, GPU-0-3)`,
	} {
		c.says(1, want, "explain", name)
	}
	hint := strings.Replace(jobText("default", "typo", 1), "batch\"", "batch\"\n  meta {\n    pal_clas = \"A\"\n  }", 1)
	if _, out, said := c.reads(hint, "explain", "-"); !strings.Contains(out, "(did you mean \"pal_class\"?).") {
		t.Errorf("a hint: %s%s", out, said)
	}
}

// A job that the placer may stop may release its GPUs long before it ends.
func TestWhenHoldersEnd(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		of   palapi.Holder
		want string
	}{
		{palapi.Holder{}, "unknown: the job has neither pal_duration nor earlier runs, or has run longer than predicted"},
		{palapi.Holder{Preemptible: true}, "unknown: the job has neither pal_duration nor earlier runs, or has run longer than predicted; nomad-pal may stop the job for other jobs (pal_preempt)"},
		{palapi.Holder{Preemptible: true, Stopping: true}, "soon: the job was stopped, and its tasks are ending"},
		{palapi.Holder{Service: true}, "when somebody stops the job, which is a service"},
	} {
		if got := whenItEnds(c.of, now); got != c.want {
			t.Errorf("%+v: %s", c.of, got)
		}
	}
	if got := whenItEnds(palapi.Holder{Preemptible: true, EndFrom: now.Add(time.Hour), EndTo: now.Add(2 * time.Hour)}, now); !strings.HasSuffix(got, "; nomad-pal may stop the job for other jobs (pal_preempt)") || !strings.HasPrefix(got, "in ") {
		t.Error(got)
	}
}

// -what-if predicts for jobs that run, wait, or are not submitted, and changes
// nothing.
func TestExplainWhatIf(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	c.runs(c.job("default", "train", 4), "train")
	wide := c.written("wide.hcl", strings.Replace(jobText("default", "wide", 4), `group "g" {`, "group \"g\" {\n    count = 2", 1))
	c.must("run", "-detach", wide)
	c.until("it waits", func() bool {
		_, out, _ := c.does("explain", "-verbose", "wide")
		return strings.Contains(out, "Who holds the GPUs that this job could use") && strings.Contains(out, "default/train")
	})
	if _, out, _ := c.does("explain", "wide"); !strings.Contains(out, "wide has waited for ") || !strings.Contains(out, "With count = 1 instead of 2, the job would fit now.") || !strings.Contains(out, "There is enough room for this job when default/train has ended.") {
		t.Error(out)
	}
	for _, s := range []struct{ what, of, want string }{
		{"count=1", "wide", "With count=1: wide would start now, on 4 GPUs of node "},
		{"count=1,pal_class=B", wide, "With count=1: With pal_class=B: wide would start now, on 4 GPUs of node "},
		{"gpus=5", "wide", "can never start here as written"},
		{"g.count=3", "wide", "With g.count=3: wide can never start"},
		{"priority=90", "wide", "With priority=90: wide would wait: "},
		{"pal_locality=node", "train", "With pal_locality=node: train runs on 4 GPUs and would keep them"},
		{"gpus=2", "train", "now needs different GPUs: nomad-pal would stop the whole job and start it again; its members would be on 2 GPUs"},
	} {
		code, out, said := c.does("explain", "-what-if", s.what, s.of)
		if first, _, _ := strings.Cut(out, "\n"); code != 0 || !strings.Contains(first, s.want) {
			t.Errorf("%s of %s: %d\n%s%s", s.what, s.of, code, first, said)
		}
	}
	for what, want := range map[string]string{
		"count":         "is not <key>=<value>",
		"count=0":       `"0" is not a positive integer`,
		"speed=1":       "no such key",
		"pal_class=Z":   `application class "Z" is unknown`,
		"other.count=2": `no group "other" with GPUs`,
	} {
		c.says(1, want, "explain", "-what-if", what, "wide")
	}
	c.says(0, "wide would wait: ", "explain", filepath.Clean(wide))
}

// A table uses the whole width of its terminal, but sentences stay short.
func TestWidthOfTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this machine has no terminals: ", err)
	}
	defer master.Close()
	for wide, want := range map[uint16][2]int{0: {columns, columns}, 60: {columns, 60}, 200: {200, columns}} {
		if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: wide}); err != nil {
			t.Fatal(err)
		}
		b := base{io: streams{out: &quoting{w: master}, terminal: true}}
		if got := [2]int{b.io.width(), b.io.sentenceWidth()}; got != want {
			t.Errorf("%d columns: tables and sentences have %v, want %v", wide, got, want)
		}
	}
}

// On a terminal, lines have at most 80 columns, unless names are long; elsewhere lines
// are not cut. Only terminals get colour, and users who request it.
func TestTerminal(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	long := "a-job-of-a-name"
	c.runs(c.job("default", long, 2), long)
	c.must("run", "-detach", c.job("default", "waits-"+long, 9))
	t.Setenv("TERM", "xterm")
	alloc := c.firstAlloc(long)
	c.until("the agent knows both jobs", func() bool {
		_, out, _ := c.does("status")
		return strings.Contains(out, "waits-"+long) && strings.Contains(out, "running")
	})
	for _, args := range [][]string{{"explain", long}, {"explain", "-verbose", long}, {"explain", "-verbose", "waits-" + long}, {"explain", alloc.NodeName}, {"explain", alloc.ID}, {"status"}, {"queue"}, {"gpus"}, {"plan", c.job("default", "p-"+long, 1)}} {
		t.Setenv("NO_COLOR", "1")
		_, out, _ := c.seen(args...)
		for line := range strings.Lines(out) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
				t.Errorf("%v: %d columns: %s", args, n, line)
			}
		}
		if strings.Contains(out, "\x1b") || out == "" {
			t.Errorf("%v: %q", args, out)
		}
		t.Setenv("NO_COLOR", "")
		if _, out, _ := c.seen(args...); strings.HasPrefix(args[0], "explain") && !strings.HasPrefix(out, "\x1b[1m") {
			t.Errorf("%v has no colour: %q", args, out)
		}
	}
	if _, out, _ := c.does("explain", long); !strings.Contains(out, long) || strings.Contains(out, "\x1b") {
		t.Errorf("not on a terminal:\n%s", out)
	}
	t.Setenv("NO_COLOR", "1")
	if _, out, _ := c.seen("explain", long); strings.Contains(out, "\x1b") || out == "" {
		t.Errorf("NO_COLOR: %q", out)
	}
}

// In every state, explain prints at most ten lines: the headline, and what the reader needs next.
// -verbose adds the evidence.
func TestExplainTenLines(t *testing.T) {
	now := time.Now()
	gpus := pal.ChosenMember{Group: "g", Node: "node-1", Device: "nvidia/gpu/NVIDIA H200"}
	names := map[string]string{}
	for i := range 9 {
		id := fmt.Sprintf("GPU-%d", i)
		gpus.GPUs, names[id] = append(gpus.GPUs, pal.ChosenGPU{ID: id, PMScore: 1, Class: uint8(1 + i%2)}), fmt.Sprintf("node-1:%d", i)
	}
	chosen := &pal.Decision{Demand: 9, Policy: "pal", Chosen: &pal.Choice{Members: []pal.ChosenMember{gpus}, Nodes: 1, Tier: pal.TierNode, Cost: 1}}
	remedies := []reason.Reason{{Kind: reason.FixVersion}, {Kind: reason.FixVersion}, {Kind: reason.FixVersion}}
	hold := reason.Reason{Kind: reason.Held, Cause: "root", Until: now}
	of := []palapi.Allocation{{ID: "12345678-1", Group: "g", Node: "node-1", Status: "pending", GPUs: []string{"GPU-0"}}}
	holders := &palapi.Holders{Enough: true, Jobs: []palapi.Holder{{Job: "default/other", GPUs: 8, Needed: true}}}
	const gpuLine = `GPUs +=.* node-1:0 .* node-1:7 and 1 more; variability class 1, 2; NVIDIA H200; locality node\n`
	for name, c := range map[string]struct {
		e    palapi.Explanation
		want string
	}{
		"running":       {palapi.Explanation{State: palapi.Running, Decision: chosen, Allocations: of, Hold: hold, EndWhy: "unknown", Remedies: remedies}, gpuLine},
		"starting":      {palapi.Explanation{State: palapi.Starting, Decision: chosen, Decided: now, Allocations: of}, gpuLine},
		"waiting":       {palapi.Explanation{State: palapi.Waiting, Decision: chosen, Reason: reason.Reason{Kind: reason.GPUs, Needs: 9}, Wait: &queue.Wait{Position: 2, Ahead: "default/first"}, StartFrom: now.Add(time.Hour), StartTo: now.Add(2 * time.Hour), Holders: holders, Remedies: remedies, Try: "count=1"}, `Would get now +=(.|\n)*Position +=.* 2; default/first goes first\nExpected start +=.* \(in 60m–120m\)\. There is enough room for this job when default/other has ended\.\n(Next .*\n){2}Next +=.* 2 more steps: add -verbose\n$`},
		"no forecast":   {palapi.Explanation{State: palapi.Waiting, Wait: &queue.Wait{Position: 1}, Holders: holders}, `Expected start = unknown. There is enough`},
		"held":          {palapi.Explanation{State: palapi.Waiting, Reason: hold, Hold: hold, Wait: &queue.Wait{Position: 1}}, `Next +=.* nomad-pal hold -lift`},
		"stopping":      {palapi.Explanation{State: palapi.Completing, Reason: reason.Reason{Kind: reason.GPUs, Needs: 9}, Wait: &queue.Wait{Position: 1}, Allocations: of}, `GPUs +=.* node-1:0\n`},
		"given up":      {palapi.Explanation{State: palapi.Failed, Reason: reason.Unread("x"), Failures: []palapi.Try{{Failure: palapi.Failure{Alloc: "12345678-1"}}}}, `Next +=.* nomad alloc logs`},
		"finished":      {palapi.Explanation{State: palapi.Ended, Outcome: &palapi.Outcome{Status: "complete", At: now}, Decision: chosen}, gpuLine},
		"not a gang":    {palapi.Explanation{State: palapi.Native, Reason: reason.Reason{Kind: reason.Ungated}, Allocations: of}, `GPUs +=.* node-1:0\n`},
		"never":         {palapi.Explanation{State: palapi.Unschedulable, Wait: &queue.Wait{Position: 1}, Remedies: remedies, Try: "count=1"}, `(Next .*\n){3}$`},
		"unread":        {palapi.Explanation{State: palapi.Rejected, Reason: reason.Unread("x")}, `is rejected`},
		"parameterized": {palapi.Explanation{State: palapi.Template, StartRun: "nomad job dispatch j"}, `Next = To start a run`},
	} {
		c.e.Job, c.e.Namespace, c.e.GPUNames = "j", "default", names
		var out, more bytes.Buffer
		printExplanation(&base{io: streams{out: &out}}, &c.e)
		if n := strings.Count(out.String(), "\n"); n > 10 || !regexp.MustCompile(c.want).MatchString(out.String()) {
			t.Errorf("%s: %d lines, want %s\n%s", name, n, c.want, out.String())
		}
		printExplanation(&base{io: streams{out: &more}, verbose: true}, &c.e)
		if strings.Contains(more.String(), "-verbose") || !regexp.MustCompile(`(?m)^Namespace +=`).MatchString(more.String()) {
			t.Errorf("%s, verbose:\n%s", name, more.String())
		}
	}
}
