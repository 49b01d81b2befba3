// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewriteReference = flag.Bool("rewrite-reference", false, "write docs/reference/nomad-pal.md")

// shared are sections of the help that many commands have: the page shows each once.
var shared = []string{"Job Options:", "Output Options:", "General Options:"}

// docs/reference/nomad-pal.md lists the commands and their options, from their own -help.
func TestCommandReference(t *testing.T) {
	const path = "../../../docs/reference/nomad-pal.md"
	var b strings.Builder
	b.WriteString(`<!-- Written by go test ./placer/cmd/nomad-pal -run TestCommandReference -rewrite-reference. -->
# Commands of nomad-pal

` + "`nomad-pal <command> -help`" + ` explains a command, its options and examples.

| exit code | means |
|---|---|
| 0 | The command has done its work. |
| 1 | An error. From ` + "`plan`" + `: the job would start now. |
| 2 | The job can never start as it is written. |
| 3 | No agent answers, or none is active. |
| 130 | You interrupted the command. |
| 255 | Only from ` + "`plan`" + `: an error. |

| command | does | options |
|---|---|---|
`)
	seen := map[string][]string{}
	for _, name := range names() {
		own := helpOf(t, name)
		usage := usageOf(own)
		var also []string
		for _, title := range shared {
			before, section, ok := strings.Cut(own, title+"\n")
			if !ok {
				continue
			}
			section, after := cutSection(section)
			if first, twice := seen[title]; twice && !slices.Equal(first, options(section)) {
				t.Errorf("%s: %q differs from that of other commands:\n%s", name, title, cmp.Diff(first, options(section)))
			}
			seen[title] = options(section)
			own = before + "\n" + after
			also = append(also, strings.ToLower(strings.TrimSuffix(title, " Options:")))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", usage, synopsis(name), strings.Join(append(options(own), also...), ", "))
	}
	b.WriteString("\nSeveral commands share these options:\n\n| | options |\n|---|---|\n")
	for _, title := range shared {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.ToLower(strings.TrimSuffix(title, " Options:")), strings.Join(seen[title], ", "))
	}
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

// usageOf returns a command and its arguments, as code in a table.
func usageOf(help string) string {
	usage, _, _ := strings.Cut(help, "\n\n")
	usage = strings.TrimPrefix(strings.Join(strings.Fields(usage), " "), "Usage: nomad-pal ")
	return strings.NewReplacer(" [options]", "", "|", `\|`).Replace(usage)
}

// options returns the options that a help text describes, as code.
func options(help string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^  (-[a-z].*?)(?:  |$)`).FindAllStringSubmatch(help, -1) {
		for option := range strings.SplitSeq(m[1], ", ") {
			if name, value, ok := strings.Cut(option, "="); ok { // a default may follow the value
				value, _, _ = strings.Cut(value, " ")
				option = name + "=" + value
			}
			all = append(all, "`"+option+"`")
		}
	}
	return all
}

// cutSection cuts a help text at the next section's title.
func cutSection(text string) (section, after string) {
	if at := regexp.MustCompile(`(?m)^\S`).FindStringIndex(text); at != nil {
		return text[:at[0]], text[at[0]:]
	}
	return text, ""
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
