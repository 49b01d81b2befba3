// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesTests: each test that docs/operators/secure.md names exists, and each
// row of its tables names one.
func TestSecurityNamesTests(t *testing.T) {
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, name := range tracked(t, "*_test.go") {
		for _, m := range function.FindAllStringSubmatch(read(t, name), -1) {
			there[m[1]] = true
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	rows := 0
	for line := range strings.SplitSeq(read(t, "docs/operators/secure.md"), "\n") {
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
