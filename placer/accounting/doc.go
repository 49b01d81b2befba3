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
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// The run time of a family at slowdown 1 is computed from at least fewestKin and at most kin of the
// family's last complete runs (see [palapi.Run.Seen]).
const fewestKin, kin = 3, 16

func keyOf(r palapi.Run) cluster.JobKey { return cluster.JobKey{Namespace: r.Namespace, ID: r.Job} }

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
	// Predicted and Packed are copied from the allocation's run.
	Predicted, Packed float64
}

// Idle is a period in which GPUs of an allocation computed nothing.
type Idle struct {
	Alloc    string
	From, To time.Time
	GPUs     float64
}

// Batch contains the data that one transaction writes.
type Batch struct {
	Runs   []palapi.Run
	Allocs []Alloc
	Idle   []Idle                         // [DB.Write] drops idle times of unknown allocations
	seen   map[string]uint64              // ModifyIndex of each allocation of the batch
	stops  map[cluster.JobKey]queue.Stops // the queue's counts for each run
}

// Empty reports whether the batch contains nothing to write.
func (b Batch) Empty() bool { return len(b.Runs)+len(b.Allocs)+len(b.Idle) == 0 }
