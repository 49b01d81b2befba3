// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/advice"
	"github.com/nomad-pal/nomad-pal/internal/version"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// adviceOnTyping follows commands' advice about their own arguments.
func adviceOnTyping(t *testing.T, f *advice.Followed) {
	c := newCluster(t)
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\n"))
	c.nomad.AddNamespace("research")
	c.runs(c.job("default", "train", 1), "train")
	c.quarantines("GPU-1-0", "GPU-1-1")
	own := c.written("times.csv", "gpu,app,time\nGPU-0-0,A,100\nGPU-0-1,A,101\n")
	foreign := c.written("foreign.csv", "gpu,app,time\nG-0,A,4\nG-1,A,5\n")
	modelled := c.written("modelled.csv", "gpu,model,app,time\nG-0,M,A,4\nG-1,M,A,5\n")
	admits := c.written("admits.hcl", "admission {}\n")
	misplaced, misspelt := c.written("misplaced.hcl", "order = \"fifo\"\n"), c.written("misspelt.hcl", "quee {\n  order = \"fifo\"\n}\n")
	placed := c.written("placed.hcl", "queue {\n  order = \"fifo\"\n}\n")
	endpoint := c.written("endpoint.hcl", "admission {}\nhttp {\n  admission = true\n}\n")
	site := t.TempDir()
	if code, _, said := c.does("init", "-o", site); code != 0 {
		t.Fatal(said)
	}
	for _, of := range []typed{
		{wrong: []string{"release"}, says: "give one job, or use -all", right: []string{"release", "-all", "-gate-only"}},
		{wrong: []string{"release"}, says: "give one job, or use -all", right: []string{"release", "-gate-only", "train"}},
		{wrong: []string{"quarantine", "-lift", "GPU-1-"}, says: "type more of the id", right: []string{"quarantine", "-lift", "GPU-1-0"}, shows: "Lifted the quarantine of GPU-1-0"},
		{wrong: []string{"quarantine", "-lift"}, says: "give GPU ids, or use -all", right: []string{"quarantine", "-lift", "-all"}, shows: "GPU-1-1"},
		{wrong: []string{"measure", "-dry-run"}, says: "give nodes or GPUs, or use -all", right: []string{"measure", "-dry-run", "-all"}},
		{wrong: []string{"measure", "-dry-run"}, says: "give nodes or GPUs, or use -all", right: []string{"measure", "-dry-run", "node-0"}},
		{wrong: []string{"queu"}, says: `did you mean "queue"?`, right: []string{"queue"}},
		{wrong: []string{"profile", "shw"}, says: `did you mean "profile show"?`, right: []string{"profile", "show", "-help"}},
		{wrong: []string{"queue", "-limt=1"}, says: "did you mean -limit?", right: []string{"queue", "-limit=1"}},
		{wrong: []string{"explain", "trian"}, says: `did you mean "train"?`, right: []string{"explain", "train"}, shows: "train runs on 1 GPU"},
		{wrong: []string{"queue", "-namespace=reserch"}, says: `did you mean "research"?`, right: []string{"queue", "-namespace=research"}},
		{wrong: []string{"explain", "GPU-0"}, says: "type a longer prefix (GPU-0-0, GPU-0-1, GPU-0-2, GPU-0-3)", right: []string{"explain", "GPU-0-1"}},
		{wrong: []string{"agent", "-check-config", "-address=" + c.url}, says: "see nomad-pal agent -help", right: []string{"agent", "-help"}, shows: "block nomad"},
		{wrong: []string{"agent", "-check-config", "-config=" + admits}, says: "set http { admission = true }", right: []string{"agent", "-check-config", "-config=" + endpoint}},
		{wrong: []string{"agent", "-check-config", "-config=" + misplaced}, says: "Did you mean queue { order }?", right: []string{"agent", "-check-config", "-config=" + placed}},
		{wrong: []string{"agent", "-check-config", "-config=" + misspelt}, says: `Did you mean "queue"?`, right: []string{"agent", "-check-config", "-config=" + placed}},
		{wrong: []string{"init", "-o", site}, says: "use -force to overwrite", right: []string{"init", "-o", site, "-force"}},
		{wrong: []string{"init", "-o", site}, says: "or -o for another folder", right: []string{"init", "-o", t.TempDir()}},
		{wrong: []string{"profile", "build"}, says: "give files, or use -cluster", right: []string{"profile", "build", "-model=M", foreign}},
		{wrong: []string{"profile", "build"}, says: "give files, or use -cluster", right: []string{"profile", "build", "-cluster", own}},
		{wrong: []string{"profile", "build", foreign}, says: "add a column model, or use -model", right: []string{"profile", "build", "-model=M", foreign}},
		{wrong: []string{"profile", "build", foreign}, says: "add a column model, or use -model", right: []string{"profile", "build", modelled}},
		{wrong: []string{"profile", "import", modelled}, says: "Check the ids with nomad-pal gpus, or use -allow-unknown", right: []string{"profile", "import", "-allow-unknown", modelled}},
		{wrong: []string{"profile", "import", modelled}, says: "Check the ids with nomad-pal gpus", right: []string{"profile", "import", own}, before: func() { c.does("gpus") }},
		{wrong: []string{"profile", "import"}, says: "give files to import, or use -delete and -name", right: []string{"profile", "import", own}},
		{wrong: []string{"profile", "import"}, says: "give files to import, or use -delete and -name", right: []string{"profile", "import", "-delete", "-name=times"}},
	} {
		c.follows(f, of)
	}
	if code, out, said := c.reads(strings.Replace(jobText("default", "gpus", 1), "nvidia/gpu", "nvidia/gpus", 1), "plan", "-"); code != 0 || !f.Add(out+said, `did you mean "nvidia/gpu"?`) {
		t.Errorf("a device: %d %s%s", code, out, said)
	}
	if code, out, said := c.reads(jobText("default", "gpus", 1), "plan", "-"); code != 1 {
		t.Errorf("a device, spelled correctly: %d %s%s", code, out, said)
	}
	c.followsAllocations(f)
	c.followsInit(f, site)
	c.nomad.SetTokens(map[string]nomadtest.Token{"root": {Management: true}})
	c.follows(f, typed{
		wrong: []string{"quarantine"}, says: "No token was given: set NOMAD_TOKEN, or -token.", right: []string{"quarantine", "-token=root"},
	})
	t.Setenv("NOMAD_TOKEN", "root")
	if code, out, said := c.does("quarantine"); code != 0 {
		t.Errorf("with NOMAD_TOKEN: %d %s%s", code, out, said)
	}
}

