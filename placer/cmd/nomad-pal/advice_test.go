// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// imperative is how advice begins within a text: at its start, or after a clause.
var imperative = regexp.MustCompile(`(?i)(^|[;:.(,] ?|\bor |\band )(use|write|say|leave|drop|put|mend|correct|take|run it|ask for|choose|give|change|spell|did you mean|try|rename|gate the job|gate all)\b`)

// adviceIn are the texts with advice in the code of packages.
func adviceIn(t *testing.T, dirs ...string) (found []string) {
	t.Helper()
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "table.go" { // which describes what the placer does
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				if text, err := strconv.Unquote(lit.Value); err == nil && imperative.MatchString(text) && strings.Contains(text, " ") && !slices.Contains(found, text) {
					found = append(found, text)
				}
				return true
			})
		}
	}
	slices.Sort(found)
	return found
}

// followed are the texts in which jobs' authors are advised what to change, and how that is followed: by
// the jobs of [TestAdviceWorks], or by the test that is named.
var followed = map[string]string{
	"%s; use one block with count = %d":                                           "two blocks",
	"%s; for %q and %q write two groups, each with a task and a block of its own": "two models",
	"Write ": "TestDeviceFaults",
	"Write it in a constraint block of the device, not of the job, group or task: ":                                                                                       "device in group",
	"Write it in a constraint block of the group, not of the device: ":                                                                                                    "node in device",
	"Leave that constraint out: the placer chooses the GPU. For one GPU by its id write ":                                                                                 "one GPU",
	"task %q of group %q constrains ${device.ids} itself: choosing instances is the placer's part; drop that constraint, or leave the gate off (nomad job run adds none)": "ids",
	"meta pal_app = %q: no such application is configured (known: %s); say pal_class instead":                                                                             "app",
	"meta pal_class = %q contradicts pal_app = %q, which is of class %s: leave one out":                                                                                   "TestRequestRefusals",
	"meta pal_elastic contradicts pal_pin = %q: other GPUs would restart the members that run; leave pal_pin out":                                                         "elastic pin",
	"meta pal_on_failure = \"member\" contradicts pal_pin = %q: only pins to nodes and a class can change while other members run; leave pal_pin out, or say \"class\"":   "member pin",
	"Change the job, or give a node what it lacks. The placer tries it again when a node changes, or in some minutes.":                                                    "TestGroupWithoutGPUsThatNoNodeTakes",
	`meta pal_checkpoint says when the job is best stopped, and nothing says that it may be: add pal_preempt = "true", or leave it out`:                                   "checkpoint",
	"no such hint (did you mean %s?)": "hint",
	"job id %q ends with /%s, which Nomad's HTTP API takes for a call of its own: give the job another id":                  "id",
	"job id %q is a part of the path to Nomad's HTTP API: give the job another id":                                          "dots",
	"group %q has no gate, though others have: Nomad runs it at once; put the gate on the job, whose groups start together": "TestRequestRefusals",
}

