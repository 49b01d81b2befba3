// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/placer/agent"
)

// The agent reads from its configuration the same policy as the simulator gets, with the same
// compressed times.
func TestAgentAndSimulatorHaveTheSamePolicy(t *testing.T) {
	t.Parallel()
	for _, s := range (options{compress: 240}).schedulers() {
		if s.rules == nil {
			continue
		}
		path := filepath.Join(t.TempDir(), "placer.hcl")
		if err := os.WriteFile(path, []byte(s.rules.HCL()), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := agent.Load([]string{path})
		if err != nil {
			t.Fatal(err)
		}
		c, err := f.PlacerConfig()
		if err != nil {
			t.Fatal(err)
		}
		got, want := c.Queue, s.rules.Queue()
		got.Placement = want.Placement
		if !cmp.Equal(got, want) || c.Placement != want.Placement.Name {
			t.Errorf("%s: %s%s", s.name, c.Placement, cmp.Diff(want, got))
		}
		if got, want := c.RestartCost, 750*time.Millisecond; got != want {
			t.Errorf("%s: a restart costs %v, want %v", s.name, got, want)
		}
		if got, want := c.Queue.DefaultRuntime, 2500*time.Millisecond; got != want {
			t.Errorf("%s: guesses %v, want %v", s.name, got, want)
		}
		if got, want := c.Queue.MaxWait, 9*time.Minute; got != want {
			t.Errorf("%s: max_wait is %v, want %v", s.name, got, want)
		}
	}
}

// The name and preemption of a scheduler identify its results.
func TestSchedulersDiffer(t *testing.T) {
	t.Parallel()
	for i, s := range (options{compress: 1}).schedulers() {
		if got := place(s.name, s.preempt); got != i {
			t.Errorf("%s, preemption %v is line %d, found at %d", s.name, s.preempt, i, got)
		}
	}
}