// quarantines puts GPUs into quarantine.
func (c *testCluster) quarantines(gpus ...string) {
	c.t.Helper()
	all := map[string]failure.Quarantine{}
	for _, gpu := range gpus {
		all[gpu] = failure.Quarantine{Until: time.Now().Add(time.Hour), Last: time.Now(), Strikes: 1, Reason: "x"}
	}
	if err := store.In(c.client("")).Quarantine().Write(c.t.Context(), all); err != nil {
		c.t.Fatal(err)
	}
}

// followsAllocations types a prefix that several allocation ids share.
func (c *testCluster) followsAllocations(f *advice.Followed) {
	first := c.firstAlloc("train")
	other := *first
	other.ID = first.ID[:8] + "0" + strings.Repeat("0", len(first.ID)-9)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if prefix := r.URL.Query().Get("prefix"); r.URL.Path == "/v1/allocations" && prefix != "" {
			_ = json.NewEncoder(w).Encode([]*api.AllocationListStub{first, &other})
			return
		}
		c.nomad.ServeHTTP(w, r)
	}))
	defer between.Close()
	c.follows(f, typed{
		wrong: []string{"explain", "-address=" + between.URL, first.ID[:8]}, says: "matches 2 allocations: type more of the id",
		right: []string{"explain", "-address=" + between.URL, first.ID}, shows: "a member of job train",
	})
}

