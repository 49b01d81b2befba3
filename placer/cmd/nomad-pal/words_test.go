// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// synonyms are words that people must not read, each with the word to use instead: one
// word for one thing, in commands, JSON, metrics, the page and the docs.
var synonyms = []struct {
	is      *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\bphase\b`), "state"},
	{regexp.MustCompile(`(?i)\bbusy\b|\bheld by\b|\b(\d+|GPUs) held\b`), "allocated"},
	{regexp.MustCompile(`(?i)\bkept out\b|gpus_kept`), "quarantined, or unavailable"},
	{regexp.MustCompile(`(?i)\bin \d+ (second|minute|hour|day)s? to\b|\(\d+ (second|minute|hour|day)s? ago\)`), "in 4m–9m, 5s ago"},
	{regexp.MustCompile(`(^|  )(Waited|Since)(  |$)`), "Submitted"},
	{regexp.MustCompile(`(^|  )(Why|Gang|Starts|Expected to end|Demand|Health)(  | = |$)`), "Reason, Job, Expected start, Expected end, Request, State"},
	{regexp.MustCompile(`(?i)gpus_wanted|GPUs that they want`), "requested"},
	{regexp.MustCompile(`(?i)\bprobes?\b`), "measure"},
}

// wrong are the synonyms in a text, each with its line.
func wrong(text string) (out []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		for _, s := range synonyms {
			if found := s.is.FindString(line); found != "" {
				out = append(out, fmt.Sprintf("%q, not %q: %s", s.instead, strings.TrimSpace(found), strings.TrimSpace(line)))
			}
		}
	}
	return out
}

// Each kind of synonym is found.
func TestSynonyms(t *testing.T) {
	for _, text := range []string{
		"Phase      = waiting", `{"phase": "waiting"}`, "8 free of 16, 8 busy", "GPU-1 is held by train.", "16 GPUs: 8 held, 8 free", "is kept out until noon",
		"in 4 minutes to 9 minutes", "(3 seconds ago)", "#  Job  GPUs  Waited  Reason", "Gang  State", "Job  State  Why", "Demand     = 8 GPUs", "GPU  Health  Job", "nomad_pal_gpus_wanted", "turn the probe on",
	} {
		if len(wrong(text)) != 1 {
			t.Errorf("%s: %q", text, wrong(text))
		}
	}
	for _, text := range []string{"train has waited for 3s, since noon", "Why nodes with GPUs cannot run the job", "a gang that waits"} {
		if found := wrong(text); len(found) > 0 {
			t.Errorf("%s: %q", text, found)
		}
	}
}

// Commands, page, API and docs use one word for one thing. Only docs/results may say that machines
// are busy and that GPUs are held in vain.
func TestOneWordForOneThing(t *testing.T) {
	texts := map[string]string{}
	for name, f := range commands(t.Context(), streams{}) {
		command, err := f()
		if err != nil {
			t.Fatal(err)
		}
		texts["nomad-pal "+name+" -help"] = command.Help()
	}
	root := filepath.Join("..", "..", "..")
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "*/README.md", "docs/*.md", "docs/tasks/*.md", "docs/users/*.md", "docs/operators/*.md", "docs/reference/*.md", "docs/design/*.md", "placer/agent/ui/*", "placer/deploy/monitoring/*"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no file, %v", pattern, err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
	}
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	c.nomad.SetHealth(false, "GPU-1-3")
	c.runs(c.job("default", "train", 4), "train")
	for name, gpus := range map[string]int{"waits": 4, "never": 64} {
		c.must("run", "-detach", c.job("default", name, gpus))
	}
	for _, args := range []string{"queue", "queue -json", "status", "status -json", "gpus", "gpus -json", "explain train", "explain -verbose train", "explain waits", "explain -verbose waits", "explain -json waits", "explain never", "explain node-1", "explain GPU-1-3", "doctor", "doctor -json", "events -failures", "plan " + c.job("default", "planned", 4)} {
		code, out, said := c.seen(strings.Fields(args)...)
		if out == "" {
			t.Errorf("%s: %d %s", args, code, said)
		}
		texts[args] = out + said
	}
	for where, text := range texts {
		for _, w := range wrong(text) {
			t.Errorf("%s: %s", where, w)
		}
	}
}
