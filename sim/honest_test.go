// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Users who estimate run times, within a factor of five, gain more than users who do not. Half of
// the users estimate, and job names tell nothing about run times. Each half is compared with
// itself in a run without estimates.
func TestEstimatingPays(t *testing.T) {
	says := func(i int) bool { return rand.New(rand.NewPCG(1, uint64(i))).IntN(2) == 0 }
	var with, without [2]float64 // average completion times of those who do not estimate, and of those who do
	for seed := range uint64(4) {
		jobs := trace.HeavyTail(seed, 400, 16, 1.1).Jobs
		for i := range jobs {
			jobs[i].Name, jobs[i].GPUs = "", min(jobs[i].GPUs, 8)
			jobs[i].Iterations *= 20 // hours, because unknown jobs at first count as minutes
			jobs[i].SubmitS *= 20
		}
		for _, estimate := range []bool{false, true} {
			cfg := Config{Jobs: jobs, Cluster: even(t, 4, 4, 1.7), Queue: queue.Default(), RestartS: 60}
			if estimate {
				cfg.Estimate = func(i int, j trace.Job) time.Duration {
					if !says(i) {
						return 0
					}
					return seconds(j.WorkS() * math.Pow(5, 2*rand.New(rand.NewPCG(2, uint64(i))).Float64()-1))
				}
			}
			out, err := cfg.Run()
			if err != nil {
				t.Fatal(err)
			}
			for i, j := range out.Jobs {
				who := 0
				if says(i) {
					who = 1
				}
				if estimate {
					with[who] += j.JCT()
				} else {
					without[who] += j.JCT()
				}
			}
		}
	}
	silent, honest := with[0]/without[0], with[1]/without[1]
	t.Logf("completion times relative to a run without estimates: with estimates %.3f, without %.3f", honest, silent)
	if honest > silent || honest > 1 {
		t.Errorf("jobs with estimates take %.3f times as long as in a run without estimates, the others %.3f", honest, silent)
	}
}

// Gangs that may be stopped end sooner if they report their progress. False reports cost little,
// whether gangs may be stopped or not. Jobs report as often as under the agent.
func TestReportingPays(t *testing.T) {
	for _, stops := range []bool{true, false} {
		average := map[string]float64{}
		for seed := range uint64(2) {
			jobs := trace.HeavyTail(seed, 300, 16, 1.1).Jobs
			for i := range jobs {
				jobs[i].Name, jobs[i].GPUs, jobs[i].Preemptible = "", min(jobs[i].GPUs, 8), stops
				jobs[i].Iterations *= 20
				jobs[i].SubmitS *= 20
			}
			for name, progress := range map[string]func(int, float64) float64{
				"silent": nil,
				"honest": Reporting(1, seed),
				"wrong": func(i int, done float64) float64 { // the speed that a job reports drifts
					return math.Pow(done, math.Pow(5, 2*rand.New(rand.NewPCG(^seed, uint64(i))).Float64()-1))
				},
				"false": func(_ int, done float64) float64 { return 1 - math.Pow(1-done, 8)/2 }, // nearly done for a long time
			} {
				cfg := Config{Jobs: jobs, Cluster: even(t, 4, 4, 1.7), Queue: queue.Default(), RestartS: 60, Progress: progress}
				out, err := cfg.Run()
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range out.Jobs {
					average[name] += j.JCT()
				}
			}
		}
		over := func(name string) float64 { return average[name] / average["silent"] }
		t.Logf("gangs may be stopped %t: completion times relative to a run without reports: with honest reports %.3f, wrong %.3f, false %.3f",
			stops, over("honest"), over("wrong"), over("false"))
		if stops && over("honest") > 0.97 || over("wrong") > 1.05 || over("false") > 1.05 {
			t.Errorf("gangs may be stopped %t: with honest reports jobs take %.3f times as long as without, with wrong ones %.3f, with false ones %.3f",
				stops, over("honest"), over("wrong"), over("false"))
		}
	}
}
