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

// TestSecurityNamesTests: each test that docs/operators/secure.md names is there, and
// each row of its tables names one.
func TestSecurityNamesTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "operators", "secure.md"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*_test.go")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for name := range strings.FieldsSeq(string(out)) {
		code, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range function.FindAllStringSubmatch(string(code), -1) {
			there[m[1]] = true
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	rows := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		names := named.FindAllStringSubmatch(line, -1)
		for _, m := range names {
			if !there[m[1]] {
				t.Errorf("there is no %s", m[1])
			}
		}
		if strings.HasPrefix(line, "| ") && !strings.HasSuffix(line, "| test |") {
			if rows++; len(names) == 0 {
				t.Errorf("no test: %s", line)
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}
