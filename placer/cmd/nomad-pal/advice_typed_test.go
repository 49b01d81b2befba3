// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/advice"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// adviceOnCommands types commands that other commands advise.
func adviceOnCommands(t *testing.T, f *advice.Followed) {
	c := newCluster(t)
	c.nomad.AddNamespace("research")
	own := c.written("times.csv", "gpu,app,time\nGPU-0-0,A,100\nGPU-0-1,A,101\n")
	c.follows(f, typed{wrong: []string{"profile", "show"}, says: "the agent makes a profile from measurements that nodes publish, or that nomad-pal profile import stores", right: []string{"profile", "import", own}})
	c.followsNobody(f)
	c.quarantines("GPU-1-0")
	url := c.agent("", atAnyPort)
	t.Setenv("NOMAD_PAL_ADDR", url)
	c.until("the agent has made a profile of the imported times", func() bool { code, _, _ := c.does("profile", "show"); return code == 0 })
	c.runs(c.job("default", "train", 1), "train")
	if code, out, said := c.does("run", c.job("research", "elsewhere", 1)); code != 0 {
		t.Fatal(code, out, said)
	}
	exported := c.written("profile.json", "")
	if code, _, said := c.does("profile", "export", "-o", exported); code != 0 {
		t.Fatal(said)
	}
	busy := c.between(url, "/v1/queue", func(w http.ResponseWriter) { http.Error(w, "not active", http.StatusServiceUnavailable) })
	for _, of := range []typed{
		{wrong: []string{"agent", "-check-config", "-json"}, says: "see nomad-pal agent -help", right: []string{"agent", "-help"}, shows: "Usage: nomad-pal agent"},
		{wrong: []string{"explain", "train", "-namespace=default"}, says: "options go before arguments: nomad-pal explain -namespace=default train", right: []string{"explain", "-namespace=default", "train"}, shows: "train runs on 1 GPU"},
		{wrong: []string{"explain", "erly"}, says: `did you mean "early"?`, right: []string{"explain", "early"}, shows: "early runs on 1 GPU"}, // the argument that its gate names
		{wrong: []string{"status", "train"}, says: "nomad-pal explain shows one job", right: []string{"explain", "train"}, shows: "train runs on 1 GPU"},
		{wrong: []string{"gpus", "x"}, says: "got 1; see -help", right: []string{"gpus", "-help"}, shows: "Usage: nomad-pal gpus"},
		{wrong: []string{"help", "queue"}, says: "see nomad-pal queue -help.", right: []string{"queue", "-help"}, shows: "Usage: nomad-pal queue"},
		{wrong: []string{"help"}, says: "see nomad-pal -help.", right: []string{"-help"}, shows: "explain"},
		{wrong: []string{"xyzzy"}, says: "see nomad-pal -help.", right: []string{"-help"}, shows: "explain"},
		{wrong: []string{"explain", "nothing"}, says: "nomad-pal status lists the jobs with GPUs", right: []string{"status"}, shows: "train"},
		{wrong: []string{"explain", "elsewhere"}, says: "namespace research has a job with this name: nomad-pal explain -namespace research elsewhere", right: []string{"explain", "-namespace", "research", "elsewhere"}, shows: "elsewhere runs on 1 GPU"},
		{wrong: []string{"profile", "show", "a", "b"}, says: "nomad-pal profile show takes one file", right: []string{"profile", "show", exported}, shows: "GPU"},
		{wrong: []string{"quarantine", "GPU-1-0"}, says: "GPU ids require -reason or -lift, and -all requires -lift; see nomad-pal quarantine -help", right: []string{"quarantine", "-help"}, shows: "-lift"},
		{wrong: []string{"queue", "-pal-address=" + busy}, says: "nomad-pal doctor explains more", right: []string{"doctor"}, shows: "agent"},
	} {
		c.follows(f, of)
	}
	c.followsRegistration(f)
	c.followsIndex(f)
	c.followsPlaces(f)
	c.followsNomadsCommands(f)
}

// followsNobody starts an agent, as doctor advises if no agent has ever run.
func (c *testCluster) followsNobody(f *advice.Followed) {
	k := c.check("agent")
	if k == nil || !f.Add(k.Found, "no job with a gate starts (nomad-pal agent)") {
		c.t.Errorf("no agent: %+v", k)
	}
	if code, out, said := c.does("run", "-detach", c.job("default", "early", 1)); code != 0 {
		c.t.Fatal(code, out, said)
	}
	job, _, err := c.client("").API().Jobs().Info("early", nil)
	if err != nil || len(job.Constraints) != 1 || !f.Add(job.Constraints[0].RTarget, "type: nomad-pal explain JOB") {
		c.t.Errorf("its gate: %v, %v", job, err)
	}
}

