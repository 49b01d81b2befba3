// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package artifact

import (
	"math"

	"github.com/nomad-pal/nomad-pal/sim"
)

// Result is the outcome of a run.
type Result struct {
	Jobs []sim.JobResult
	// Utilization is the allocated share of the cluster's GPU time from 0 to the last finish of a
	// tracked job.
	Utilization float64
	Rounds      int
}

func (r *rounds) result() Result {
	res := Result{Rounds: int(math.Round(r.t / r.RoundS))}
	end := 0.0
	for _, j := range r.jobs {
		if !r.follows(j) {
			continue
		}
		res.Jobs = append(res.Jobs, sim.JobResult{ID: j.ID, Class: j.Class, GPUs: j.GPUs, WorkS: j.WorkS(), Submit: j.SubmitS,
			Start: j.firstStart, Finish: j.finish, Wait: j.waitS, HeldS: j.attained, Tier: j.placement.Tier})
		end = max(end, j.finish)
	}
	if end > 0 {
		res.Utilization = r.busyS / (float64(r.Cluster.NumGPUs()) * end)
	}
	return res
}
