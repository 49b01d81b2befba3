// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"strings"
	"testing"
)

// TestDocsShowTheResults: each row of the policies' table in docs/results/README.md is a row of the
// results.
func TestDocsShowTheResults(t *testing.T) {
	const results = "../../../bench/results/"
	var out strings.Builder
	if err := tables(&out, results+"policies.json", results+"gain.json"); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../../docs/results/README.md")
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(out.String(), "\n")
	_, rest, _ := strings.Cut(string(doc), "\n"+head+"\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	rows := strings.Split(table, "\n")
	for _, row := range rows {
		if !strings.Contains(out.String(), "\n"+row+"\n") {
			t.Errorf("docs/results/README.md: the results lack %s", row)
		}
	}
	if len(rows) < 5 {
		t.Errorf("docs/results/README.md has %d rows under %s", len(rows), head)
	}
}
