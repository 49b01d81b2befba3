// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package rank is a gang that behaves like a training job without training anything. It has one
// process per allocation; they find each other at a rendezvous. They run their iterations at the
// speed of their GPUs, wait for each other after each iteration, and pay the locality penalty when
// they span nodes. They save their progress. They give up if the gang does not come together in
// time.
//
// A [Rendezvous] (the role of torchrun's store) keeps the gangs of a run; each process runs
// [Rank.Run]. They speak JSON lines over TCP.
package rank

import "time"

// Gang is one job as its author wrote it.
type Gang struct {
	Job        string
	Ranks      int // processes: one per allocation
	Iterations int
	// Iteration is the time of one iteration on median GPUs of one node.
	Iteration time.Duration
	Class     string // application class: which of a GPU's speeds counts
	// Penalty is the slowdown of every iteration when the gang spans nodes.
	Penalty float64
	// Restart is the time that loading a checkpoint takes. Progress is saved
	// after every iteration.
	Restart time.Duration
}

// Speeds are how long work takes, over the median GPU of the fastest model: GPU id → application
// class → times. On a cluster of one model they are the true PM scores.
type Speeds map[string]map[string]float64

// Exit codes of a rank.
const (
	ExitDone    = 0
	ExitGaveUp  = 75 // the gang did not come together in time
	ExitLost    = 76 // another rank of the gang went away
	ExitRefused = 77 // the rendezvous does not know the job
)

// hello is the first message of a rank.
type hello struct {
	Job   string   `json:"job"`
	Group string   `json:"group"`
	Index int      `json:"index"`
	Node  string   `json:"node"`
	GPUs  []string `json:"gpus"`
}

// order is what the rendezvous says: the gang is complete and each iteration
// takes Iteration × Score of the rank's slowest GPU; or one more iteration; or
// the end.
type order struct {
	Do        string        `json:"do"` // "start", "iterate", "exit"
	Iteration time.Duration `json:"iteration,omitempty"`
	Restart   time.Duration `json:"restart,omitempty"`
	Class     string        `json:"class,omitempty"`
	Code      int           `json:"code,omitempty"`
	// Late is how far the gang is behind the speed of its GPUs, because of messages and the
	// machine's other work. The iteration is shortened by that.
	Late time.Duration `json:"late,omitempty"`
}

// done is a rank's answer to "start" and "iterate".
type done struct {
	// Iteration is how long one takes at the speed of the rank's GPUs.
	Iteration time.Duration `json:"iteration"`
}

// Attempt is one try of a gang to run: all its ranks were there from Start to
// End.
type Attempt struct {
	Start, End time.Time
	Iterations int                 // done in this attempt
	GPUs       map[string][]string // node → GPU ids
	Finished   bool
}

// Report is what a gang did.
type Report struct {
	Gang
	Attempts []Attempt
	// GaveUp counts ranks that waited in vain, Waited the GPU time they held
	// while waiting.
	GaveUp int
	Waited time.Duration
	// Finished is the time when the last iteration ended; zero if it did not.
	Finished time.Time
	Progress int // iterations
}