// followsInit follows the next steps that init prints, except those on other
// machines.
func (c *testCluster) followsInit(f *advice.Followed, site string) {
	t := c.t
	_, out, said := c.does("init", "-o", site, "-force")
	for _, next := range []string{"Install the device plugin", ", and restart Nomad", "Start the agent: nomad-pal agent", "Run a first gang: nomad-pal run"} {
		if !f.Add(out+said, next) {
			t.Errorf("init: want %q: %s%s", next, out, said)
		}
	}
	for _, line := range regexp.MustCompile(`nomad-pal (agent|doctor|run) [^\n]+`).FindAllString(out, -1) {
		args := strings.Fields(line)[1:]
		switch args[0] {
		case "agent":
			args = append(args, "-check-config")
		case "run":
			args = []string{"run", "-detach", args[1]}
		}
		if code, out, said := c.does(args...); code != 0 {
			t.Errorf("%q: %d %s%s", args, code, out, said)
		}
	}
}

// checkAdvice is the advice in one of doctor's checks, and how to follow it.
type checkAdvice struct {
	name, says string
	mend       func()
	becomes    query.Verdict // "": the check is no longer shown
}

// check is the result of one of doctor's checks; nil if doctor does not show
// it.
func (c *testCluster) check(name string, args ...string) *query.Check {
	c.t.Helper()
	_, out, err := c.does(append([]string{"doctor", "-json"}, args...)...)
	var checks []query.Check
	if e := json.Unmarshal([]byte(out), &checks); e != nil {
		c.t.Fatalf("%v: %s%s", e, out, err)
	}
	for i, k := range checks {
		if k.Name == name {
			return &checks[i]
		}
	}
	return nil
}

// adviceOfDoctor follows doctor's advice, after which all checks must be as
// promised.
func adviceOfDoctor(t *testing.T, f *advice.Followed) {
	c := newCluster(t)
	const window = "window \"past\" {\n  start = \"2025-11-25T02:00:00Z\"\n  duration = \"1h\"\n}\n"
	node := func(version string, measures bool, gpus int) func() {
		return func() {
			for i := range 2 {
				n := nomadtest.GPUNode(i, gpus)
				n.Attributes = map[string]string{"driver.raw_exec": "1", "nomad.version": version, "kernel.name": "linux"}
				if measures {
					n.NodeResources.Devices[0].Attributes[attr.Reference] = &api.Attribute{StringVal: new(attr.ReferenceNode)}
				}
				c.nomad.AddNode(n)
			}
		}
	}
	broken, past, good := c.written("broken.hcl", "queue {\n  ordr = \"fifo\"\n}\n"), c.written("past.hcl", window), c.written("good.hcl", "queue {\n  order = \"fifo\"\n}\n")
	config := broken
	rights := []string{"list-jobs", "read-job", "read-variables", "variables"}
	all := append([]string{"submit-job", "alloc-lifecycle"}, rights...)
	tokens := func(some []string) func() {
		return func() {
			c.nomad.SetTokens(map[string]nomadtest.Token{"": {}, "lacks": {Nodes: true, Namespaces: map[string][]string{"*": rights, "research": some}}, "agent's": {Nodes: true, Namespaces: map[string][]string{"*": all}}})
		}
	}
	beat := func(build string) func() {
		return func() {
			c.beat(store.Heartbeat{Agent: "one", Version: build, Since: time.Now(), Worked: time.Now()})
		}
	}
	followed := func(before func(), args, then []string, a checkAdvice) {
		t.Helper()
		before()
		k := c.check(a.name, args...)
		if k == nil || !f.Add(k.Next, a.says) {
			t.Errorf("%s: %+v, want advice %q", a.name, k, a.says)
			return
		}
		a.mend()
		c.until(a.name+" is well", func() bool {
			k := c.check(a.name, then...)
			return k == nil && a.becomes == "" || k != nil && k.Verdict == a.becomes
		})
	}
	nothing, without := func() {}, []string{}
	followed(node("1.10.5", false, 4), without, without, checkAdvice{name: "nomad version", says: "upgrade Nomad to ", mend: node("1.11.3", false, 4), becomes: query.OK})
	followed(nothing, without, without, checkAdvice{name: "device plugin", says: "install nomad-pal's plugin on these clients", mend: node("1.11.3", true, 4), becomes: query.OK})
	followed(node("1.11.3", true, 0), without, without, checkAdvice{name: "gpus", says: "install the device plugin in the plugin_dir of each client", mend: node("1.11.3", true, 4), becomes: query.OK})
	followed(nothing, []string{"-config=" + config}, []string{"-config=" + good}, checkAdvice{name: "configuration", says: "fix the configuration before the agent reads it", mend: nothing, becomes: query.OK})
	followed(nothing, []string{"-config=" + past}, []string{"-config=" + good}, checkAdvice{name: "configuration", says: "correct or remove this setting", mend: nothing, becomes: query.OK})
	followed(beat("0.0.1"), without, without, checkAdvice{name: "agent", says: "use the same version for both", mend: beat(version.Human()), becomes: query.OK})
	c.followsAgents(f, window)
	c.nomad.AddNamespace("research")
	followed(tokens(nil), []string{"-token=lacks"}, []string{"-token=agent's"}, checkAdvice{name: "token", says: "use a token with the agent's policy", mend: nothing, becomes: query.OK})
	followed(tokens(all), []string{"-token=lacks"}, []string{"-token=lacks"}, checkAdvice{name: "token", says: `add "submit-job" and "alloc-lifecycle" in these namespaces to the agent's policy`, mend: func() { rights = all; tokens(all)() }, becomes: query.OK})
	fails := true
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/nodes" && fails {
			http.Error(w, "No path to region", http.StatusInternalServerError)
			return
		}
		c.nomad.ServeHTTP(w, r)
	}))
	defer between.Close()
	there := []string{"-address=" + between.URL, "-token=agent's"}
	followed(nothing, there, there, checkAdvice{name: "token", says: "look at the logs of Nomad's servers, and try again", mend: func() { fails = false }, becomes: query.OK})
	now, worked := time.Now(), func(at time.Time) store.Heartbeat { return store.Heartbeat{Worked: at} }
	for _, k := range []query.Check{query.CheckClocks(worked(now.Add(-time.Hour)), now, now, now), query.CheckClocks(worked(now.Add(time.Hour)), now.Add(time.Hour), now.Add(time.Hour), now)} {
		if !f.Add(k.Next, "synchronize the clocks by NTP") {
			t.Errorf("%+v", k)
		}
	}
	if k := query.CheckClocks(worked(now), now, now, now); k.Verdict != query.OK {
		t.Errorf("after the clocks are set: %+v", k)
	}
}

