// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// behind returns a stream of small jobs and a gang of 16 GPUs that arrives in it.
func behind(small trace.Job, n int, every float64, wide trace.Job) []trace.Job {
	var jobs []trace.Job
	for i := range n {
		small.ID, small.SubmitS = fmt.Sprint(i), every*float64(i)
		jobs = append(jobs, small)
	}
	wide.ID, wide.Name, wide.GPUs = "wide", small.Name, 16 // of the same name: its run time is known no better
	jobs = append(jobs, wide)
	for i := range jobs {
		jobs[i].Class, jobs[i].IterTimeS = pal.ClassA, 1
	}
	slices.SortStableFunc(jobs, func(a, b trace.Job) int { return int(a.SubmitS - b.SubmitS) })
	return jobs
}

// A gang as wide as the cluster starts within 10 h, although small jobs keep coming, if users
// estimate their run times, right or wrong. docs/results/README.md has the output of this test.
func TestWideGangBehindStreams(t *testing.T) {
	const hour = 3600
	for name, jobs := range map[string][]trace.Job{
		"one-GPU jobs of 1 h, one every 4 min": behind(trace.Job{Name: "train", GPUs: 1, Iterations: hour, EstimateS: hour}, 1800, 240,
			trace.Job{Iterations: 4 * hour, EstimateS: 4 * hour, SubmitS: hour}),
		"jobs of 3 h estimated at 1 h, one every 20 min": behind(trace.Job{Name: "train", GPUs: 2, Iterations: 3 * hour, EstimateS: hour}, 60, 1200,
			trace.Job{Iterations: hour, EstimateS: hour, SubmitS: hour / 2}),
	} {
		for _, c := range []struct {
			who    string
			policy string
			stops  bool
		}{{"nobody estimates", "", false}, {"nobody estimates, all may be stopped", "", true}, {"users estimate", "", false},
			{"users estimate, all may be stopped", "", true}, {"EASY, users estimate", "easy-users", false}, {"plain Nomad", "nomad", false}} {
			cfg := Config{Jobs: jobs, Cluster: even(t, 4, 4, 1.7), Queue: queue.Default(), Preemptible: c.stops, RestartS: 60}
			estimates := strings.HasPrefix(c.who, "users")
			if estimates {
				cfg.Estimate = func(_ int, j trace.Job) time.Duration { return seconds(j.EstimateS) }
			}
			run := cfg.Run
			if p, ok := PolicyOf(c.policy); ok {
				run = func() (Outcome, error) { return p.Run(cfg) }
			}
			out, err := run()
			if err != nil {
				t.Fatal(err)
			}
			wide, all := 0.0, 0.0
			for _, j := range out.Jobs {
				all += j.JCT() / float64(len(jobs))
				if j.ID == "wide" {
					wide = j.Wait
				}
			}
			t.Logf("%s: %s: it waits for %.1f h, the average completion time is %.1f h", name, c.who, wide/hour, all/hour)
			if estimates && wide > 10*hour {
				t.Errorf("%s: %s: it waits for %.1f h", name, c.who, wide/hour)
			}
		}
	}
}

// A wide gang that estimates days is overdue after twice its estimate, which is later than
// without an estimate. docs/results/README.md says why, and has the output of this test.
func TestLongWideGang(t *testing.T) {
	const hour = 3600
	jobs := behind(trace.Job{Name: "train", GPUs: 1, Iterations: hour, EstimateS: hour}, 1800, 235, trace.Job{Iterations: 48 * hour, EstimateS: 48 * hour, SubmitS: hour})
	for says, most := range map[bool]float64{false: 36 + 2, true: 2*48 + 2} {
		out, err := Config{Jobs: jobs, Cluster: even(t, 4, 4, 1.7), Queue: queue.Default(), RestartS: 60, Estimate: func(_ int, j trace.Job) time.Duration {
			if j.GPUs > 1 && !says {
				return 0
			}
			return seconds(j.EstimateS)
		}}.Run()
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range out.Jobs {
			if j.ID != "wide" {
				continue
			}
			if t.Logf("estimates its run time %t: it waits for %.1f h", says, j.Wait/hour); j.Wait > most*hour {
				t.Errorf("estimates its run time %t: it waits for %.1f h, want at most %.0f", says, j.Wait/hour, most)
			}
		}
	}
}
