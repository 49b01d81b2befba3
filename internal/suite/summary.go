// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// summary prints each part's times and what was skipped.
func summary(to io.Writer, page string) error {
	all, err := readNotes()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	fmt.Fprint(to, "\npart            tests      wall   processors\n")
	for _, n := range all {
		failed := ""
		if n.Failed {
			failed = "  failed"
		}
		fmt.Fprintf(to, "%-14s %6d %7.0f s %10.0f s%s\n", n.Name, n.Passed, n.Wall, n.CPU, failed)
	}
	if parts := missing(all, string(text)); len(parts) > 0 {
		fmt.Fprintf(to, "did not run, or did not run to the end: %s\n", strings.Join(parts, ", "))
	}
	fmt.Fprint(to, skipped(all))
	for _, n := range all {
		for _, t := range n.Again {
			fmt.Fprintf(to, "failed, but passed when it ran again alone: %s.%s (%s)\n", filepath.Base(t.Package), t.Name, n.Name)
		}
	}
	return nil
}

var row = regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\|.*\\| (?:(?:about )?[0-9][0-9,]* s|–) \\|$")

// missing returns the parts of make test that left no note.
func missing(all []note, page string) (parts []string) {
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		if strings.Contains(m[0], "| `make test` |") && !slices.ContainsFunc(all, func(n note) bool { return n.Name == m[1] }) {
			parts = append(parts, m[1])
		}
	}
	return parts
}

func readNotes() (all []note, err error) {
	paths, err := filepath.Glob(filepath.Join(notes, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var n note
		if err := json.Unmarshal(text, &n); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, n)
	}
	return all, nil
}

// remedies are the ways to make skipped tests run, by the reason for the skip.
var remedies = []struct{ said, remedy string }{
	{"gcc", "apt-get install gcc"},
	{"PAL_DATA", "PAL_DATA=the PAL artifact's data (hal-uw/blox-pal, branch artifact)"},
	{"ptxas", "make ptxas"},
	{"npm", "apt-get install npm"},
	{"Chromium", "apt-get install chromium"},
	{"chromium", "apt-get install chromium"},
	{"promtool", "apt-get install prometheus"},
	{"memlock", ""}, // the machine limits it
	{"docker", "run the tests as root, after apt-get install docker.io"},
	{"iproute2", "run the tests as root, after apt-get install iproute2"},
	{"NACP_BIN", "access to the network, to build the proxy; or NACP_BIN=<path of a built proxy>"},
	{"no Nomad", "make nomad"},
	{"E2E_BIN", "make e2e"},
	{"make ", ""}, // the reason already names the command
}

// remedy returns how to make a test with this skip reason run; "" if nothing is needed.
func remedy(why string) string {
	for _, r := range remedies {
		if strings.Contains(why, r.said) {
			return r.remedy
		}
	}
	return ""
}

// skipped returns which tests were skipped, why, and how to make them run.
func skipped(all []note) string {
	tests := map[string][]string{}
	for _, n := range all {
		for _, s := range n.Skips {
			tests[s.Why] = append(tests[s.Why], filepath.Base(s.Package)+"."+s.Test)
		}
	}
	if len(tests) == 0 {
		return "no test was skipped\n"
	}
	var b strings.Builder
	for _, why := range slices.Sorted(maps.Keys(tests)) {
		names := tests[why]
		slices.Sort(names)
		names = slices.Compact(names)
		fmt.Fprintf(&b, "skipped: %d tests (%s", len(names), names[0])
		if len(names) > 1 {
			b.WriteString(", …")
		}
		fmt.Fprintf(&b, "): %s\n", why)
		if r := remedy(why); r != "" {
			fmt.Fprintf(&b, "  what would run them: %s\n", r)
		}
	}
	return b.String()
}
