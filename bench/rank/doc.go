// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package rank imitates a training job without training anything. A gang has one process (rank) per
// allocation. The ranks find each other at a rendezvous. Ranks run iterations at the speed of their
// GPUs, and wait for each other after each iteration. If the gang spans nodes, iterations take
// longer by the locality penalty. Ranks save their progress. A rank gives up if its gang is not
// complete in time.
//
// A [Rendezvous], in the role of torchrun's store, manages the gangs of a run. Each process runs
// [Rank.Run]. Rendezvous and ranks exchange JSON lines over TCP.
package rank

import "time"

// Gang is one job as its author defined it.
type Gang struct {
	Job        string
	Ranks      int // processes, one per allocation
	Iterations int
	// Iteration is the duration of one iteration on median GPUs of one node.
	Iteration time.Duration
	Class     string // application class: selects one of a GPU's speeds
	// Penalty is the factor by which every iteration takes longer when the gang spans nodes.
	Penalty float64
	// Restart is the time to load a checkpoint. Ranks save their progress after every iteration.
	Restart time.Duration
}

// Speeds maps GPU id → application class → the time that work takes on the GPU, relative to the
// median GPU of the fastest model. With one model, these are the true PM scores.
type Speeds map[string]map[string]float64

// Exit codes of a rank.
const (
	ExitDone    = 0
	ExitGaveUp  = 75 // the gang was not complete in time
	ExitLost    = 76 // another rank of the gang, or the rendezvous, disappeared
	ExitRefused = 77 // the rendezvous does not know the job, or the rank's settings are wrong
)

// hello is the first message of a rank.
type hello struct {
	Job   string   `json:"job"`
	Group string   `json:"group"`
	Index int      `json:"index"`
	Node  string   `json:"node"`
	GPUs  []string `json:"gpus"`
}

// order is a message from the rendezvous to a rank: start, because the gang is complete; run one
// more iteration; or exit. An iteration takes Iteration × the score of the rank's slowest GPU.
type order struct {
	Do        string        `json:"do"` // "start", "iterate", "exit"
	Iteration time.Duration `json:"iteration,omitempty"`
	Restart   time.Duration `json:"restart,omitempty"`
	Class     string        `json:"class,omitempty"`
	Code      int           `json:"code,omitempty"`
	// Late is the time that the gang has lost to messages and to other work on the machine. The
	// rank shortens the iteration by this time.
	Late time.Duration `json:"late,omitempty"`
}

// done is a rank's answer to "start" and "iterate".
type done struct {
	// Iteration is how long an iteration takes at the speed of the rank's GPUs.
	Iteration time.Duration `json:"iteration"`
}

// Attempt is one attempt of a gang to run: from Start to End, all ranks were present.
type Attempt struct {
	Start, End time.Time
	Iterations int                 // completed in this attempt
	GPUs       map[string][]string // node → GPU ids
	Finished   bool
}

// Report is what a gang has done.
type Report struct {
	Gang
	Attempts []Attempt
	// GaveUp counts ranks that gave up because their gang was incomplete. Waited is the GPU time of
	// waiting ranks.
	GaveUp int
	Waited time.Duration
	// Finished is the time when the last iteration ended, zero if the gang has not finished.
	Finished time.Time
	Progress int // completed iterations
}
