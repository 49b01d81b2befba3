// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"fmt"
	"math"
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// jobOn returns the runs of a job: fast ones that took about 100 s, and slow ones that took `slower`
// times as long.
func jobOn(fast, slow int, slower float64) (of [2]logs) {
	for i := range fast {
		of[0].add(math.Log(100 + float64(i%3)))
	}
	for i := range slow {
		of[1].add(math.Log(slower * (100 + float64(i%3))))
	}
	return of
}

// Speed compares each job with itself: a job that takes ten times as long as another says nothing
// about GPUs, and neither does a job that ran on one kind of GPUs only.
func TestSpeedOf(t *testing.T) {
	long := jobOn(3, 9, 1.1)
	for k := range long {
		long[k].sum, long[k].squares = long[k].sum+long[k].n*math.Log(10), long[k].squares+2*math.Log(10)*long[k].sum+long[k].n*math.Log(10)*math.Log(10)
	}
	s := speedOf([][2]logs{jobOn(9, 3, 1.1), long})
	if s.FastRuns != 12 || s.SlowRuns != 12 || s.Slower == nil {
		t.Fatalf("%+v", s)
	}
	if math.Abs(*s.Slower-0.1) > 0.005 || *s.Low >= *s.Slower || *s.High <= *s.Slower || *s.Low < 0.05 {
		t.Errorf("slow runs take %.3f longer (%.3f to %.3f), want 0.1", *s.Slower, *s.Low, *s.High)
	}
	if s := speedOf([][2]logs{jobOn(9, 9, 1.1)}); s.Slower != nil || s.FastRuns != 9 {
		t.Errorf("nine runs of a kind are compared: %+v", s)
	}
	if s := speedOf(nil); s != (palapi.Speed{}) {
		t.Errorf("no runs: %+v", s)
	}
}

// Speed reads complete runs of jobs with one member, in the namespaces of the filter.
func TestSpeed(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		var b Batch
		add := func(namespace string, slowest, memberGPUs int, took float64) {
			i := len(b.Runs)
			b.Runs = append(b.Runs, palapi.Run{Namespace: namespace, Job: fmt.Sprint("train-", i), Family: "train", Class: "A", Model: "X", GPUs: 2, MemberGPUs: memberGPUs,
				State: palapi.RunComplete, Submitted: at(float64(i)), Started: at(float64(i)), Ended: at(float64(i) + 0.5), Predicted: 1, Slowest: slowest, Took: palapi.Seconds(took * float64(time.Second))})
		}
		for i := range 12 {
			took := 1000 + float64(i%4)
			add("ml", 1, 2, took)
			add("ml", 4+i%2, 2, 1.2*took)
			add("ml", 2, 2, 5*took) // neither fast nor slow
			add("ml", 4, 1, 5*took) // on several nodes, perhaps
			add("ml", 0, 2, 5*took) // not measured
			add("secret", 4, 2, 5*took)
			add("ml", 4, 2, 0) // did not complete
		}
		write(t, db, b)
		s, err := db.Speed(t.Context(), Filter{Namespaces: []string{"ml"}})
		if err != nil {
			t.Fatal(err)
		}
		if s.FastRuns != 12 || s.SlowRuns != 12 || s.Slower == nil || math.Abs(*s.Slower-0.2) > 0.001 {
			t.Errorf("%+v", s)
		}
		if s, err := db.Speed(t.Context(), Filter{Namespaces: []string{"ml"}, Since: at(80)}); err != nil || s.SlowRuns != 0 || s.Slower != nil {
			t.Errorf("the last four hours: %+v, %v", s, err)
		}
	})
}
