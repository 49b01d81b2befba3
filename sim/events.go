// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// event belongs to a job or to a GPU. A negative gpu stands for an event of a job: its run ends, or
// its GPUs come free. Otherwise, the GPU of that number fails or is repaired. The engine of plain Nomad uses gpu
// differently: see nomadEngine.happen.
type event struct {
	at     time.Duration
	seq    int64
	job    int
	gpu    int
	repair bool
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

// Failures has the rates at which GPUs fail. With the zero value, GPUs never fail.
type Failures struct {
	// MTBFH is the mean time between failures of one GPU in hours.
	MTBFH float64
	// RepairH is the mean time in hours until a failed GPU is repaired.
	RepairH float64
}

type faults struct {
	rand *rand.Rand
	down map[int]bool
	on   map[int]int // job on each GPU; nil if no GPU can fail
	// failures is the number of failures that took a GPU down.
	failures int
	// inVain counts the failures, of any GPU, since a gang last saved some work or ended.
	inVain int
}

// newFaults schedules the first failure.
func (e *engine) newFaults() {
	e.faults = faults{rand: rand.New(rand.NewPCG(e.Seed, 0xfa17)), down: map[int]bool{}}
	if e.Failures.MTBFH > 0 {
		e.faults.on = map[int]int{}
		e.nextFailure()
	}
}

// occupy records which job holds which GPU.
func (f *faults) occupy(job int, p pal.Placement, on bool) {
	if f.on == nil {
		return
	}
	for _, u := range p.GPUs() {
		if on {
			f.on[u] = job
		} else {
			delete(f.on, u)
		}
	}
}

// nextFailure draws which GPU fails next, and when. If that GPU is already down, the failure has no
// effect.
func (e *engine) nextFailure() {
	n := e.Cluster.NumGPUs()
	gap := e.faults.rand.ExpFloat64() * e.Failures.MTBFH * 3600 / float64(n)
	e.unlessNever(gap, event{gpu: e.faults.rand.IntN(n)})
}

// unlessNever schedules an event after s seconds, if a simulation can last that long.
func (e *engine) unlessNever(s float64, ev event) {
	at, err := endOf(e.now, s, "")
	if err == nil {
		ev.at = at
		e.events.push(ev)
	}
}

// onlyFailures reports whether no more jobs arrive, and GPUs have failed more than `hopeless` times
// since a gang last saved some work. Either GPUs fail too often for the remaining gangs, or these
// gangs can never start.
func (e *engine) onlyFailures() bool {
	if e.faults.inVain <= hopeless || e.next < len(e.jobs) {
		return false
	}
	for i := range e.jobs {
		j := &e.jobs[i]
		if j.running && e.kept((e.now-j.since).Seconds()) > 0 {
			e.faults.inVain = 0
			return false
		}
	}
	return true
}

// fault takes a GPU down and stops its gang, or repairs the GPU.
func (e *engine) fault(ev event) {
	if ev.repair {
		delete(e.faults.down, ev.gpu)
		e.Cluster.SetHealth(ev.gpu, false, false)
		return
	}
	e.nextFailure()
	e.faults.inVain++
	if e.faults.down[ev.gpu] {
		return
	}
	e.faults.down[ev.gpu] = true
	e.faults.failures++
	if i, ok := e.faults.on[ev.gpu]; ok && e.jobs[i].done {
		e.end(i)
	} else if ok {
		e.stop(i, "fail")
		e.queue.Stopped(e.now, e.Jobs[i].ID)
	}
	e.Cluster.SetHealth(ev.gpu, true, false)
	e.unlessNever(e.faults.rand.ExpFloat64()*e.Failures.RepairH*3600, event{gpu: ev.gpu, repair: true})
}
