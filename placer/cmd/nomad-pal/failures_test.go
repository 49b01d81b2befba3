// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// On a terminal, failures prints how long ago each failure was, with short ids in lines of 80
// columns. A time of day has its zone. Jobs of the same name have distinct ids.
func TestFailuresOnTerminal(t *testing.T) {
	var out bytes.Buffer
	b := base{io: streams{out: &out, terminal: true}}
	now, gpu := time.Now(), "GPU-1b1dddf6-15d7-47b2-9336-a216a6e49fdd"
	b.printReport(failureReport{
		Failures: []failure.Failure{{At: now.Add(-5 * time.Second), Namespace: "team", Job: "fails", Alloc: "5ab9b82d-1755-bb0a-c5f5-1266d57374fb", Node: "gpu-02",
			Cause: failure.User, Reason: "exit code 3", GPUs: []string{gpu}}},
		Quarantine: map[string]failure.Quarantine{gpu: {Until: now.Add(time.Hour), Reason: "fails"}},
	}, now)
	text := out.String()
	if strings.Contains(text, gpu) || !strings.Contains(text, "GPU-1b1dddf6") {
		t.Errorf("ids are not short:\n%s", text)
	}
	for _, want := range []string{"5s ago", "team/fails", now.Add(time.Hour).Local().Format("15:04:05 MST")} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q:\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if textWidth(strings.TrimRight(line, "\n")) > columns {
			t.Errorf("more than %d columns: %s", columns, line)
		}
	}
}

// twoFailures returns a cluster in which one job failed in each of two namespaces.
func twoFailures(t *testing.T) *testCluster {
	t.Helper()
	c := newCluster(t)
	c.nomad.AddNamespace("research")
	var all store.Failures
	for _, namespace := range []string{"default", "research"} {
		all.Kept = append(all.Kept, failure.Failure{At: time.Now(), Namespace: namespace, Job: "of-" + namespace, Cause: failure.User, Reason: "exit code 3"})
	}
	if err := store.In(c.client("")).Failures().Write(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	return c
}

// With a namespace, failures shows and sums up only those of the namespace's
// jobs.
func TestFailuresOfNamespace(t *testing.T) {
	c := twoFailures(t)
	for namespace, want := range map[string]string{"*": "of-default of-research 2", "research": "of-research 1"} {
		code, out, said := c.does("failures", "-namespace", namespace, "-json")
		got := ""
		for _, f := range gjson.Get(out, "failures.#.job").Array() {
			got += f.String() + " "
		}
		if got += gjson.Get(out, "causes.user.failures").String(); code != 0 || got != want {
			t.Errorf("%s: %d %q %s, want %q", namespace, code, got, said, want)
		}
	}
}

// An author, who may not read the variable with all failures, gets those in their namespaces from
// the agent.
func TestFailuresOfAuthor(t *testing.T) {
	c := twoFailures(t)
	c.nomad.SetTokens(map[string]nomadtest.Token{
		"root": {Management: true},
		"user": {Namespaces: map[string][]string{"research": {"list-jobs"}}},
	})
	if code, _, said := c.does("failures", "-token=user"); code != exitNoPlacer || !strings.Contains(said, "without an agent, only operators can read failures: no agent answers: ") {
		t.Errorf("without an agent: %d %s", code, said)
	}
	url := c.agent("root", "http {\n  bind_port = 0\n}\n")
	code, out, said := c.does("failures", "-token=user", "-pal-address="+url)
	if code != 0 || !strings.Contains(out, "research/of-research") || strings.Contains(out, "of-default") || !strings.Contains(said, "failures in namespaces whose jobs your token cannot list are left out; your token may not list the GPUs in quarantine") {
		t.Errorf("%d %s%s", code, out, said)
	}
}
