// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/process"
	"github.com/nomad-pal/nomad-pal/bench/rank"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// Result is the outcome of one run.
type Result struct {
	Mode string `json:"scheduler"`
	// Seed is the seed of the workload and of the GPUs. Runs with the same seed can be compared in
	// pairs.
	Seed uint64      `json:"seed"`
	Jobs []JobResult `json:"jobs"`
	// Bounded reports whether the time limit ended the run before all jobs had finished.
	Bounded bool `json:"bounded"`
	// Stuck reports whether the run was ended early because of a deadlock. In a deadlock all jobs
	// have been submitted, ranks hold GPUs, and nothing runs for a long time.
	Stuck bool `json:"deadlocked"`
	// Took is the time from the first submission to the end of the run.
	Took time.Duration `json:"took_ns"`
	// HalfPlaced is the time in which some but not all ranks of a gang held GPUs, summed over
	// gangs. Deadlocked is the time in which a gang was half placed and no gang ran.
	HalfPlaced time.Duration `json:"half_placed_ns"`
	Deadlocked time.Duration `json:"deadlocked_ns"`
	// HeldInVain is the GPU time in which ranks held GPUs and waited for the rest of their gang.
	// Timeline shows when ranks waited.
	HeldInVain time.Duration `json:"held_in_vain_gpu_ns"`
	Timeline   []Moment      `json:"timeline,omitempty"`
	// Predicted is the simulator's result for the same run.
	Predicted *Prediction `json:"predicted,omitempty"`
	// Cost has the resources that the placer used; nil under plain Nomad.
	Cost *Cost `json:"placer,omitempty"`
}

// JobResult is the outcome of one job.
type JobResult struct {
	Job
	SubmittedAt time.Time           `json:"submitted_at"`
	PlacedAt    time.Time           `json:"placed_at,omitzero"` // when Nomad created the last allocation that ran in the last attempt
	StartedAt   time.Time           `json:"started_at"`         // when all ranks ran for the first time
	FinishedAt  time.Time           `json:"finished_at"`        // zero if the job did not finish
	Attempts    int                 `json:"attempts"`
	GaveUp      int                 `json:"ranks_gave_up"`
	WaitedGPU   time.Duration       `json:"waited_gpu_ns"` // GPU time that ranks held while they waited for the gang
	RunTime     time.Duration       `json:"run_ns"`        // sum over the attempts
	GPUIDs      map[string][]string `json:"gpu_ids"`       // node → ids, in the last attempt
	// Allocated are the GPU ids in the job's allocations.
	Allocated []string `json:"allocated,omitempty"`
	// Predicted is the cost of the placement according to the placer, 0 under plain Nomad.
	// Explained are the GPU ids in the placer's decision.
	Predicted float64  `json:"predicted_cost,omitempty"`
	Explained []string `json:"explained,omitempty"`
}

// Trim removes lists of GPUs that are equal to GPUIDs.
func (j *JobResult) Trim() {
	var ran []string
	for _, ids := range j.GPUIDs {
		ran = append(ran, ids...)
	}
	slices.Sort(ran)
	if slices.Equal(j.Allocated, ran) {
		j.Allocated = nil
	}
	if slices.Equal(j.Explained, ran) {
		j.Explained = nil
	}
}

// JCT returns the job completion time; 0 if the job did not finish.
func (j JobResult) JCT() time.Duration {
	if j.FinishedAt.IsZero() {
		return 0
	}
	return j.FinishedAt.Sub(j.SubmittedAt)
}

func (r *Result) line(states []rank.State, at time.Duration) string {
	var running, half, finished int
	for _, s := range states {
		switch {
		case s.Finished:
			finished++
		case s.Running:
			running++
		case s.Present > 0:
			half++
		}
	}
	return fmt.Sprintf("%s: %3.0f s, %d of %d jobs finished, %d running, %d half placed", r.Mode, at.Seconds(), finished, len(states), running, half)
}

func (r *run) collect(ctx context.Context, submitted []time.Time) error {
	for i, j := range r.jobs {
		rep := r.rendezvous.Report(j.ID)
		jr := JobResult{Job: j, SubmittedAt: submitted[i], FinishedAt: rep.Finished, Attempts: len(rep.Attempts), GaveUp: rep.GaveUp, WaitedGPU: rep.Waited}
		for k, a := range rep.Attempts {
			if k == 0 {
				jr.StartedAt = a.Start
			}
			jr.RunTime += a.End.Sub(a.Start)
			jr.GPUIDs = a.GPUs
		}
		if err := r.on.tell(ctx, &jr); err != nil {
			return err
		}
		r.result.Jobs = append(r.result.Jobs, jr)
	}
	return nil
}