// followsAgents asks doctor about agents that do not exist, have windows in the past, or report
// trouble.
func (c *testCluster) followsAgents(f *advice.Followed, window string) {
	t := c.t
	c.beat(store.Heartbeat{Agent: "one", Since: time.Now().Add(-4 * time.Hour), Worked: time.Now().Add(-3 * time.Hour), Trouble: "it hangs"})
	k := c.check("agent")
	if k == nil || !f.Add(k.Next, "a standby agent takes over within a minute; if no agent runs, start one: nomad-pal agent") {
		t.Errorf("no agent: %+v", k)
	}
	t.Run("an agent with a window of the past", func(t *testing.T) {
		in := *c
		in.t = t
		in.agent("", "http {\n  bind_port = 0\n}\n"+window)
		in.until("doctor shows the agent's window", func() bool {
			k := in.check("configuration")
			return k != nil && f.Add(k.Next, "correct or remove this setting in the agent's configuration")
		})
	})
	t.Run("and without", func(t *testing.T) {
		in := *c
		in.t = t
		in.agent("", "http {\n  bind_port = 0\n}\n")
		in.until("the agent answers, and doctor finds no problem", func() bool {
			k := in.check("agent")
			return k != nil && k.Verdict == query.OK && in.check("configuration") == nil
		})
	})
	c.followsLog(f)
}

// followsLog asks doctor about an agent in trouble, and about one that does not report its state,
// until both are well.
func (c *testCluster) followsLog(f *advice.Followed) {
	status, body := http.StatusOK, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/health" {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return
		}
		_, _ = w.Write([]byte(`{"working": true}`))
	}))
	defer s.Close()
	for _, trouble := range []string{`{"trouble": "it cannot write its heartbeat"}`, "broken"} {
		status, body = http.StatusServiceUnavailable, trouble
		if k := c.check("agent's API", "-pal-address="+s.URL); k == nil || !f.Add(k.Next, "look at the log of this agent") {
			c.t.Errorf("%s: %+v", trouble, k)
		}
		status, body = http.StatusOK, `{"ready": true}`
		if k := c.check("agent's API", "-pal-address="+s.URL); k == nil || k.Verdict != query.OK {
			c.t.Errorf("well: %+v", k)
		}
	}
}

