// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"strings"
	"testing"
)

// TestDocsShowTheResults: docs/results/simulator.md has the tables of the results.
func TestDocsShowTheResults(t *testing.T) {
	const results = "../../../bench/results/"
	var out strings.Builder
	if err := tables(&out, results+"policies.json", results+"gain.json"); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../../docs/results/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range strings.Split(strings.TrimSpace(out.String()), "\n\n") {
		if !strings.Contains(string(doc), table+"\n\n") {
			t.Errorf("docs/results/simulator.md lacks this table:\n%s", table)
		}
	}
}
