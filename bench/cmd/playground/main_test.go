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

// The jobs fit the cluster, whatever its size: train can run, whole needs every V100, and never
// needs more than there are.
func TestJobsFitCluster(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[int]map[string]string{
		1:  {"train": "1, 4", "whole": "1, 4", "never": "16, 4", "fails": "2, 1"},
		7:  {"train": "2, 4", "whole": "7, 4", "never": "112, 4", "fails": "2, 1"},
		99: {"train": "2, 4", "whole": "99, 4", "never": "1584, 4", "fails": "2, 1"},
	} {
		folder := t.TempDir()
		if err := writeJobs(folder, nodes); err != nil {
			t.Fatal(err)
		}
		for job, counts := range want {
			text, err := os.ReadFile(filepath.Join(folder, "jobs", job+".nomad.hcl"))
			if got := strings.Join(regexp.MustCompile(`\d+`).FindAllString(strings.Join(regexp.MustCompile(`count += \d+`).FindAllString(string(text), -1), " "), -1), ", "); err != nil || got != counts {
				t.Errorf("%d nodes, %s: counts %s, want %s (%v)", nodes, job, got, counts, err)
			}
		}
	}
}