// explainLine matches a command that explains a job.
var explainLine = regexp.MustCompile(`nomad-pal explain ((?:-namespace \S+ )?\S+)`)

// explains types the command in a text that explains a job.
func (c *testCluster) explains(f *advice.Followed, text, shows string) {
	c.t.Helper()
	m := explainLine.FindStringSubmatch(text)
	if m == nil || !f.Add(text, m[0]) {
		c.t.Errorf("no command to explain a job:\n%s", text)
		return
	}
	args := []string{"explain"}
	for word := range strings.FieldsSeq(m[1]) {
		args = append(args, strings.Trim(word, "'"))
	}
	if code, out, said := c.does(args...); code != 0 || !strings.Contains(out, shows) {
		c.t.Errorf("%q: %d, want %q\n%s%s", args, code, shows, out, said)
	}
}

// followsRegistration explains jobs as run's output and the API advise: in all namespaces, and
// with ids that a shell would split.
func (c *testCluster) followsRegistration(f *advice.Followed) {
	for _, of := range []struct{ namespace, id string }{{"default", "plain"}, {"research", "of-research"}, {"research", "a&b"}} {
		path := c.job(of.namespace, of.id, 1)
		if code, out, said := c.does("run", "-detach", path); code != 0 {
			c.t.Errorf("run: %d %s%s", code, out, said)
		} else {
			c.explains(f, out, of.id)
		}
		if _, _, err := c.client("").API().Jobs().Deregister(of.id, true, &api.WriteOptions{Namespace: of.namespace}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// followsIndex runs a job with the modify index that plan shows, so only if nobody has
// changed the job since.
func (c *testCluster) followsIndex(f *advice.Followed) {
	path, jobs := c.job("default", "indexed", 1), c.client("").API().Jobs()
	c.runs(path, "indexed")
	_, out, said := c.does("plan", path)
	m := regexp.MustCompile(`nomad-pal run -check-index (\d+) submits only if the job is unchanged`).FindStringSubmatch(oneLine(out))
	if m == nil || !f.Add(out, m[0]) {
		c.t.Fatalf("plan: %s%s", out, said)
	}
	if code, out, said := c.does("run", "-detach", "-check-index", m[1], path); code != 0 {
		c.t.Errorf("run: %d %s%s", code, out, said)
	}
	code, out, said := c.does("run", "-detach", "-check-index", "1", path)
	if code == 0 || !f.Add(out+said, "To see its modify index: nomad-pal plan, or nomad job inspect") {
		c.t.Errorf("run, with another index: %d %s%s", code, out, said)
	}
	c.until("nomad job inspect shows what plan shows", func() bool {
		job, _, err := jobs.Info("indexed", nil)
		_, out, _ := c.does("plan", path)
		return err == nil && strings.Contains(oneLine(out), fmt.Sprintf("Job modify index: %d.", *job.JobModifyIndex))
	})
}

// followsPlaces follows explain's advice about nodes and GPUs.
func (c *testCluster) followsPlaces(f *advice.Followed) {
	node := nomadtest.GPUNode(1, 4)
	c.nomad.SetEligible(node.ID, false)
	out := ""
	c.until("explain shows that the node is not eligible", func() bool {
		_, out, _ = c.does("explain", node.Name)
		return strings.Contains(out, "The node is not eligible")
	})
	m := regexp.MustCompile(`nomad node eligibility -enable (\S+)\.`).FindStringSubmatch(oneLine(out))
	if m == nil || !f.Add(out, m[0]) || !strings.HasPrefix(node.ID, m[1]) || strings.HasPrefix(nomadtest.GPUNode(0, 4).ID, m[1]) {
		c.t.Errorf("explain: %q %s", m, out)
	}
	c.nomad.SetEligible(node.ID, true)
	c.until("explain shows that the node is eligible", func() bool { _, out, _ := c.does("explain", node.Name); return !strings.Contains(out, "not eligible") })

	if _, out, _ = c.does("explain", "GPU-1-0"); !f.Add(out, "nomad-pal quarantine -lift GPU-1-0") {
		c.t.Errorf("explain: %s", out)
	}
	if code, out, said := c.does("quarantine", "-lift", "GPU-1-0"); code != 0 || !strings.Contains(out, "Lifted") {
		c.t.Errorf("quarantine: %d %s%s", code, out, said)
	}

	if code, out, said := c.does("run", c.job("research", "its", 1)); code != 0 {
		c.t.Fatal(code, out, said)
	}
	as, _, err := c.client("").API().Jobs().Allocations("its", false, &api.QueryOptions{Namespace: "research"})
	if err != nil || len(as) != 1 {
		c.t.Fatal(as, err)
	}
	a, _, err := c.client("").API().Allocations().Info(as[0].ID, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	gpu := a.AllocatedResources.Tasks["t"].Devices[0].DeviceIDs[0]
	_, out, _ = c.does("explain", gpu)
	c.explains(f, oneLine(out), "its runs on 1 GPU")
	if !f.Add(out, "Why the job has this GPU: nomad-pal explain -namespace research its") {
		c.t.Errorf("explain: %s", out)
	}
}

// followsNomadsCommands checks texts that name commands of Nomad. Nomad 1.11.3 has these commands.
func (c *testCluster) followsNomadsCommands(f *advice.Followed) {
	for _, word := range slices.Sorted(maps.Keys(ofNomad)) {
		code, out, said := c.does(word)
		if code != 127 || !f.Add(out+said, "use Nomad's own command: "+ofNomad[word]+".") {
			c.t.Errorf("%s: %d %s%s", word, code, out, said)
		}
	}
}

// adviceOnTraces writes tables as simulate advises.
func adviceOnTraces(t *testing.T, f *advice.Followed) {
	c := newCluster(t)
	const header, row = "job_id,submit_time,gpus,duration", "a,2026-01-02 03:04:05,2,60"
	table := func(lines ...string) string { return c.written("trace.csv", strings.Join(lines, "\n")+"\n") }
	simulate := func(path string) []string { return []string{"simulate", "-nodes=2", "-quiet", "-trace", path} }
	own := func(more, cell string) string { return table(header+","+more, row+","+cell) }
	slurm := func(state string) string {
		return table("JobID|Submit|Start|End|State|AllocTRES", "1|2026-01-02T03:04:05|2026-01-02T03:05:05|2026-01-02T03:06:05|"+state+"|gres/gpu=2")
	}
	for _, of := range []typed{
		{wrong: simulate(table(header, row, "b,1767323045,2,60")), says: "use the same format for all times in the file", right: simulate(table(header, row, "b,2026-01-02 03:05:05,2,60"))},
		{wrong: simulate(table(header, "a,1767323045000,2,60")), says: "if the time is in milliseconds, divide it by 1000", right: simulate(table(header, "a,1767323045,2,60"))},
		{wrong: simulate(slurm("RE+")), says: "it matches several states; write the full name of the state", right: simulate(slurm("COMPLETED"))},
		{wrong: simulate(own("deadline", "0")), says: "0 is not a deadline; for no deadline, leave the field empty", right: simulate(own("deadline", ""))},
		{wrong: simulate(table(`{"jobs": []}`)), says: "for Slurm, use sacct -P instead of --json", right: simulate(slurm("COMPLETED"))},
		{wrong: simulate(table(header+",tenant", row+",a,b")), says: "Leave that column out, or choose another separator", right: simulate(table(header, row))},
		{wrong: simulate(table(header+",tenant", row+",a,b")), says: "Leave that column out, or choose another separator", right: simulate(table(strings.ReplaceAll(header, ",", ";")+";tenant", strings.ReplaceAll(row, ",", ";")+";a,b"))},
		{wrong: simulate(own("tennant", "x")), says: `did you mean "tenant"?`, right: simulate(own("tenant", "x"))},
		{wrong: simulate(table("job_id,submit_time,gpus,duraton", row)), says: `did you mean "duration"?`, right: simulate(table(header, row))},
		{wrong: simulate(table("JobID|Submitt|Start|End|State|AllocTRES", "1|2026-01-02T03:04:05|2026-01-02T03:05:05|2026-01-02T03:06:05|COMPLETED|gres/gpu=2")), says: `rename column "submitt"?`, right: simulate(slurm("COMPLETED"))},
		{wrong: []string{"simulate", "-trase=x"}, says: "see nomad-pal simulate -help", right: []string{"simulate", "-help"}, shows: "-trace"},
	} {
		c.follows(f, of)
	}
}
