// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import "time"

// Stops sums up the stops of gangs in favour of other gangs, with their cost and gain.
type Stops struct {
	// Stops is how often gangs were stopped for other gangs.
	Stops int `json:"stops,omitempty"`
	// LostGPUSeconds is the GPU time that the stopped gangs lost: the restart and, with
	// checkpoints, the work since the last checkpoint.
	LostGPUSeconds float64 `json:"lost_gpu_seconds,omitempty"`
	// SavedSeconds is how much sooner other gangs got the GPUs because the stopped gangs did not
	// run until their expected ends.
	SavedSeconds float64 `json:"saved_wait_seconds,omitempty"`
}

func (s *Stops) add(o Stops) {
	s.Stops += o.Stops
	s.LostGPUSeconds += o.LostGPUSeconds
	s.SavedSeconds += o.SavedSeconds
}

// countStop records that a gang has stopped for another gang. If several gangs stop for one gang,
// the saved wait counts only once: for the victim that would have ended last.
func countStop(q *Queue, e *entry, now time.Duration) {
	by := q.entries[e.stopsFor]
	if by == nil || by.promised == nil || e.state != stopping || len(e.target.Members) > 0 {
		return
	}
	lost := e.job.RestartCost
	every := e.job.Checkpoint
	if every > 0 {
		lost += max(0, now-e.checkpointsFrom()) % every
	}
	e.addStops(Stops{Stops: 1, LostGPUSeconds: lost.Seconds() * e.amount(e.gpus)})
	more := e.expectedEnd - now - by.promised.saved
	if more > 0 {
		by.promised.saved += more
		by.addStops(Stops{SavedSeconds: more.Seconds()})
	}
}

func (e *entry) addStops(s Stops) {
	e.earlier.stops.add(s)
	e.of.stops.add(s)
}

// StopsOf returns the sum of the stops of a gang since the gang was submitted to the Queue. The
// result includes the time that stops of other gangs saved this gang.
func StopsOf(q *Queue, id string) Stops {
	e := q.entries[id]
	if e != nil {
		return e.earlier.stops
	}
	return Stops{}
}

// Stops returns the sum of all stops that the Queue has seen, and of the stops that
// [Queue.RememberUsage] added.
func (ts *tenancy) Stops() (all Stops) {
	for _, n := range ts.sortedNamespaces() {
		all.add(n.stops)
	}
	return all
}