// allocated reads the GPU ids of the allocations that ran last.
func (n *onNomad) allocated(ctx context.Context, jr *JobResult) error {
	q := (&api.QueryOptions{Params: map[string]string{"resources": "true"}}).WithContext(ctx)
	allocs, _, err := n.API().Jobs().Allocations(jr.ID, true, q)
	if err != nil {
		return fmt.Errorf("reading allocations of %q: %w", jr.ID, err)
	}
	for _, stub := range allocs {
		if stub.ClientStatus != api.AllocClientStatusRunning && stub.ClientStatus != api.AllocClientStatusComplete {
			continue
		}
		if at := time.Unix(0, stub.CreateTime).UTC(); at.After(jr.PlacedAt) {
			jr.PlacedAt = at
		}
		a, _, err := n.API().Allocations().Info(stub.ID, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return fmt.Errorf("reading allocation %q: %w", stub.ID, err)
		}
		jr.Allocated = append(jr.Allocated, cluster.DeviceIDs(a.AllocatedResources)...)
	}
	slices.Sort(jr.Allocated)
	return nil
}

// explained reads the placer's decision with the command that a user would run.
func (n *onNomad) explained(ctx context.Context, jr *JobResult) error {
	out, err := n.Command(ctx, "nomad-pal", "explain", "-json", jr.ID).Output()
	if err != nil {
		return fmt.Errorf("explaining %q: %w", jr.ID, err)
	}
	var d struct {
		Decision struct {
			Chosen *struct {
				Cost    float64 `json:"cost"`
				Members []struct {
					GPUs []struct {
						ID string `json:"id"`
					} `json:"gpus"`
				} `json:"members"`
			} `json:"chosen"`
		} `json:"decision"`
	}
	if err := json.Unmarshal(out, &d); err != nil {
		return fmt.Errorf("reading explanation of %q: %w", jr.ID, err)
	}
	if d.Decision.Chosen == nil {
		return nil
	}
	jr.Predicted = d.Decision.Chosen.Cost
	for _, m := range d.Decision.Chosen.Members {
		for _, u := range m.GPUs {
			jr.Explained = append(jr.Explained, u.ID)
		}
	}
	slices.Sort(jr.Explained)
	return nil
}

// Cost has the resources that a placer used during a run, including its start.
type Cost struct {
	CPUS  float64 `json:"cpu_s"`
	RSSMB float64 `json:"rss_mb"` // resident memory at the end of the run
}

func costOf(pid int) (*Cost, error) {
	used, err := process.Of(pid)
	return &Cost{CPUS: used.CPU.Seconds(), RSSMB: used.RSSMB}, err
}

// Summary has the figures of one run over its finished jobs.
type Summary struct {
	Finished, Jobs     int
	AvgJCT, GeomeanJCT time.Duration
	Makespan           time.Duration
	// Utilization is the share of all GPU time, from the first submission to the last finish, in
	// which gangs ran. Useful is this share as if each gang had run on median GPUs of one node.
	Utilization, Useful float64
}

// Summarize computes the figures.
func (r *Result) Summarize(gpus int) Summary {
	s := Summary{Jobs: len(r.Jobs)}
	var first, last time.Time
	var logs, ran, useful float64
	for _, j := range r.Jobs {
		if !j.SubmittedAt.IsZero() && (first.IsZero() || j.SubmittedAt.Before(first)) {
			first = j.SubmittedAt
		}
		if j.FinishedAt.IsZero() {
			continue
		}
		s.Finished++
		s.AvgJCT += j.JCT()
		logs += math.Log(j.JCT().Seconds())
		ran += j.RunTime.Seconds() * float64(j.GPUs())
		useful += j.Work().Seconds() * float64(j.GPUs())
		if j.FinishedAt.After(last) {
			last = j.FinishedAt
		}
	}
	if s.Finished == 0 {
		return s
	}
	s.AvgJCT /= time.Duration(s.Finished)
	s.GeomeanJCT = time.Duration(math.Exp(logs/float64(s.Finished)) * float64(time.Second))
	s.Makespan = last.Sub(first)
	s.Utilization = ran / (s.Makespan.Seconds() * float64(gpus))
	s.Useful = useful / (s.Makespan.Seconds() * float64(gpus))
	return s
}
