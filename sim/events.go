// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"container/heap"
	"fmt"
	"math"
	"time"
)

// event belongs to a job: its run ends, or its GPUs come free. round is for the engine of plain Nomad: see
// nomadEngine.happen.
type event struct {
	at    time.Duration
	seq   int64
	job   int
	round int
}

// events are the future events, in order of time, then of creation.
type events struct {
	heap eventHeap
	made int64
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(a, b int) bool {
	if h[a].at != h[b].at {
		return h[a].at < h[b].at
	}
	return h[a].seq < h[b].seq
}
func (h eventHeap) Swap(a, b int) { h[a], h[b] = h[b], h[a] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// push gives an event the next number, from 1, and adds it.
func (es *events) push(e event) int64 {
	es.made++
	e.seq = es.made
	heap.Push(&es.heap, e)
	return e.seq
}

func (es *events) nextAt() (time.Duration, bool) {
	if len(es.heap) == 0 {
		return 0, false
	}
	return es.heap[0].at, true
}

func (es *events) popUntil(at time.Duration) (event, bool) {
	if next, ok := es.nextAt(); !ok || next > at {
		return event{}, false
	}
	return heap.Pop(&es.heap).(event), true
}

// endOf returns the end of a run that begins at the given time and takes s seconds. An end more
// than 292 years after the trace began is an error, because a [time.Duration] cannot hold it.
func endOf(begin time.Duration, s float64, job string) (time.Duration, error) {
	if !(s*float64(time.Second) < float64(math.MaxInt64-begin)) {
		return math.MaxInt64, fmt.Errorf("job %q would run for %.0f years; is its run time, or one of its speeds, wrong?", job, s/(365*86400))
	}
	return begin + seconds(s), nil
}