// adviceOnHardware follows the advice about GPUs and measuring.
func adviceOnHardware(t *testing.T, f *advice.Followed) {
	c := newCluster(t)
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\n"))
	path := c.job("default", "train", 1)
	c.runs(path, "train")
	gpu := ""
	a, _, err := c.client("").API().Allocations().Info(c.firstAlloc("train").ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	gpu = a.AllocatedResources.Tasks["t"].Devices[0].DeviceIDs[0]
	c.nomad.SetHealth(false, gpu)
	text := ""
	const again = "To start the job on other GPUs, stop it and run it again"
	c.until("explain shows that the GPU is unhealthy", func() bool {
		_, text, _ = c.does("explain", gpu)
		return f.Add(text, again)
	})
	if _, _, err := c.client("").API().Jobs().Deregister("train", false, nil); err != nil {
		t.Fatal(err)
	}
	c.until("the job has stopped, as nomad job stop waits for", func() bool {
		as, _, err := c.client("").API().Jobs().Allocations("train", false, nil)
		return err == nil && len(as) == 1 && as[0].ClientStatus == api.AllocClientStatusComplete
	})
	c.runs(path, "train")
	c.until("explain shows the job on another GPU", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "train runs on 1 GPU") && !strings.Contains(out, gpu)
	})
	c.nomad.SetHealth(true, gpu)
}

// commandsIn matches nomad-pal's commands in a text, with their options.
var commandsIn = regexp.MustCompile("(?:^|[ (:`;'\"])nomad-pal ((?:profile )?[a-z]+)((?: +(?:-[a-z][a-z-]*(?:[= ]\\S+)?|[^- `.,;:)'\"]\\S*))*)")

// notCommands matches words after the name that are no command, but say what
// nomad-pal does.
var notCommands = regexp.MustCompile(`^(is|was|has|needs|counts|does|takes|chooses|writes|answers|says|edits|places|serves|and|or|in|to|on|at|for|of|with|without|from|as|by|lists|job|runs|keeps|may|can|there|that|which|then|compares|gives|it|v|leaves)$`)

// TestCommandsInTexts: the commands and options in the code's texts exist.
func TestCommandsInTexts(t *testing.T) {
	seen := 0
	for _, dir := range []string{".", "../..", "../../agent", "../../constraint", "../../gang", "../../heartbeat", "../../model", "../../nomad", "../../query", "../../rewrite", "../../../pal/reason", "../../../device-plugin", "../../../device-plugin/cmd/nomad-device-pal", "../../../device-plugin/gpu", "../../../device-plugin/measure"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			texts, err := advice.Texts(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range texts {
				seen += checkCommands(t, text.Where, text.Text)
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d commands", seen)
	}
}

// checkCommands checks the commands that a text names, and counts them.
func checkCommands(t *testing.T, where, text string) (n int) {
	t.Helper()
	all := commands(t.Context(), streams{})
	for _, m := range commandsIn.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if notCommands.MatchString(name) {
			continue
		}
		n++
		make, ok := all[name]
		if !ok {
			t.Errorf("%s: there is no command nomad-pal %s: %s", where, name, text)
			continue
		}
		if name == "profile" {
			t.Errorf("%s: nomad-pal profile does nothing without a subcommand: %s", where, text)
		}
		command, err := make()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range regexp.MustCompile(`(?:^| )(-[a-z][a-z-]*)`).FindAllStringSubmatch(m[2], -1) {
			if f[1] != "-help" && !regexp.MustCompile(`(?m)(^|[\s,(])`+f[1]+`\b`).MatchString(command.Help()) {
				t.Errorf("%s: nomad-pal %s has no option %s: %s", where, name, f[1], text)
			}
		}
	}
	return n
}
