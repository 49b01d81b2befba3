// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import "time"

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	EventQueued      EventKind = "queued"      // the job was registered, and waits
	EventPlaced      EventKind = "placed"      // GPUs were chosen, and the job was registered with them
	EventMoved       EventKind = "moved"       // like Placed, but on better GPUs than before
	EventResized     EventKind = "resized"     // the number of members of an elastic gang was changed
	EventStarted     EventKind = "started"     // Nomad has placed all members
	EventStopped     EventKind = "stopped"     // the placer stops the members
	EventRequeued    EventKind = "requeued"    // the job waits again
	EventLostMembers EventKind = "lost"        // members ended before their work was done
	EventGivenUp     EventKind = "failed"      // the job is not tried again
	EventRefused     EventKind = "rejected"    // the job cannot be served as it is written
	EventFinished    EventKind = "ended"       // the author stopped the job, or it has ended
	EventReleased    EventKind = "released"    // the job is left to Nomad
	EventAllocFailed EventKind = "allocation"  // an allocation failed or was lost
	EventQuarantined EventKind = "quarantined" // a GPU gets no new jobs for a while
	EventUnhealthy   EventKind = "unhealthy"   // a GPU has become unhealthy
	EventHealthy     EventKind = "healthy"     // a GPU is healthy again
)

// EventKinds lists all kinds of events.
var EventKinds = []EventKind{EventQueued, EventPlaced, EventMoved, EventResized, EventStarted, EventStopped, EventRequeued, EventLostMembers, EventGivenUp, EventRefused, EventFinished, EventReleased,
	EventAllocFailed, EventQuarantined, EventUnhealthy, EventHealthy}

// Event reports something that the placer did or saw.
type Event struct {
	// ID is greater than the IDs of all earlier events, even of events of an earlier agent. The
	// first ID of an agent is its start time in milliseconds.
	ID uint64 `json:"id"`
	// At is the time when the placer saw the event. For a failed allocation, At is the time when
	// the allocation last changed in Nomad.
	At time.Time `json:"at"`
	// Kind is queued, placed, moved, resized, started, stopped, requeued, lost, failed, rejected,
	// ended, released, allocation (an allocation failed or was lost), quarantined, unhealthy or
	// healthy.
	Kind EventKind `json:"kind"`
	// Namespace and Job identify the job, and are empty in events about GPUs.
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job,omitempty"`
	// ForJob is the job (namespace/id) in whose favour the event's job is stopped or shrinks.
	ForJob string `json:"for_job,omitempty"`
	// Node is the name of the node, in events about failed allocations and about the health of
	// GPUs.
	Node string   `json:"node,omitempty"`
	GPUs []string `json:"gpus,omitempty"` // ids of the event's GPUs, at most 256
	// GPU is the name of the GPU in an event about one GPU: NODE:INDEX with nvidia-smi's number, or
	// the id if the number is unknown.
	GPU string `json:"gpu,omitempty"`
	// Text describes the event without the job's name and the GPU's id.
	Text string `json:"text"`
	// If the job was already in its present state when the placer first saw it, Since is the time
	// when this state began. In this case, an earlier placer may have reported the same event.
	Since time.Time `json:"-"`
}

// RedactedFor returns the event without the parts that a user may not see. ok is false if the user
// may not see the event at all. Events about GPUs can name jobs and tasks of any namespace, so only
// operators see them.
func (e Event) RedactedFor(sees Sees, operator func() bool) (_ Event, ok bool) {
	if e.Namespace == "" {
		return e, operator()
	}
	e.ForJob = sees.Name(e.ForJob)
	return e, sees(e.Namespace)
}
