// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Without GPUs of a second model, the text does not mention them.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, two := range []bool{true, false} {
		said := explain(typed{twoModels: two}, time.Now())
		if strings.Contains(said, "RTX") != two || strings.Contains(said, "light") != two {
			t.Errorf("two models %v:\n%s", two, said)
		}
	}
}

// The job whole uses every V100, however many there are.
func TestWholeWantsEveryNode(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := writeJobs(folder, 7); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "jobs", "whole.nomad.hcl"))
	if counts := regexp.MustCompile(`count += \d+`).FindAllString(string(text), -1); err != nil || strings.Join(counts, ", ") != "count = 7, count = 4" {
		t.Errorf("%q %v", counts, err)
	}
}
