// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// plan returns a campaign whose runs are faked, and counts the runs by name.
func plan(t *testing.T, o options) (*campaign, *runs) {
	t.Helper()
	o.nodes, o.jobs, o.compress = 2, 3, 240
	if o.modes == "" {
		o.modes = "nomad-binpack,pal-default"
	}
	c, err := o.campaign()
	if err != nil {
		t.Fatal(err)
	}
	c.progress = io.Discard
	rs := &runs{did: map[string]int{}}
	c.once = func(_ context.Context, t task) (*replay.Result, error) {
		rs.add(t.String())
		if t.rules == nil {
			return result(20+float64(t.seed), nil), nil
		}
		return result(10, &replay.Prediction{AvgJCTS: 10}), nil
	}
	return c, rs
}

type runs struct {
	mu  sync.Mutex
	did map[string]int
}

func (r *runs) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did[name]++
}

// The result does not depend on how many runs are parallel.
func TestCampaignIsDeterministic(t *testing.T) {
	t.Parallel()
	var files []string
	for _, parallel := range []int{1, 4} {
		c, _ := plan(t, options{outliers: "1,0", reps: 3, parallel: parallel, Results: command.Results{JSON: filepath.Join(t.TempDir(), "r.json")}})
		if err := c.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.report.Parallel = 0
		if err := c.report.write(c.JSON); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(c.JSON)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, string(text))
	}
	if d := cmp.Diff(files[0], files[1]); d != "" {
		t.Error(d)
	}
	if !json.Valid([]byte(files[0])) {
		t.Error("the result file is not JSON")
	}
	var order []string
	r := &report{}
	if err := json.Unmarshal([]byte(files[0]), r); err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Runs {
		order = append(order, fmt.Sprintf("%s, %s, %d", l.Population, l.title(), l.Repetitions))
	}
	want := []string{"1 outlier, nomad-binpack, 3", "1 outlier, pal-default, 3", "1 outlier, pal-default, preemption, 3",
		"no outlier, nomad-binpack, 3", "no outlier, pal-default, 3", "no outlier, pal-default, preemption, 3"}
	if !cmp.Equal(order, want) {
		t.Error(cmp.Diff(want, order))
	}
}

// A run that fails twice ends the campaign. The file keeps the earlier runs, and the next campaign
// does not repeat them.
func TestCampaignResumes(t *testing.T) {
	t.Parallel()
	o := options{outliers: "1", reps: 2, parallel: 2, Results: command.Results{JSON: filepath.Join(t.TempDir(), "r.json")}}
	c, _ := plan(t, o)
	broken := errors.New("broken")
	played := c.once
	c.once = func(ctx context.Context, t task) (*replay.Result, error) {
		if t.seed == 1 && t.preempt {
			return nil, broken
		}
		if t.seed == 1 && t.rules == nil {
			<-ctx.Done() // the campaign was interrupted
			return nil, ctx.Err()
		}
		return played(ctx, t)
	}
	if err := c.run(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "pal-default, preemption, 1 outlier, seed 1") {
		t.Fatalf("error %v", err)
	}
	o.resume = true
	again, rs := plan(t, o)
	if err := again.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"nomad-binpack, 1 outlier, seed 1": 1, "pal-default, preemption, 1 outlier, seed 1": 1}
	if !cmp.Equal(rs.did, want) {
		t.Error(cmp.Diff(want, rs.did))
	}
	for _, l := range again.report.Runs {
		if l.Repetitions != 2 {
			t.Errorf("%s has %d repetitions", l.title(), l.Repetitions)
		}
	}
	o.seed = 7 // another campaign
	o.nodes, o.jobs, o.compress = 2, 3, 240
	if _, err := o.campaign(); err == nil || !strings.Contains(err.Error(), "its seed is 0, now 7") {
		t.Errorf("another campaign: %v", err)
	}
}

func TestCommits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, now, want string }{
		{"a", "a", "a"}, {"a", "b", "a, b"}, {"a, b", "b", "a, b"}, {"a, b", "c", "a, b, c"},
	} {
		if got := commits(c.before, c.now); got != c.want {
			t.Errorf("runs of %s and now of %s: %q, want %q", c.before, c.now, got, c.want)
		}
	}
}

func TestCampaignRefuses(t *testing.T) {
	t.Parallel()
	good := options{nodes: 2, jobs: 3, compress: 240, outliers: "1", reps: 1, parallel: 1}
	for want, change := range map[string]func(*options){
		`-outliers: "9"`:       func(o *options) { o.outliers = "9" },
		`-outliers: "x"`:       func(o *options) { o.outliers = "1,x" },
		`no scheduler "slurm"`: func(o *options) { o.modes = "slurm" },
		"-repetitions 0":       func(o *options) { o.reps = 0 },
		"one repetition":       func(o *options) { o.overload, o.reps = 2, 2 },
		"has no jobs":          func(o *options) { o.jobs = 0 },
		"-parallel 0 must be":  func(o *options) { o.reps, o.parallel = 1, 0 },
	} {
		o := good
		change(&o)
		if _, err := o.campaign(); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "-parallel 0") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := good.campaign(); err != nil {
		t.Error(err)
	}
}

// A run that fails once is retried.
func TestCampaignTriesAgain(t *testing.T) {
	t.Parallel()
	c, rs := plan(t, options{outliers: "1", reps: 1, parallel: 1, modes: "nomad-binpack", Results: command.Results{JSON: filepath.Join(t.TempDir(), "r.json")}})
	played := c.once
	c.once = func(ctx context.Context, t task) (*replay.Result, error) {
		r, err := played(ctx, t)
		if rs.did[t.String()] == 1 {
			return nil, errors.New("a hiccup")
		}
		return r, err
	}
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{"nomad-binpack, 1 outlier, seed 0": 2}; !cmp.Equal(rs.did, want) {
		t.Error(cmp.Diff(want, rs.did))
	}
}

// If Slurm is not installed, all other lines run, and the output names the packages to install.
// Naming a line of Slurm in -modes fails at once.
func TestWithoutSlurm(t *testing.T) {
	var said strings.Builder
	c := &campaign{options: options{compress: 1}, progress: &said}
	const lacks = "no Slurm here: apt-get install slurm-wlm"
	all := c.schedulers()
	some, err := c.startable(all, lacks)
	if err != nil || len(some) != len(all)-2 || !strings.Contains(said.String(), lacks) {
		t.Errorf("%d of %d lines, %v, said %q", len(some), len(all), err, said.String())
	}
	if some, err := c.startable(all, ""); err != nil || len(some) != len(all) {
		t.Errorf("%d of %d lines with Slurm installed, %v", len(some), len(all), err)
	}
	c.modes = "nomad-binpack,slurm-backfill"
	if _, err := c.startable(all, lacks); err == nil || !strings.Contains(err.Error(), lacks) {
		t.Errorf("named in -modes: %v", err)
	}
}
