// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The interval of five values, calculated by hand: mean 12, standard deviation √2.5, t 2.776.
func TestConfidence(t *testing.T) {
	t.Parallel()
	low, high, ok := Confidence([]float64{10, 11, 12, 13, 14})
	half := 2.776 * math.Sqrt(2.5/5)
	if !ok || math.Abs(low-(12-half)) > 1e-9 || math.Abs(high-(12+half)) > 1e-9 {
		t.Errorf("interval %v…%v (%v), want 12 ± %v", low, high, ok, half)
	}
	if _, _, ok := Confidence([]float64{1}); ok {
		t.Error("a single value has an interval")
	}
}

// The ratios 1/2 and 2 cancel out. The interval is that of the logarithms ±ln 2: mean 0, standard
// deviation √2·ln 2, t 12.706.
func TestRatio(t *testing.T) {
	t.Parallel()
	mean, low, high, ok := Ratio([]float64{0.5, 2})
	half := 12.706 * math.Ln2
	if !ok || math.Abs(mean-1) > 1e-9 || math.Abs(math.Log(low)+half) > 1e-9 || math.Abs(math.Log(high)-half) > 1e-9 {
		t.Errorf("mean %v, interval %v…%v (%v), want 1 × e^±%v", mean, low, high, ok, half)
	}
	if mean, _, _, ok := Ratio([]float64{3}); ok || math.Abs(mean-3) > 1e-9 {
		t.Errorf("a single ratio: %v, has an interval: %v", mean, ok)
	}
}

// An unfinished job counts until the end of the run, even if its last event is earlier.
func TestAtLeast(t *testing.T) {
	t.Parallel()
	r := Result{Took: 40 * time.Second, Jobs: []JobResult{job("a", 2, 0, 2, 20), job("b", 2, 10, -1, -1), job("never submitted", 2, -1, -1, -1)}}
	r.Jobs[0].Iterations, r.Jobs[0].Iteration = 10, time.Second
	got := r.AtLeast(8)
	if got.Finished != 1 || got.Jobs != 3 || got.AvgJCT != 25*time.Second || got.Makespan != 40*time.Second {
		t.Errorf("%+v", got)
	}
	if want := 10.0 * 4 / (40 * 8); math.Abs(got.Useful-want) > 1e-9 {
		t.Errorf("useful %v, want %v: 10 s of work on 4 of 8 GPUs in 40 s", got.Useful, want)
	}
	if want := math.Sqrt(20 * 30); math.Abs(got.GeomeanJCT.Seconds()-want) > 1e-6 {
		t.Errorf("geomean %v, want %v s", got.GeomeanJCT, want)
	}
}

// Lists that equal the GPUs that ran are dropped. Others stay.
func TestTrim(t *testing.T) {
	t.Parallel()
	j := JobResult{GPUIDs: map[string][]string{"n1": {"c", "a"}, "n0": {"b"}}, Allocated: []string{"a", "b", "c"}, Explained: []string{"a", "b"}}
	j.Trim()
	if j.Allocated != nil || len(j.Explained) != 2 {
		t.Errorf("allocated %v, explained %v", j.Allocated, j.Explained)
	}
}

