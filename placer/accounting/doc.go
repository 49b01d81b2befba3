// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package accounting records what ran: each run of a job, each of its allocations with GPUs, and
// the GPU time by day. It stores these data in an SQL database (SQLite in a file, or PostgreSQL),
// because Nomad forgets jobs and allocations hours after their end.
//
// A [Recorder] compares the placer's snapshots with what is stored, and returns a [Batch] of
// differences. It does no input or output. A [DB] writes a batch in one transaction, and answers
// queries.
//
// A change must keep these rules. Nothing counts twice, because the keys of runs and allocations
// come from Nomad, and the transaction that stores the end of a run or allocation also adds to the
// sums of the day and month. A stored end never changes. Nothing that Nomad still has is lost,
// because a failed write leaves the recorder unchanged, so the next batch contains the same
// differences. Times are stored in milliseconds, so the recorder truncates them before it compares.
// The schema changes only by a new entry in migrations.
package accounting

import (
	"encoding/json"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Run is one run of a job, from its submission to its end. An edit of a waiting or running job does
// not begin another run. A submission after the run's end does, and so does a submission after the
// job was stopped or purged, even if old members have not ended yet.
type Run struct {
	Namespace string `json:"namespace"`       // the job's namespace
	Job       string `json:"job"`             // the job's id
	User      string `json:"user,omitempty"`  // the job's pal_user; "" if it has none
	Class     string `json:"class,omitempty"` // application class; "" if unknown
	Model     string `json:"model,omitempty"` // GPU model; "" before the run starts
	GPUs      int    `json:"gpus"`            // number of requested GPUs
	// MemberGPUs is how many GPUs each member requests; 0 if unknown, or if members differ.
	MemberGPUs int `json:"member_gpus,omitempty"`
	// Preemptible is true if the placer may stop the job for other jobs.
	Preemptible bool `json:"preemptible,omitempty"`
	// State is the run's state: stopped as soon as the job is stopped, even if members have not
	// ended yet; unknown if Nomad deleted the job before the agent read how it ended.
	State     State     `json:"state"`
	Reason    string    `json:"reason,omitempty"` // why the run ended, in words
	Submitted time.Time `json:"submitted"`        // when the run was submitted
	// Started is when the first member got its GPUs; zero if none has.
	Started time.Time `json:"started,omitzero"`
	// Whole is when all members ran for the first time; zero if they have not.
	Whole time.Time `json:"whole,omitzero"`
	// Ended is when the last member ended; zero if the run has not ended.
	Ended time.Time `json:"ended,omitzero"`
	// Waited is the run's total waiting time, including the time after each stop.
	Waited Seconds `json:"waited_seconds"`
	// Predicted is the predicted slowdown on the chosen GPUs; 0 if unknown.
	Predicted float64 `json:"predicted_slowdown,omitempty"`
	// Packed is the predicted slowdown on the GPUs that packing would have chosen; 0 if unknown.
	Packed float64 `json:"packed_slowdown,omitempty"`
	// Any is the mean predicted slowdown of all equally large sets of GPUs of the same model, with
	// the same locality penalty; 0 if unknown.
	Any float64 `json:"any_slowdown,omitempty"`
	// Family is the name under which the queue learns run times: the name of the job or of its
	// parent.
	Family string `json:"family,omitempty"`
	// Took is how long all members ran together. Took is 0 if unknown, or if the run did not
	// complete or was ever stopped, moved, resized or restarted.
	Took Seconds `json:"took_seconds,omitempty"`
	// Seen is the run's measured slowdown: Took divided by the run time of its family at slowdown
	// 1. The family's run time is the median of Took divided by Predicted, over the family's last
	// 16 complete runs on the same number and model of GPUs. Seen is 0 if there are fewer than
	// three such runs.
	Seen float64 `json:"seen_slowdown,omitempty"`
	// StartFrom and StartTo are the range first predicted for the run's start; zero if there was
	// none.
	StartFrom time.Time `json:"expected_start_from,omitzero"`
	StartTo   time.Time `json:"expected_start_to,omitzero"`
	// TakesFrom and TakesTo are the range of the run time that was predicted at the start; 0 if
	// unknown.
	TakesFrom Seconds `json:"expected_least_seconds,omitempty"`
	TakesTo   Seconds `json:"expected_most_seconds,omitempty"`
	// Idle is the GPU time in which the run's GPUs are known to have been idle.
	Idle Seconds `json:"idle_gpu_seconds,omitempty"`
	// Stops has how often the run was stopped for other jobs, the GPU time that these stops cost,
	// and how much sooner the run got GPUs because other jobs were stopped for it.
	queue.Stops
}

// The run time of a family at slowdown 1 is based on its last kin complete runs, and needs at least
// fewestKin of them (see [Run.Seen]).
const fewestKin, kin = 3, 16

// Seconds is a duration that JSON shows as a number of seconds.
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

// State is the state of a run.
type State string

// The states, in Nomad's words. Unknown means that Nomad forgot the job before the agent saw its
// end.
const (
	Pending  State = "pending"
	Running  State = "running"
	Complete State = "complete"
	Failed   State = "failed"
	Stopped  State = "stopped"
	Unknown  State = "unknown"
)

// States returns all states, in order.
func States() []State { return []State{Pending, Running, Complete, Failed, Stopped, Unknown} }

func (r Run) key() cluster.JobKey { return cluster.JobKey{Namespace: r.Namespace, ID: r.Job} }

// Alloc is an allocation with GPUs.
type Alloc struct {
	ID        string
	Namespace string
	Job       string
	Submitted time.Time // submission of its run; zero if the run is unknown
	User      string
	Class     string
	Node      string // the node's name
	Model     string
	GPUs      []string
	// Held is the number of GPUs. A part of a shared GPU counts as a fraction.
	Held     float64
	From, To time.Time
	Status   string // Nomad's client status
	// Vain is the end of the time in which the allocation held its GPUs in vain, because other
	// members of its gang were missing.
	Vain time.Time
	// Predicted, Packed and Any are copied from its run.
	Predicted, Packed, Any float64
}

func (a Alloc) failed() bool { return a.Status == "failed" || a.Status == "lost" }

// Idle is a time in which GPUs of an allocation computed nothing.
type Idle struct {
	Alloc    string
	From, To time.Time
	GPUs     float64
}

// Batch is what one transaction writes.
type Batch struct {
	Runs   []Run
	Allocs []Alloc
	Idle   []Idle                         // [DB.Write] drops idle times of unknown allocations
	seen   map[string]uint64              // ModifyIndex of each allocation of the batch
	stops  map[cluster.JobKey]queue.Stops // the queue's counts for each run
}

// Empty reports whether there is nothing to write.
func (b Batch) Empty() bool { return len(b.Runs)+len(b.Allocs)+len(b.Idle) == 0 }
