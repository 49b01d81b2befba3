// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import "time"

// Stops is what it came to that gangs were stopped for others.
type Stops struct {
	// Stops is how often gangs were stopped for others.
	Stops int `json:"stops,omitempty"`
	// LostGPUSeconds is what these lost: what a restart costs and, of a gang with checkpoints, what it did since
	// the last one.
	LostGPUSeconds float64 `json:"lost_gpu_seconds,omitempty"`
	// SavedSeconds is how much sooner gangs got the GPUs that they were stopped for than if the others had
	// run to their expected ends.
	SavedSeconds float64 `json:"saved_wait_seconds,omitempty"`
}

func (s *Stops) add(o Stops) {
	s.Stops += o.Stops
	s.LostGPUSeconds += o.LostGPUSeconds
	s.SavedSeconds += o.SavedSeconds
}

// countStop notes that a gang has stopped for another one. Of several that stop for one gang that counts
// which would have ended last.
func (e *entry) countStop(now time.Duration) {
	c := e.stopsFor
	if c == nil || e.state != stopping || len(e.target.Members) > 0 {
		return
	}
	lost := e.job.RestartCost
	if every := e.job.Checkpoint; every > 0 {
		lost += max(0, now-e.checkpointsFrom()) % every
	}
	e.of.stops.add(Stops{Stops: 1, LostGPUSeconds: lost.Seconds() * float64(e.gpus)})
	if more := e.expectedEnd - now - c.saved; more > 0 {
		c.saved += more
		c.by.of.stops.add(Stops{SavedSeconds: more.Seconds()})
	}
}

// Stops is what all stops came to that the Queue has heard of, or was told by [Queue.RememberUsage].
func (ts *tenancy) Stops() (all Stops) {
	for _, n := range ts.sortedNamespaces() {
		all.add(n.stops)
	}
	return all
}