// notFollowed are texts with advice that no test follows yet: about runs that have failed, other jobs, tenants
// and Nomad itself; and what only looks like advice. Nothing is to be added: a new one goes to followed.
var notFollowed = map[string]bool{
	" (did you mean %q?)": true,
	", %d placed and pending: their images or files are being fetched, say":                                                                       true,
	": it was stopped, by a drain of its node, say":                                                                                               true,
	": take out the constraint on ${meta.pal_gate} and run it again":                                                                              true,
	"Ask for %d GPUs at most, or have quota or borrowing_limit of the tenant raised.":                                                             true,
	"Its tenant may hold %d GPUs at most: have quota or borrowing_limit of the tenant raised, or ask for fewer members.":                          true,
	"Mend that and run it again. Until then it runs on, but the placer does not start it again if it loses members.":                              true,
	"a member was stopped, by a drain of its node, say, and Nomad does not run it again":                                                          true,
	"a parameterized or periodic job does not run itself: ask for one of its children":                                                            true,
	"change the count in its file and run it (nomad job scale does that only once its deployment is over)":                                        true,
	"given up after %s: %s. Mend it and run it again":                                                                                             true,
	"given up after it was lost, or could not be started, %d times, the last time: %s. Run it again once that is mended":                          true,
	"it stays gated and its payload untouched. Stop it, take the gate off the parameterized job, and give that a native class constraint instead": true,
	"members were stopped, by a drain of their node, say, and Nomad is asked to place them again":                                                 true,
	"meta %s = %q of %s: no such hint: write it %s":                                                                                               true,
	"multiregion jobs are not supported: gate the job of each region by itself":                                                                   true,
	"node pool %q has Nomad's own batch queue (%s), which waits until the job at its head is placed: a gated job there holds up all behind it, and the placer cannot go before them. Take the gate out of the job, or batch_queue out of the node pool": true,
	"not tried again, as for %.0f minutes after it failed no placer was there, or Nomad did not answer: %s. Run it again":                                                                                                                               true,
	"take it out of the agent's configuration, or correct it there":       true,
	"the job has several groups with GPUs: say %s.count or the like (%s)": true,
	"to have the job on other GPUs, stop it and run it again":             true,
}

// New advice has a test that follows it.
func TestAdviceIsFollowed(t *testing.T) {
	for _, text := range adviceIn(t, "../../nomad", "../../query", "../../rewrite", "../../gang", "../../model") {
		if followed[text] == "" && !notFollowed[text] {
			t.Errorf("no test follows the advice %q: add a job to TestAdviceWorks, and it to followed", text)
		}
	}
}

