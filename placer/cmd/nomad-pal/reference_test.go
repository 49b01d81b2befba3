// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewriteReference = flag.Bool("rewrite-reference", false, "write docs/reference/nomad-pal.md")

// shared are sections of the help that many commands have: the page shows each once.
var shared = []string{"Job Options:", "Output Options:", "General Options:"}

// docs/reference/nomad-pal.md is made from the commands' own -help.
func TestCommandReference(t *testing.T) {
	const path = "../../../docs/reference/nomad-pal.md"
	var b, common strings.Builder
	b.WriteString(`<!-- Written by go test ./placer/cmd/nomad-pal -run TestCommandReference -rewrite-reference. -->
# Commands of nomad-pal

This page shows the output of ` + "`nomad-pal <command> -help`" + `. [Options that commands share](#shared-options) are at the end.

`)
	for _, name := range names() {
		fmt.Fprintf(&b, "* [%s](#%s): %s\n", name, strings.ReplaceAll(name, " ", "-"), synopsis(name))
	}
	seen := map[string]string{}
	for _, name := range names() {
		own := helpOf(t, name)
		var has []string
		for _, title := range shared {
			before, section, ok := strings.Cut(own, title+"\n")
			if !ok {
				continue
			}
			section, after := cutSection(section)
			section = strings.Trim(section, "\n")
			if first, twice := seen[title]; twice && first != section {
				t.Errorf("%s: %q differs from that of other commands:\n%s", name, title, cmp.Diff(first, section))
			} else if !twice {
				seen[title] = section
				fmt.Fprintf(&common, "\n```text\n%s\n\n%s\n```\n", title, section)
			}
			own = strings.TrimRight(before, "\n") + "\n\n" + after
			has = append(has, strings.TrimSuffix(title, ":"))
		}
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", name, trimmedText(own))
		if len(has) > 0 {
			fmt.Fprintf(&b, "\nAlso takes: %s ([below](#shared-options)).\n", strings.Join(has, ", "))
		}
	}
	b.WriteString("\n## Shared options\n" + common.String())
	if *rewriteReference {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b.String(), string(got)); d != "" {
		t.Errorf("the page differs from the commands' help; -rewrite-reference writes it (-commands +page):\n%s", d)
	}
}

// cutSection cuts a help text at the next section's title.
func cutSection(text string) (section, after string) {
	if at := regexp.MustCompile(`(?m)^\S`).FindStringIndex(text); at != nil {
		return text[:at[0]], text[at[0]:]
	}
	return text, ""
}

// trimmedText is a text without tabs and spaces at the ends of its lines.
func trimmedText(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(strings.ReplaceAll(l, "\t", "    "), " ")
	}
	return strings.Join(lines, "\n")
}

func names() []string {
	return slices.Sorted(maps.Keys(commands(context.Background(), streams{})))
}

func synopsis(name string) string {
	c, _ := commands(context.Background(), streams{})[name]()
	return c.Synopsis()
}

func helpOf(t *testing.T, name string) string {
	t.Helper()
	var out bytes.Buffer
	code := run(context.Background(), append(strings.Fields(name), "-help"), streams{in: strings.NewReader(""), out: &out, err: &out})
	if code != 0 || out.Len() == 0 {
		t.Fatalf("%s -help exits with %d and prints %q", name, code, out.String())
	}
	return out.String()
}

// TestDocsCommands: the commands and flags in the docs and jobspecs exist.
func TestDocsCommands(t *testing.T) {
	help := map[string]string{}
	for _, name := range names() {
		help[name] = helpOf(t, name)
	}
	// A command may stand in a code span, behind a prompt, in an indented line,
	// or in a jobspec's comment.
	use := regexp.MustCompile("(?m)(?:`|\\$ |^    |^#  +)nomad-pal ([a-z]+)((?: [^`|\n#]*)?)")
	used := 0
	check := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range use.FindAllStringSubmatch(string(text), -1) {
			name := m[1]
			if words := strings.Fields(m[2]); len(words) > 0 && help[name+" "+words[0]] != "" {
				name += " " + words[0]
			}
			used++
			if help[name] == "" {
				t.Errorf("%s: there is no command nomad-pal %s", path, name)
				continue
			}
			for _, f := range regexp.MustCompile(`(?:^| )(-[a-z][a-z-]*)`).FindAllStringSubmatch(m[2], -1) {
				if f[1] != "-help" && !regexp.MustCompile(`(?m)(^|[\s,(])`+f[1]+`\b`).MatchString(help[name]) {
					t.Errorf("%s: nomad-pal %s has no flag %s", path, name, f[1])
				}
			}
		}
	}
	root := filepath.Join("..", "..", "..")
	check(filepath.Join(root, "README.md"))
	for _, dir := range []string{"docs", "jobspecs"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && (strings.HasSuffix(path, ".md") || strings.HasSuffix(path, ".hcl")) && filepath.Base(path) != "nomad-pal.md" {
				check(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if used < 50 {
		t.Errorf("found only %d uses", used)
	}
}
