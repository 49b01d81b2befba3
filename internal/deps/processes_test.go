// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"os"
	"os/exec"
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

// A target that runs the end-to-end tests of a placer with fault points builds that placer.
func TestTargetsBuildTheirBinaries(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"e2e", "e2e-all"} {
		cmd := exec.Command("make", "-n", "--no-print-directory", target)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "MAKEFLAGS=")
		out, err := cmd.CombinedOutput()
		if build, test, ok := strings.Cut(string(out), "nomad-pal-fault"); err != nil || !ok || strings.Contains(build, "cd e2e && ") || !strings.Contains(test, "cd e2e && ") {
			t.Errorf("make %s does not build nomad-pal-fault before it runs ./e2e: %v\n%s", target, err, out)
		}
	}
}