// Student's t distribution has 2.5 % above each of student's points, by integration of its density.
func TestStudent(t *testing.T) {
	t.Parallel()
	for _, df := range []int{1, 2, 5, 9, 20, 21, 40, 200} {
		n := float64(df)
		up, _ := math.Lgamma((n + 1) / 2)
		down, _ := math.Lgamma(n / 2)
		scale := math.Exp(up-down) / math.Sqrt(n*math.Pi)
		const steps = 200_000
		width := student(df) / steps
		area := 0.0
		for i := range steps {
			x := (float64(i) + 0.5) * width
			area += scale * math.Pow(1+x*x/n, -(n+1)/2) * width
		}
		if math.Abs(area-0.475) > 1e-4 {
			t.Errorf("student(%d) = %v has the share %v of the distribution below it, want 0.975", df, student(df), 0.5+area)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	if a, b, c := Median([]float64{9, 1, 2}), Median([]float64{4, 1, 3, 2}), Median(nil); a != 2 || b != 2.5 || c != 0 {
		t.Errorf("medians %v, %v, %v", a, b, c)
	}
}

// job returns a job that was submitted, complete and finished at these seconds after the start of
// the run; -1: never.
func job(id string, allocations, submit, start, finish int) JobResult {
	at := func(s int) time.Time {
		if s < 0 {
			return time.Time{}
		}
		return time.Unix(1_000_000+int64(s), 0)
	}
	return JobResult{Job: Job{ID: id, Allocations: allocations, GPUsEach: 2}, SubmittedAt: at(submit), StartedAt: at(start), FinishedAt: at(finish)}
}

func TestHalved(t *testing.T) {
	t.Parallel()
	with := func(change func(*JobResult)) JobResult {
		j := job("j", 3, 0, 10, 20)
		change(&j)
		return j
	}
	for _, c := range []struct {
		name string
		j    JobResult
		want bool
	}{
		{"came together", with(func(j *JobResult) { j.WaitedGPU = 6 * 5 * time.Second }), false},
		{"waited long", with(func(j *JobResult) { j.WaitedGPU = 6*5*time.Second + 6 }), true},
		{"never started, held GPUs", with(func(j *JobResult) { j.StartedAt, j.Allocated = time.Time{}, []string{"g"} }), true},
		{"never started, gave up", with(func(j *JobResult) { j.StartedAt, j.GaveUp = time.Time{}, 1 }), true},
		{"never started, held nothing", with(func(j *JobResult) { j.StartedAt = time.Time{} }), false},
		{"one allocation", with(func(j *JobResult) { j.Allocations, j.WaitedGPU = 1, time.Hour }), false},
	} {
		if got := c.j.Halved(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	half := with(func(j *JobResult) { j.GaveUp, j.StartedAt = 1, time.Time{} })
	r := Result{Jobs: []JobResult{half, job("k", 2, 0, 1, 2), job("single", 1, 0, 1, 2), job("unsubmitted", 2, -1, -1, -1)}}
	if got := r.HalvedShare(); got != 0.5 {
		t.Errorf("share %v of the gangs, want one of two", got)
	}
}

func TestQueueing(t *testing.T) {
	t.Parallel()
	r := Result{Jobs: []JobResult{job("a", 1, 0, 2, 30), job("b", 2, 5, -1, -1), job("c", 2, 6, 9, 12), job("d", 4, -1, -1, -1)}}
	want := map[int][]time.Duration{2: {2 * time.Second}, 4: {25 * time.Second, 3 * time.Second}} // b counts until the end
	if got := r.Queueing(); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if got, want := r.AvgJCTAtLeast(), (30+25+6)*time.Second/3; got != want {
		t.Errorf("average over all jobs %v, want %v", got, want)
	}
}

// Only jobs count that fit, and before which no job waits.
func TestStarts(t *testing.T) {
	t.Parallel()
	r := Result{Jobs: []JobResult{
		job("first", 2, 0, 1, 20),           // 4 of 8 GPUs
		job("fits", 1, 2, 4, 6),             // 2 more GPUs
		job("too wide", 3, 10, 21, 30),      // 4 + 6 > 8
		job("behind", 1, 11, 12, 13),        // fits, but another job waits
		job("after", 1, 40, 43, 50),         // an empty cluster
		job("never started", 1, 60, -1, -1), //
	}}
	want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
	if got := r.Starts(8); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

// A prediction is compared over the jobs that finished in the run.
func TestPredictedAverage(t *testing.T) {
	t.Parallel()
	r := &Result{Jobs: []JobResult{job("a", 1, 0, 2, 30), job("b", 2, 5, -1, -1), job("c", 1, 0, 1, 2)}}
	p := Prediction{AvgJCTS: 100, JCTS: map[string]float64{"a": 20, "b": 1000, "c": 4}}
	if got := p.AvgJCTOf(r); got != 12 {
		t.Errorf("average %v over a and c, want 12", got)
	}
	p.JCTS = nil
	if got := p.AvgJCTOf(r); got != 100 {
		t.Errorf("without times by job %v, want the average over all jobs", got)
	}
}