// Whoever follows advice that plan gives has a job that would start.
func TestAdviceWorks(t *testing.T) {
	c := mixedCluster(t)
	job := func(id, meta, group, device string) string {
		return fmt.Sprintf("job %q {\n  type = \"batch\"\n%s  group \"g\" {\n%s    task \"t\" {\n      driver = \"raw_exec\"\n      config {\n        command = \"true\"\n      }\n      resources {\n%s      }\n    }\n  }\n}\n", id, meta, group, device)
	}
	constraint := func(of string) string { return "constraint {\n" + strings.ReplaceAll(of, ", ", "\n") + "\n}\n" }
	gpu := func(name, in string) string { return fmt.Sprintf("device %q {\n%s}\n", name, in) }
	meta := func(of string) string { return "meta {\n" + of + "\n}\n" }
	const a100, v100 = "nvidia/gpu/NVIDIA A100-SXM4-80GB", "nvidia/gpu/Tesla V100-SXM2-32GB"
	plain := gpu("nvidia/gpu", "")
	other := func(device string) string {
		return strings.TrimSuffix(job("j", "", "", gpu(a100, "")), "}\n") + strings.Replace(group(job("j", "", "", gpu(device, ""))), `"g"`, `"h"`, 1) + "}\n"
	}
	jobs := map[string]struct{ wrong, says, right string }{
		"two blocks":      {job("j", "", "", gpu(a100, "")+gpu(a100, "count = 2\n")), "use one block with count = 3", job("j", "", "", gpu(a100, "count = 3\n"))},
		"two models":      {job("j", "", "", gpu(a100, "")+gpu(v100, "")), "write two groups", other(v100)},
		"device in group": {job("j", "", constraint(`attribute = "${device.model}", value = "Tesla V100-SXM2-32GB"`), plain), "in a constraint block of the device", job("j", "", "", gpu("nvidia/gpu", constraint(`attribute = "${device.model}", value = "Tesla V100-SXM2-32GB"`)))},
		"node in device":  {job("j", "", "", gpu("nvidia/gpu", constraint(`attribute = "${meta.rack}", value = "r1"`))), "in a constraint block of the group", job("j", "", constraint(`attribute = "${meta.rack}", value = "r1"`), plain)},
		"one GPU":         {job("j", "", "", gpu("nvidia/gpu", constraint(`attribute = "${device.attr.uuid}", value = "GPU-0-1"`))), "Leave that constraint out", job("j", "", "", plain)},
		"ids":             {job("j", "", "", gpu("nvidia/gpu", constraint(`attribute = "${device.ids}", operator = "set_contains", value = "GPU-0-1"`))), "drop that constraint", job("j", "", "", plain)},
		"app":             {job("j", meta(`pal_app = "nothing"`), "", plain), "say pal_class instead", job("j", meta(`pal_class = "A"`), "", plain)},
		"elastic pin":     {job("j", meta("pal_elastic = true\npal_pin = \"gpu\""), "count = 1\nscaling {\nmin = 1\nmax = 2\n}\n", plain), "leave pal_pin out", job("j", meta("pal_elastic = true"), "count = 1\nscaling {\nmin = 1\nmax = 2\n}\n", plain)},
		"member pin":      {job("j", meta("pal_on_failure = \"member\"\npal_pin = \"gpu\""), "", plain), "leave pal_pin out", job("j", meta("pal_on_failure = \"member\"\npal_pin = \"class\""), "", plain)},
		"hint":            {job("j", meta(`pal_clas = "A"`), "", plain), "did you mean pal_class?", job("j", meta(`pal_class = "A"`), "", plain)},
		"id":              {job("a/plan", "", "", plain), "give the job another id", job("a-plan", "", "", plain)},
		"dots":            {job("..", "", "", plain), "give the job another id", job("dots", "", "", plain)},
		"checkpoint":      {job("j", meta(`pal_checkpoint = "30m"`), "", plain), `add pal_preempt = "true"`, job("j", meta("pal_checkpoint = \"30m\"\npal_preempt = \"true\""), "", plain)},
	}
	for name, of := range jobs {
		for how, text := range map[string]string{"wrong": of.wrong, "right": of.right} {
			code, out, said := c.reads(text, "plan", "-")
			if starts := code == 1; starts != (how == "right") && code != 3 || how == "wrong" && (!strings.Contains(out+said, of.says) || code != 2 && code != 255) || how == "right" && !strings.Contains(out, "would start") {
				t.Errorf("%s, %s: exit code %d, want advice %q\n%s\n%s%s", name, how, code, of.says, text, out, said)
			}
		}
	}
	for text, by := range followed {
		if _, is := jobs[by]; !is && !isTest(t, by) {
			t.Errorf("%q is followed by %q, which is not there", text, by)
		}
	}
}

// group is the group of a job's text.
func group(text string) string {
	at := strings.Index(text, "  group ")
	return text[at : len(text)-len("}\n")]
}

// isTest reports whether there is a test of that name beside the code with advice.
func isTest(t *testing.T, name string) bool {
	t.Helper()
	files, err := filepath.Glob("../../*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(")
	})
}

// Whoever types what a command advises about its own arguments gets past that error.
func TestCommandAdvice(t *testing.T) {
	c := mixedCluster(t)
	for advice, of := range map[string]struct{ wrong, right []string }{
		"say one job, or -all":             {[]string{"release"}, []string{"release", "-all"}},
		"say which GPUs, or -all":          {[]string{"quarantine", "-lift"}, []string{"quarantine", "-lift", "-all"}},
		"say which nodes or GPUs, or -all": {[]string{"measure", "-dry-run"}, []string{"measure", "-dry-run", "-all"}},
		`did you mean "queue"?`:            {[]string{"queu"}, []string{"queue"}},
		"did you mean -limit?":             {[]string{"queue", "-limt=1"}, []string{"queue", "-limit=1"}},
	} {
		if code, out, said := c.does(of.wrong...); code == 0 || !strings.Contains(out+said, advice) {
			t.Errorf("%q: %d, want advice %q\n%s%s", of.wrong, code, advice, out, said)
		}
		if code, out, said := c.does(of.right...); code == 1 || strings.Contains(said, "Error:") {
			t.Errorf("%q, as advised: %d\n%s%s", of.right, code, out, said)
		}
	}
}
