// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue_test

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// Two gangs of three GPUs each request GPUs of a node with four, so one runs and the other waits.
func Example() {
	node := pal.Node{ID: "node0", Groups: []pal.DeviceGroup{{
		Name: "nvidia/gpu/H200", GPUs: []pal.GPU{{ID: "gpu0"}, {ID: "gpu1"}, {ID: "gpu2"}, {ID: "gpu3"}},
	}}}
	c, err := pal.NewCluster([]pal.Node{node}, pal.TwoTier(pal.DefaultPenalty))
	if err != nil {
		panic(err)
	}
	q, err := queue.New(queue.Default())
	if err != nil {
		panic(err)
	}
	first, second := pal.SingleGPUs("first", pal.ClassA, 3), pal.SingleGPUs("second", pal.ClassA, 3)
	for _, gang := range []pal.Gang{first, second} {
		if err := q.Submit(0, queue.Job{ID: gang.ID, Gang: gang, Estimate: time.Hour}); err != nil {
			panic(err)
		}
	}

	// The caller carries out what Decide returns, and then reports the outcome, because the queue
	// relies on reports alone.
	a := q.Decide(0, c)[0]
	fmt.Printf("%s %s on GPUs %v\n", a.Kind, a.Job, a.GPUs())
	c.Take(first, a.Placement)
	q.Started(0, a.Job, a.Placement)

	fmt.Println("actions:", len(q.Decide(time.Minute, c)))
	for _, w := range q.Waiting(time.Minute, c) {
		fmt.Printf("%s waits for: %s\n", w.Job, w.Reason)
	}

	c.Release(first, a.Placement)
	q.Finished(time.Hour, "first")
	a = q.Decide(time.Hour, c)[0]
	fmt.Printf("%s %s on GPUs %v\n", a.Kind, a.Job, a.GPUs())
	c.Take(second, a.Placement)
	q.Started(time.Hour, a.Job, a.Placement)
	for id, p := range q.Running() {
		fmt.Printf("%s runs on GPUs %v\n", id, p.GPUs())
	}
	// Output:
	// start first on GPUs [0 1 2]
	// actions: 0
	// second waits for: gpus
	// start second on GPUs [0 1 2]
	// second runs on GPUs [0 1 2]
}
