// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/sim"
)

// Durations on a cluster that is not busy, as measured in replays: from a decision until all ranks
// run, and from the end of a gang until its GPUs are free.
const (
	usualStart = 75 * time.Millisecond
	usualEnd   = 200 * time.Millisecond
)

func defaults(seed uint64) options {
	return options{Options: command.Options{Nodes: 16, Seed: seed}, jobs: 24, outliers: 1, bound: 45 * time.Second}
}

// TestDemoWins: in the simulator, the demo's jobs gain from nomad-pal with each of ten seeds. All
// jobs count.
func TestDemoWins(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		o := defaults(seed + 1)
		gpus, _, err := o.draw()
		if err != nil {
			t.Fatal(err)
		}
		jobs, err := o.drawJobs()
		if err != nil {
			t.Fatal(err)
		}
		out, err := replay.PredictPlain(jobs, gpus, penalty, false, giveUp, usualStart+usualEnd, o.Seed)
		if err != nil {
			t.Fatal(err)
		}
		finish := map[string]float64{}
		for _, j := range out.Jobs {
			finish[j.ID] = j.Finish
		}
		times := sim.Config{StartS: usualStart.Seconds, EndS: usualEnd.Seconds()}
		p, err := replay.Predict(jobs, gpus, penalty, rules().Queue(), times)
		if err != nil {
			t.Fatal(err)
		}
		plain := foreseen(jobs, len(gpus.All), o.bound, finish)
		for id, jct := range p.JCTS {
			for _, j := range jobs {
				if j.ID == id {
					finish[id] = j.Submit.Seconds() + jct
				}
			}
		}
		placed := foreseen(jobs, len(gpus.All), 2*o.bound, finish)
		t.Logf("seed %d: average %v, %v; p90 %v, %v; useful %.2f, %.2f", seed+1, plain.average, placed.average, plain.p90, placed.p90, plain.useful, placed.useful)
		if placed.late > 0 || placed.average >= plain.average || placed.p90 >= plain.p90 || placed.useful <= plain.useful {
			t.Errorf("seed %d: plain Nomad %+v, nomad-pal %+v", seed+1, plain, placed)
		}
	}
}

// foreseen returns the figures of a simulated run; a finish below 0 means never.
func foreseen(jobs []replay.Job, gpus int, bound time.Duration, finish map[string]float64) sums {
	at := time.Unix(0, 0)
	r := &replay.Result{Took: bound}
	end := time.Duration(0)
	for _, j := range jobs {
		f := time.Duration(finish[j.ID] * float64(time.Second))
		jr := replay.JobResult{Job: j, SubmittedAt: at.Add(j.Submit)}
		if f >= 0 && f <= bound {
			jr.FinishedAt = at.Add(f)
			end = max(end, f)
		}
		r.Jobs = append(r.Jobs, jr)
	}
	if !slices.ContainsFunc(r.Jobs, func(j replay.JobResult) bool { return j.FinishedAt.IsZero() }) {
		r.Took = end
	}
	all := r.AtLeast(gpus)
	return sums{average: all.AvgJCT, p90: r.PercentileAtLeast(0.9), useful: all.Useful, jobs: all.Jobs, late: all.Jobs - all.Finished}
}

// TestLastScreen: the demo's last screen fits a terminal of 120 × 40, below the line of the shell.
func TestLastScreen(t *testing.T) {
	t.Parallel()
	o := defaults(1)
	gpus, _, err := o.draw()
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := o.drawJobs()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(0, 0)
	run := func(unfinished int) *replay.Result {
		r := &replay.Result{Took: 45 * time.Second, HeldInVain: 100 * time.Second}
		for i, j := range jobs {
			jr := replay.JobResult{Job: j, SubmittedAt: at, FinishedAt: at.Add(44900 * time.Millisecond), GPUIDs: map[string][]string{}}
			for k := range j.GPUs() {
				u := gpus.All[k]
				node := fmt.Sprintf("gpu-%02d", u.Node)
				jr.GPUIDs[node] = append(jr.GPUIDs[node], u.ID)
			}
			if i < unfinished {
				jr.FinishedAt = time.Time{}
			}
			r.Jobs = append(r.Jobs, jr)
		}
		return r
	}
	var out bytes.Buffer
	s := &stage{&out, gpus, time.Now()}
	if err := s.compare(run(2), run(0)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) > 39 {
		t.Errorf("%d lines; a terminal has 40, and the shell's prompt needs one", len(lines))
	}
	for _, l := range lines {
		if n := utf8.RuneCountInString(l); n > 120 {
			t.Errorf("%d columns, a terminal has 120: %s", n, l)
		}
	}
	for _, want := range []string{"jobs finish at least", "2 of 24 jobs had not finished after 45 s", "not done", "≥ ", "make playground"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestHeadline(t *testing.T) {
	t.Parallel()
	plain := sums{average: 20 * time.Second, vain: 0.31}
	if got, want := headline(plain, sums{average: 10 * time.Second}), "Under nomad-pal, jobs finish 2.0 times sooner on average; half-placed gangs held 31 % of GPU time, now 0 %."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := headline(plain, sums{average: 30 * time.Second}); !strings.Contains(got, "1.5 times later") {
		t.Errorf("slower, but: %q", got)
	}
}
