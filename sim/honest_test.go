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
