// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// guardedOtherwise are packages whose tests end their processes by other means.
var guardedOtherwise = map[string]string{
	"e2e/docker":     "they run in a namespace of processes of their own",
	"internal/guard": "they test it",
}

var starts = regexp.MustCompile(`\bcmd\.Start\(\)|\b(agent|owner|task|sh|build|worker)\.Start\(\)|conformance\.Start\(`)

// Processes that tests start end with the tests, even if the tests are killed.
func TestProcessesEndWithTheirTests(t *testing.T) {
	starting, guarded := map[string]string{}, map[string]bool{}
	for _, path := range tracked(t, "*_test.go") {
		text, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		if starts.Match(text) {
			starting[dir] = path
		}
		guarded[dir] = guarded[dir] || strings.Contains(string(text), "guard.Main(")
	}
	if len(starting) < 5 {
		t.Errorf("only %d packages start processes", len(starting))
	}
	for dir, path := range starting {
		if !guarded[dir] && guardedOtherwise[dir] == "" {
			t.Errorf("%s starts a process: run the package's tests with guard.Main, which ends the process if they are killed", path)
		}
	}
}
