// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The slower the answers, the less often run asks, but people never wait long
// for news.
func TestLookAgain(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 500 * time.Millisecond, 10 * time.Millisecond: 500 * time.Millisecond, 100 * time.Millisecond: time.Second,
		2 * time.Second: 5 * time.Second, time.Minute: 5 * time.Second,
	} {
		if got := lookAgain(took); got != want {
			t.Errorf("after an answer that took %v: next after %v, want %v", took, got, want)
		}
	}
}

// Run repeats in plain words why Nomad refuses a job as invalid, as plan does, not Nomad's answer.
func TestRunOfInvalid(t *testing.T) {
	c := newCluster(t)
	file := filepath.Join(t.TempDir(), "empty.nomad.hcl")
	if err := os.WriteFile(file, []byte(`job "empty" { type = "batch" }`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, said := c.does("run", "-detach", file); code != 1 || said != "Error: registering job \"empty\": Nomad refuses the job: Missing job task groups\n" {
		t.Errorf("%d %q", code, said)
	}
}
