// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/sim"
)

// slow is the PM score above which a wide gang cannot use a GPU well.
const slow = 1.5

// Floor returns a lower bound of the makespan under any scheduler, for GPUs of score 1. A job takes
// its work time plus the overhead. If a job needs several nodes, its work time is multiplied by the
// penalty. The bound is the largest of three makespans: of all jobs, filling the GPUs without gaps;
// of the gangs that need more than half of the non-outlier GPUs, one after the other; of all jobs,
// each starting when it is submitted.
func (g *GPUs) Floor(jobs []Job, penalty float64, overhead time.Duration) time.Duration {
	sound, perNode := 0, map[int]int{}
	for _, u := range g.All {
		perNode[u.Node]++
		if u.Scores[0] <= slow {
			sound++
		}
	}
	var area, serial, longest time.Duration
	first, wide := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for _, j := range jobs {
		d := j.Work()
		if j.GPUs() > perNode[0] {
			d = time.Duration(float64(d) * penalty)
		}
		d += overhead
		first = min(first, j.Submit)
		area += d * time.Duration(j.GPUs()) / time.Duration(len(g.All))
		longest = max(longest, j.Submit+d)
		if 2*j.GPUs() > sound {
			serial += d
			wide = min(wide, j.Submit)
		}
	}
	if serial > 0 {
		serial += wide
	}
	return max(first+area, serial, longest) - first
}

// PredictPlain simulates a run under plain Nomad. In the outcome, a job that never finishes has a
// negative Finish.
func PredictPlain(jobs []Job, g *GPUs, penalty float64, spread bool, giveUp, overhead time.Duration, seed uint64) (sim.Outcome, error) {
	c, err := g.Cluster(penalty)
	if err != nil {
		return sim.Outcome{}, err
	}
	return sim.Nomad{Jobs: g.traced(jobs), Cluster: c, Spread: spread, RendezvousS: giveUp.Seconds(), StartS: overhead.Seconds(), Seed: seed}.Run()
}
