// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"encoding/json"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// Usage is one line of a report: the GPU time that was used, and the runs that ended.
type Usage struct {
	// Of lists the values that identify the line, in the order of the report's columns.
	Of []string `json:"of"`
	// GPUHours is the number of GPU hours for which allocations held GPUs. A part of a shared GPU
	// counts as a fraction.
	GPUHours float64 `json:"gpu_hours"`
	// FailedGPUHours is the number of GPU hours of allocations that failed or were lost.
	// HeldInVainGPUHours is the number of GPU hours for which members held GPUs while other members
	// of their gang were missing. IdleGPUHours is the number of GPU hours in which the GPUs are
	// known to have been idle.
	FailedGPUHours     float64 `json:"failed_gpu_hours"`
	HeldInVainGPUHours float64 `json:"held_in_vain_gpu_hours"`
	IdleGPUHours       float64 `json:"idle_gpu_hours"`
	// SavedGPUHours is the number of additional GPU hours that the runs would have taken with
	// packing. SavedGPUHours is based on the predictions that were made when the jobs were placed.
	SavedGPUHours float64 `json:"saved_gpu_hours"`
	Runs          int64   `json:"runs"`     // number of runs that ended
	Complete      int64   `json:"complete"` // how many of these runs completed
	Failed        int64   `json:"failed"`   // how many of these runs failed
	// Stops counts how often the ended runs were stopped in favour of other jobs. StopsLostGPUHours
	// is the GPU time that stops of the ended runs cost, because of restarts and of work since the
	// last checkpoint. StopsSavedHours is how many hours sooner the ended runs started because
	// other jobs were stopped in their favour.
	Stops             int64   `json:"stops"`
	StopsLostGPUHours float64 `json:"stops_lost_gpu_hours"`
	StopsSavedHours   float64 `json:"stops_saved_wait_hours"`
	WaitedHours       float64 `json:"waited_hours"` // total number of hours for which the ended runs waited
}

// UsageColumns returns the columns by which usage can be listed.
func UsageColumns() []string { return []string{"namespace", "user", "class", "model", "day", "month"} }

// Run is one run of a job, from the submission to the end. An edit of a waiting or running job does
// not begin another run. A submission after the run's end begins another run. A submission after
// the job was stopped or purged also begins another run, even if old members have not ended yet.
type Run struct {
	Namespace string `json:"namespace"`       // the job's namespace
	Job       string `json:"job"`             // the job's id
	User      string `json:"user,omitempty"`  // the job's pal_user; "" if it has none
	Class     string `json:"class,omitempty"` // application class; "" if unknown
	Model     string `json:"model,omitempty"` // GPU model; "" before the run starts
	GPUs      int    `json:"gpus"`            // number of requested GPUs
	// MemberGPUs is the number of GPUs that each member requests, or 0 if this is unknown or the
	// members differ.
	MemberGPUs int `json:"member_gpus,omitempty"`
	// Preemptible is true if the placer may stop the job in favour of other jobs.
	Preemptible bool `json:"preemptible,omitempty"`
	// State is the state of the run. State is stopped as soon as the job is stopped, even if
	// members have not ended yet. State is unknown if Nomad deleted the job before the agent read
	// how the run ended.
	State     RunState  `json:"state"`
	Reason    string    `json:"reason,omitempty"` // why the run ended, in words
	Submitted time.Time `json:"submitted"`        // when the run was submitted
	// Started is the time when the first member got its GPUs, or zero if no member has got GPUs.
	Started time.Time `json:"started,omitzero"`
	// Whole is the time when all members ran for the first time, or zero if this has not happened.
	Whole time.Time `json:"whole,omitzero"`
	// Ended is the time when the last member ended, or zero if the run has not ended.
	Ended time.Time `json:"ended,omitzero"`
	// Waited is the total time for which the run waited. Waited includes the wait after each stop.
	Waited Seconds `json:"waited_seconds"`
	// Predicted is the predicted slowdown on the chosen GPUs, or 0 if unknown.
	Predicted float64 `json:"predicted_slowdown,omitempty"`
	// Packed is the predicted slowdown on the GPUs that packing would have chosen, or 0 if unknown.
	Packed float64 `json:"packed_slowdown,omitempty"`
	// Any is the mean predicted slowdown over all sets of the same number of GPUs of the same
	// model, with the locality penalty of the chosen GPUs. Any is 0 if unknown.
	Any float64 `json:"any_slowdown,omitempty"`
	// Slowest is the variability class of the slowest of the run's GPUs, for the run's application
	// class: 1 is the fastest class, and 0 means unknown.
	Slowest int `json:"slowest_class,omitempty"`
	// Family is the name by which the queue groups run times: the name of the job or, if the job
	// has a parent, of its parent.
	Family string `json:"family,omitempty"`
	// Took is how long all members ran at the same time. Took is 0 if this time is unknown, if the
	// run did not complete, or if the run was ever stopped, moved, resized or restarted.
	Took Seconds `json:"took_seconds,omitempty"`
	// Seen is the run's measured slowdown: the ratio of Took to the run time of the run's family at
	// slowdown 1. The family's run time is the median of Took divided by Predicted. The median is
	// taken over the family's last 16 complete runs on the same number of GPUs of the same model.
	// Seen is 0 if there are fewer than three such runs.
	Seen float64 `json:"seen_slowdown,omitempty"`
	// Idle is the GPU time in which the run's GPUs are known to have been idle.
	Idle Seconds `json:"idle_gpu_seconds,omitempty"`
	// Stops contains how often the run was stopped in favour of other jobs, and how much GPU time
	// these stops cost. Stops also contains how much sooner the run started because other jobs were
	// stopped in its favour.
	queue.Stops
}

// Seconds is a duration that appears in JSON as a number of seconds.
type Seconds time.Duration

// MarshalJSON writes the number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// UnmarshalJSON reads a number of seconds.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	var n float64
	err := json.Unmarshal(text, &n)
	*s = Seconds(math.Round(n*1e3) * 1e6)
	return err
}

// RunState is the state of a run.
type RunState string

// The names of the states are Nomad's, except unknown, which means that Nomad forgot the job
// before the agent saw its end.
const (
	RunPending  RunState = "pending"
	RunRunning  RunState = "running"
	RunComplete RunState = "complete"
	RunFailed   RunState = "failed"
	RunStopped  RunState = "stopped"
	RunUnknown  RunState = "unknown"
)

// RunStates returns all states.
func RunStates() []RunState {
	return []RunState{RunPending, RunRunning, RunComplete, RunFailed, RunStopped, RunUnknown}
}

// Speed compares the run times of the same jobs on fast and on slow GPUs: the measured counterpart
// of the scores. It covers complete runs of jobs with one member, so that no run is slower because
// of distance. Runs are of the same job if they have the same name, model and number of GPUs.
type Speed struct {
	// FastRuns is the number of runs on GPUs of variability class 1. SlowRuns is the number of runs
	// with at least one GPU of class 4 or slower. Only jobs with both kinds of runs count.
	FastRuns int `json:"fast_runs"`
	SlowRuns int `json:"slow_runs"`
	// Slower is by how much longer the slow runs take, as a share of the time of the fast runs. It is
	// missing until there are 10 runs of both kinds.
	Slower *float64 `json:"slower,omitempty"`
	Low    *float64 `json:"low,omitempty"`  // lower end of the 95 % confidence interval
	High   *float64 `json:"high,omitempty"` // upper end
}
