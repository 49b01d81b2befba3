// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package accounting keeps what ran: each run of a job, each of its allocations with GPUs, and the
// GPU time by day, in a SQL database (SQLite in a file, or PostgreSQL). Nomad forgets jobs and
// allocations hours after their end.
//
// A [Recorder] compares the placer's pictures with what is stored and says what is to be written.
// It is pure. A [DB] writes that in one transaction, and answers.
//
// Nothing is counted twice: runs and allocations have keys that come from Nomad, and the GPU time
// of an allocation is added to its day in the transaction that stores its end. Nothing is lost as
// long as Nomad remembers it: a write that fails is made again from a later picture.
package accounting

import (
	"encoding/json"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Run is a job from when its author submitted it until it ended. A job that is edited while it
// waits or runs stays the same run. One that is submitted again after its end is another.
type Run struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	User      string `json:"user,omitempty"` // see [UserOf]
	Class     string `json:"class,omitempty"`
	Model     string `json:"model,omitempty"` // of its GPUs, "" before it runs
	GPUs      int    `json:"gpus"`            // that it requests
	// MemberGPUs is how many GPUs each member requests; 0: not known, or not the same of all.
	MemberGPUs int `json:"member_gpus,omitempty"`
	// Preemptible reports whether the placer may stop the job for others.
	Preemptible bool   `json:"preemptible,omitempty"`
	State       State  `json:"state"`
	Reason      string `json:"reason,omitempty"` // of its end, in words
	// Submitted is when, Started when its first member got its GPUs, Whole when all members were
	// there for the first time, and Ended when the last one ended; zero: not yet.
	Submitted time.Time `json:"submitted"`
	Started   time.Time `json:"started,omitzero"`
	Whole     time.Time `json:"whole,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// Waited is how long it waited in all, also between its stops.
	Waited Seconds `json:"waited_seconds"`
	// Predicted is the slowdown that was predicted for the GPUs that were chosen, Packed for those
	// that packing would have chosen, and Any for any GPUs of the model that are as far apart, on
	// average; 0: not known.
	Predicted float64 `json:"predicted_slowdown,omitempty"`
	Packed    float64 `json:"packed_slowdown,omitempty"`
	Any       float64 `json:"any_slowdown,omitempty"`
	// Family is the name under which the queue learns run times: the job's, or that of its parent.
	Family string `json:"family,omitempty"`
	// Took is how long all members ran together, of a complete run that was never stopped, moved or
	// resized; 0: not known. Seen is its slowdown as seen: Took over the run time of its family at
	// slowdown 1. That is the median of up to [kin] complete runs before it, on as many GPUs of the
	// same model, each over its predicted slowdown. 0: there are fewer than [fewestKin].
	Took Seconds `json:"took_seconds,omitempty"`
	Seen float64 `json:"seen_slowdown,omitempty"`
	// StartFrom and StartTo are between when it was first said to start, zero: nothing was said.
	// TakesFrom and TakesTo are how long it was expected to take when it started.
	StartFrom time.Time `json:"expected_start_from,omitzero"`
	StartTo   time.Time `json:"expected_start_to,omitzero"`
	TakesFrom Seconds   `json:"expected_least_seconds,omitempty"`
	TakesTo   Seconds   `json:"expected_most_seconds,omitempty"`
	// Idle is the GPU time in which its GPUs are known to have run nothing.
	Idle Seconds `json:"idle_gpu_seconds,omitempty"`
	// Stops are how often it was stopped for others, what that cost it, and what stops of others for
	// it won it.
	queue.Stops
}

// The expected run time of a family of jobs rests on its last kin runs, and needs fewestKin of them.
const fewestKin, kin = 3, 16

// Seconds is a span, in JSON a number of seconds.
type Seconds time.Duration

// MarshalJSON writes the number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// UnmarshalJSON reads it.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	var n float64
	err := json.Unmarshal(text, &n)
	*s = Seconds(math.Round(n*1e3) * 1e6)
	return err
}

// State is the state of a run.
type State string

// The states, in Nomad's words. Unknown: Nomad forgot the job before the agent saw its end.
const (
	Pending  State = "pending"
	Running  State = "running"
	Complete State = "complete"
	Failed   State = "failed"
	Stopped  State = "stopped"
	Unknown  State = "unknown"
)

// States are all of them, in order.
func States() []State { return []State{Pending, Running, Complete, Failed, Stopped, Unknown} }

func (r Run) key() cluster.JobKey { return cluster.JobKey{Namespace: r.Namespace, ID: r.Job} }

// Alloc is an allocation with GPUs.
type Alloc struct {
	ID        string
	Namespace string
	Job       string
	Submitted time.Time // of its run; zero: the run is not known
	User      string
	Class     string
	Node      string // its name
	Model     string
	GPUs      []string
	// Held is how many GPUs that are: a part of a shared GPU is a part of one.
	Held     float64
	From, To time.Time
	Status   string // Nomad's client status
	// Vain is until when the allocation held its GPUs in vain, because other members of its gang
	// were missing.
	Vain time.Time
	// Predicted, Packed and Any are its run's.
	Predicted, Packed, Any float64
}

func (a Alloc) failed() bool { return a.Status == "failed" || a.Status == "lost" }

// Idle is that GPUs of an allocation ran nothing, for some time more.
type Idle struct {
	Alloc    string
	From, To time.Time
	GPUs     float64
}

// Batch is written in one transaction.
type Batch struct {
	Runs   []Run
	Allocs []Alloc
	Idle   []Idle                         // of allocations that are stored, or are in the batch
	seen   map[string]uint64              // ModifyIndex of each allocation of the batch
	stops  map[cluster.JobKey]queue.Stops // of each run, as the queue counts them
}

// Empty reports whether there is nothing to write.
func (b Batch) Empty() bool { return len(b.Runs)+len(b.Allocs)+len(b.Idle) == 0 }
