// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// result is a run of two gangs of 2 × 2 GPUs. The first takes the given number of seconds. The
// second finishes 10 s after it or, without a prediction, never: half of it waits in vain.
func result(first float64, predicted *replay.Prediction) *replay.Result {
	at := func(s float64) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(s * float64(time.Second))) }
	job := func(id string) replay.Job {
		return replay.Job{ID: id, Class: "A", Allocations: 2, GPUsEach: 2, Iterations: 8, Iteration: 250 * time.Millisecond}
	}
	a := replay.JobResult{Job: job("a"), SubmittedAt: at(0), StartedAt: at(1), FinishedAt: at(first)}
	b := replay.JobResult{Job: job("b"), SubmittedAt: at(2), StartedAt: at(first + 1), FinishedAt: at(first + 10)}
	if predicted == nil {
		b = replay.JobResult{Job: job("b"), SubmittedAt: at(2), Allocated: []string{"g1", "g2"}}
	}
	return &replay.Result{Mode: "m", Jobs: []replay.JobResult{a, b}, Predicted: predicted}
}

// sample has three runs of plain Nomad, whose second gang is never complete, and two of the placer.
func sample() *report {
	r := &report{Provenance: command.Provenance{Command: []string{"replay", "-seed", "1"}}, Workload: "w", GPUs: 8, Jobs: 2, Compress: 120}
	for i := range 2 {
		res := result(10+float64(i), &replay.Prediction{AvgJCTS: 99, JCTS: map[string]float64{"a": 10, "b": 21}, Jittered: []float64{13.9, 15.5, 16}})
		res.Cost = &replay.Cost{CPUS: 0.1, RSSMB: 30 + 2*float64(i)}
		r.add(run1("pal-default", true, i), res)
	}
	for i := range 3 {
		r.add(run1("nomad-binpack", false, 2-i), result(22-float64(i), nil))
	}
	return r
}

// run1 is a run with that seed and one outlier.
func run1(name string, preempt bool, seed int) task {
	return task{scheduler: scheduler{name: name, preempt: preempt}, outliers: 1, seed: uint64(seed)}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	r := sample()
	plain, ours := r.Runs[0], r.Runs[1]
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"finished", plain.Finished, 1}, {"avg, the unfinished job counts until the end of its run", plain.AvgJCT, (21 + 19) / 2.0}, {"low", plain.AvgJCTLow, 19}, {"high", plain.AvgJCTHigh, 21},
		{"interval", plain.CI.AvgJCT[1] - plain.CI.AvgJCT[0], 2 * 4.303 / math.Sqrt(3)},
		{"unfinished", float64(plain.Unfinished), 3},
		{"halved", plain.HalvedShare, 0.5},
		{"ours", ours.AvgJCT, (10 + 18 + 11 + 19) / 4.0}, {"simulated", ours.SimAvgJCT, 15.5}, {"makespan", ours.Makespan, 20.5}, {"ours halved", ours.HalvedShare, 0},
		{"within 5 %", float64(ours.SimClose), 1}, {"within chance", float64(ours.SimChance), 1},
		{"CPU per job", ours.Overhead.PlacerCPU, 50}, {"memory", ours.Overhead.PlacerRSS, 31}, {"plain CPU", plain.Overhead.PlacerCPU, 0},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	one := &report{GPUs: 8, Jobs: 2}
	one.add(run1("nomad-binpack", false, 0), result(20, nil))
	if l := one.Runs[0]; l.CI != nil {
		t.Errorf("a single repetition has the intervals %v", l.CI)
	}
	for i, raw := range plain.Raw {
		if raw.Seed != uint64(i) {
			t.Errorf("repetition %d has the seed %d", i, raw.Seed)
		}
	}
}

// A report that is written and read again has the same content.
func TestReportIsReadAgain(t *testing.T) {
	t.Parallel()
	r := sample()
	path := filepath.Join(t.TempDir(), "r.json")
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	short, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(short), `"avg_jct_s": 20,`) || strings.Contains(string(short), `"raw"`) {
		t.Errorf("the file for people is not the figures without raw runs:\n%.2000s", short)
	}
	again, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	var a, b bytes.Buffer
	for out, rep := range map[*bytes.Buffer]*report{&a: r, &b: again} {
		command.Print(out, rep.Page())
		if err := rep.Page().Write(out); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(a.String(), b.String()); d != "" {
		t.Error(d)
	}
}

func TestReadReportRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"{": "reading results", `{"runs":[{"scheduler":"x"}]}`: `scheduler "x" has no raw results`,
		`{"runs":[{"scheduler":"x","raw":[{"jobs":[]}]}]}`: "written by an older version"} {
		path := filepath.Join(t.TempDir(), "r.json")
		if err := command.Write(runsFile(path), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := readReport(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	r := sample()
	p := r.Page()
	tables := map[string]*plot.Table{}
	for _, s := range p.Sections {
		tables[s.Title] = s.Table
	}
	for title, want := range map[string][]string{
		"Gangs half placed (1 outlier)":         {"nomad-binpack", "50 %", "0 GPU s", "0.0 %", "0 s", "0 of 3", "3 of 6"},
		"Simulated beside measured (1 outlier)": {"pal-default, preemption", "0", "14.0", "15.5", "+10.7 %", "13.9…16.0", "by chance"},
		"Queueing by gang size (1 outlier)":     {"nomad-binpack", "9.5 s"}, // 1 s three times, then 18 s, 19 s and 20 s
		"Waits (1 outlier)":                     {"nomad-binpack", "20.0 s", "19 s", "21 s", "0", "–", "–"},
		"Overhead (1 outlier)":                  {"nomad-binpack", "3", "1s", "1s", "–", "–", "–", "–"},
	} {
		if got := tables[title].Rows[0]; !cmp.Equal(got, want) {
			t.Errorf("%s: %s", title, cmp.Diff(want, got))
		}
	}
	figures := 0
	for _, s := range p.Sections {
		figures += len(s.Figures)
	}
	if figures != 5 {
		t.Errorf("%d figures", figures)
	}
}

// Plain Nomad and the placer never share a colour.
func TestColours(t *testing.T) {
	t.Parallel()
	if got, want := sample().views()[0].colours(), []int{0, plot.Ours}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}
