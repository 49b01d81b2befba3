// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package accounting records the history of a cluster: each run of a job, each of its allocations
// with GPUs, and the GPU time of each day. The data are in an SQL database (SQLite in a file, or
// PostgreSQL), because Nomad forgets jobs and allocations hours after their end.
//
// A [Recorder] compares the placer's snapshots with the stored data, and returns the differences as
// a [Batch]. A Recorder does no I/O. A [DB] writes a batch in one transaction, and answers queries.
//
// If you change the package, keep these rules. No run or GPU time counts twice. The keys of runs
// and allocations come from Nomad. The transaction that stores the end of a run or allocation also
// adds to the sums of the day and month. A stored end never changes. Data that Nomad still has is
// never lost. If a write fails, the recorder does not change, so its next batch contains the same
// differences. Times are stored in milliseconds, so the recorder truncates times before it compares
// them. Change the schema only with a new entry in migrations.
package accounting

import (
	"encoding/json"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

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
	State     State     `json:"state"`
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

// The run time of a family at slowdown 1 is computed from at least fewestKin and at most kin of the
// family's last complete runs (see [Run.Seen]).
const fewestKin, kin = 3, 16

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

// State is the state of a run.
type State string

// The names of the states are Nomad's, except Unknown. Unknown means that Nomad forgot the job
// before the agent saw its end.
const (
	Pending  State = "pending"
	Running  State = "running"
	Complete State = "complete"
	Failed   State = "failed"
	Stopped  State = "stopped"
	Unknown  State = "unknown"
)

// States returns all states.
func States() []State { return []State{Pending, Running, Complete, Failed, Stopped, Unknown} }

func keyOf(r Run) cluster.JobKey { return cluster.JobKey{Namespace: r.Namespace, ID: r.Job} }

// Alloc describes an allocation with GPUs.
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
	// Held is the number of GPUs that the allocation holds. A part of a shared GPU counts as a
	// fraction.
	Held     float64
	From, To time.Time
	Status   string // Nomad's client status
	// Vain is the end of the time in which the allocation held its GPUs unused, because other
	// members of its gang were missing.
	Vain time.Time
	// Predicted, Packed and Any are copied from the allocation's run.
	Predicted, Packed, Any float64
}

func (a Alloc) failed() bool { return a.Status == "failed" || a.Status == "lost" }

// Idle is a period in which GPUs of an allocation computed nothing.
type Idle struct {
	Alloc    string
	From, To time.Time
	GPUs     float64
}

// Batch contains the data that one transaction writes.
type Batch struct {
	Runs   []Run
	Allocs []Alloc
	Idle   []Idle                         // [DB.Write] drops idle times of unknown allocations
	seen   map[string]uint64              // ModifyIndex of each allocation of the batch
	stops  map[cluster.JobKey]queue.Stops // the queue's counts for each run
}

// Empty reports whether the batch contains nothing to write.
func (b Batch) Empty() bool { return len(b.Runs)+len(b.Allocs)+len(b.Idle) == 0 }
