// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// pagesOfDocs are the pages for users and operators, and the jobs to copy, by
// path.
func pagesOfDocs(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	pages := map[string]string{}
	for _, of := range []string{"README.md", "docs", "jobspecs"} {
		err := filepath.WalkDir(filepath.Join(root, of), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") && !strings.HasSuffix(path, ".hcl") {
				return err
			}
			text, err := os.ReadFile(path)
			pages[path] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return pages
}

// hintWith matches a hint in the docs, with its value if there is one.
var hintWith = regexp.MustCompile(`(?:^|[^\w./-])(pal_[a-z_]+)(?:\s*=\s*("[^"\n]*"|true|false))?`)

// TestDocsHints: each hint in docs and jobspecs exists, and accepts the values shown there.
func TestDocsHints(t *testing.T) {
	seen := 0
	for path, text := range pagesOfDocs(t) {
		if strings.Contains(path, "results") { // they show jobs that are wrong on purpose
			continue
		}
		for _, m := range hintWith.FindAllStringSubmatch(text, -1) {
			if m[1] == rewrite.GateMeta {
				continue
			}
			value := strings.Trim(m[2], `"`)
			job := &api.Job{ID: new("j"), Meta: map[string]string{m[1]: value}}
			_, err := rewrite.ParseHints(job)
			if err != nil && (strings.Contains(err.Error(), "no such hint") || value != "" && !strings.ContainsAny(value, "<$") && strings.Contains(err.Error(), "of the job: ")) {
				t.Errorf("%s: %s: %v", path, strings.TrimSpace(m[0]), err)
			}
			seen++
		}
	}
	if seen < 100 {
		t.Errorf("only %d hints", seen)
	}
}

// keysOf are the keys on a page of the reference: "key" and "block.key".
func keysOf(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", page))
	if err != nil {
		t.Fatal(err)
	}
	keys, block := map[string]bool{}, ""
	for line := range strings.Lines(string(text)) {
		if m := regexp.MustCompile("^##+ `([a-z_]+)").FindStringSubmatch(line); m != nil {
			block = m[1] + "."
			keys[m[1]] = true
		} else if strings.HasPrefix(line, "#") {
			block = ""
		}
		cell, _, row := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		if !row || !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-z_]+)(?: \\{ ([a-z_]+))?").FindAllStringSubmatch(cell, -1) {
			switch {
			case m[2] != "":
				keys[m[1]+"."+m[2]], keys[m[2]] = true, true
			default:
				keys[block+m[1]], keys[m[1]] = true, true
			}
		}
	}
	return keys
}

// ofNomadsJobspec matches blocks and keys of Nomad's jobspecs and drivers, which the docs name,
// too.
var ofNomadsJobspec = regexp.MustCompile(`^(attempts|attribute|operator|value|max_run_duration|priority|change_mode|ipc_mode|kill_signal|memlock|payload|update|resources|restart|reschedule|disconnect|replace|lost_after|constraint|meta|device|parameterized|plugin|config|count|canary|init)$`)

// TestDocsKeys: each configuration key in the docs is a key of the agent, the plugin or a jobspec.
func TestDocsKeys(t *testing.T) {
	agents, plugins := keysOf(t, "configuration.md"), keysOf(t, "plugin-configuration.md")
	if len(agents) < 40 || len(plugins) < 20 {
		t.Fatalf("%d keys of the agent, %d of the plugin", len(agents), len(plugins))
	}
	span := regexp.MustCompile("`([a-z_]+) (?:\\{ ([a-z_]+)[^`\n]*\\}|\\{ ?\\}|= [^`\n]+)`")
	seen := 0
	for path, text := range pagesOfDocs(t) {
		if strings.Contains(path, "results") || strings.HasSuffix(path, ".hcl") {
			continue
		}
		for _, m := range span.FindAllStringSubmatch(text, -1) {
			key := m[1]
			if m[2] != "" {
				key += "." + m[2]
			}
			if seen++; !agents[key] && !plugins[key] && !ofNomadsJobspec.MatchString(m[1]) && !strings.HasPrefix(key, "pal_") {
				t.Errorf("%s: %s: this key does not exist", path, m[0])
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d keys", seen)
	}
}
