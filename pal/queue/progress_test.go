// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
)

// reporting returns a queue with one running gang at cost 1, about which only the fields of j are
// known.
func reporting(t interface{ Fatal(...any) }, j Job) *Queue {
	q := newQueue(t)
	j.ID, j.Gang = "x", pal.SingleGPUs("x", pal.ClassA, 1)
	if err := q.Restore(j, pal.Placement{Members: []pal.Member{{GPUs: []int{0}}}, PMScore: 1, Penalty: 1}, 0); err != nil {
		t.Fatal(err)
	}
	return q
}

// told is a progress report in a minute of the run.
type told struct {
	at   int
	done float64
}

// The expected remaining run times and the expected ends of gangs that report progress are right,
// in minutes.
func TestReported(t *testing.T) {
	for name, c := range map[string]struct {
		reports     []told
		at          int
		left        [2]float64 // minimum, maximum
		least, most float64    // 0: the end can only be guessed
	}{
		"nothing":                     {nil, 100, [2]float64{99, 101}, 0, 0},
		"once":                        {[]told{{50, 0.5}}, 100, [2]float64{99, 101}, 0, 0},
		"twice, half counts":          {[]told{{0, 0}, {100, 0.1}}, 100, [2]float64{499, 501}, 900, 1800},
		"five times":                  {[]told{{0, 0}, {20, 0.1}, {40, 0.2}, {60, 0.3}, {80, 0.4}, {100, 0.5}}, 100, [2]float64{99, 101}, 100, 120},
		"from a checkpoint on":        {[]told{{0, 0.8}, {20, 0.82}, {40, 0.84}, {60, 0.86}, {80, 0.88}, {100, 0.9}}, 100, [2]float64{95, 105}, 100, 120},
		"between two steps":           {[]told{{0, 0}, {100, 0.2}, {200, 0.4}, {300, 0.6}}, 340, [2]float64{160, 205}, 160, 213.33},
		"nearly done":                 {[]told{{0, 0}, {30, 0.3}, {60, 0.6}, {90, 0.9}, {99, 0.99}}, 99, [2]float64{1, 8}, 1, 1.25},
		"faster and faster":           {[]told{{0, 0}, {20, 0.01}, {40, 0.04}, {60, 0.1}, {80, 0.3}, {100, 0.6}}, 100, [2]float64{90, 105}, 0, 0},
		"done for long":               {[]told{{0, 0}, {5, 0.5}, {10, 1}, {11, 1}, {500, 1}}, 500, [2]float64{499, 501}, 0, 0},
		"late, as its reports":        {[]told{{0, 0}, {5, 0.5}, {10, 0.9}, {500, 0.99}, {501, 0.991}}, 501, [2]float64{250, 501}, 0, 0},
		"back, and forth":             {[]told{{0, 0}, {5, 0.5}, {10, 0.9}, {11, 0.1}, {12, 0.9}, {13, 0.1}, {14, 0.9}, {15, 0.1}, {16, 0.99}}, 16, [2]float64{14, 16}, 0, 0},
		"nonsense":                    {[]told{{0, math.NaN()}, {5, math.Inf(1)}, {10, -1}, {20, 1.01}, {30, math.Inf(-1)}}, 100, [2]float64{99, 101}, 0, 0},
		"steps that are hardly there": {[]told{{0, 0}, {50, math.SmallestNonzeroFloat64}, {100, 2 * math.SmallestNonzeroFloat64}}, 100, [2]float64{99, 101}, 0, 0},
	} {
		q := reporting(t, Job{})
		minute := func(n int) time.Duration { return time.Duration(n) * time.Minute }
		for _, r := range c.reports {
			q.Reported(minute(r.at), "x", r.done)
		}
		e, now := q.entries["x"], minute(c.at)
		if left := q.remaining(e, now).Minutes(); left < c.left[0] || left > c.left[1] {
			t.Errorf("%s: remaining %v min, want %v", name, left, c.left)
		}
		from, to, ok := q.Ends(now, "x")
		if near := func(d time.Duration, want float64) bool {
			return math.IsInf(want, 1) || math.Abs(d.Minutes()-want) < 0.1
		}; ok != (c.least > 0) || ok && (!near(from-now, c.least) || !near(to-now, c.most)) {
			t.Errorf("%s: ends in %v to %v, %v", name, from-now, to-now, ok)
		}
	}
}

// A gang that was stopped and waits has the remaining time that its reports predicted. Reports
// after its next start count when they have more weight.
func TestReportedBeforeItStopped(t *testing.T) {
	q := reporting(t, Job{})
	for i := range 5 {
		q.Reported(time.Duration(i)*time.Minute, "x", 0.1*float64(i))
	}
	now := 4 * time.Minute
	q.Stopped(now, "x")
	left := func() time.Duration { return q.remaining(q.entries["x"], now).Round(time.Second) }
	if got := left(); got < 5*time.Minute || got > 7*time.Minute {
		t.Errorf("it waits, with %v remaining", got)
	}
	q.Reported(now, "x", 0.99) // the gang does not run, so this report does not count
	now = time.Hour
	q.Started(now, "x", pal.Placement{Members: []pal.Member{{GPUs: []int{0}}}, PMScore: 1, Penalty: 1})
	if got := left(); got < 5*time.Minute || got > 7*time.Minute {
		t.Errorf("it runs again, with %v remaining", got)
	}
	for i := range 8 { // the gang is slower than before
		q.Reported(now, "x", 0.4+0.01*float64(i))
		now += time.Minute
	}
	if got := left(); got < 45*time.Minute || got > 60*time.Minute {
		t.Errorf("it runs slower than before, with %v remaining", got)
	}
}

// A name's history and a gang's reports are combined. The weights and remaining times are valid,
// whatever the gang reported.
func TestReportsBesideHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := reporting(t, Job{Name: "n", Estimate: time.Duration(rapid.IntRange(0, 1).Draw(t, "estimates")) * time.Hour})
		for range rapid.IntRange(0, 5).Draw(t, "runs") {
			q.learn("", "n", sample{work: time.Duration(rapid.IntRange(1, 600).Draw(t, "work")) * time.Minute, gpus: 1})
		}
		e, now := q.entries["x"], time.Duration(0)
		for range rapid.IntRange(0, 30).Draw(t, "reports") {
			now += time.Duration(rapid.IntRange(0, 3600).Draw(t, "later")) * time.Second
			q.Reported(now, "x", rapid.Float64Range(0, 1).Draw(t, "done"))
			o, sum := q.remainingRunTime(e, now), 0.0
			for i, c := range o.of {
				if sum += c.weight; !(c.weight >= 0) || !(c.left >= 0) || i > 0 && c.left < o.of[i-1].left {
					t.Fatalf("%+v", o)
				}
			}
			if !(o.rest >= 0) || !(sum+o.rest > 0) {
				t.Fatalf("%+v", o)
			}
			if left := q.remaining(e, now); left < 0 || left > longestRun {
				t.Fatalf("remaining %v", left)
			}
			if left := q.index(e, now); left < 0 || left > longestRun {
				t.Fatalf("index %v", left)
			}
		}
	})
}
