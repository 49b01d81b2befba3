// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	Queued      EventKind = "queued"      // the job was registered, and waits
	Placed      EventKind = "placed"      // GPUs were chosen, and the job was registered with them
	Moved       EventKind = "moved"       // like Placed, but on better GPUs than before
	Resized     EventKind = "resized"     // the number of members of an elastic gang was changed
	Started     EventKind = "started"     // Nomad has placed all members
	Stopped     EventKind = "stopped"     // the placer stops the members
	Requeued    EventKind = "requeued"    // the job waits again
	LostMembers EventKind = "lost"        // members ended before their work was done
	GivenUp     EventKind = "failed"      // the job is not tried again
	Refused     EventKind = "rejected"    // the job cannot be served as it is written
	Finished    EventKind = "ended"       // the author stopped the job, or it has ended
	Released    EventKind = "released"    // the job is left to Nomad
	AllocFailed EventKind = "allocation"  // an allocation failed or was lost
	Quarantined EventKind = "quarantined" // a GPU gets no new jobs for a while
	Unhealthy   EventKind = "unhealthy"   // a GPU has become unhealthy
	Healthy     EventKind = "healthy"     // a GPU is healthy again
)

// EventKinds lists all kinds of events.
var EventKinds = []EventKind{Queued, Placed, Moved, Resized, Started, Stopped, Requeued, LostMembers, GivenUp, Refused, Finished, Released,
	AllocFailed, Quarantined, Unhealthy, Healthy}

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

const (
	// eventGPUs is the maximum number of GPUs that one event names.
	eventGPUs = 256
	// eventText is the maximum length of each text of an event, in bytes. Nomad limits neither the
	// ids of jobs nor the messages of drivers.
	eventText = 2000
)

// EventLog keeps the newest events in memory. An EventLog is safe for concurrent use. A nil
// EventLog keeps no events.
type EventLog struct {
	mu      sync.Mutex
	last    []Event // the oldest first
	size    int
	next    uint64
	changed chan struct{} // closed by the next event
}

// NewEventLog returns a log of at most size events. began is the time when the agent started.
func NewEventLog(size int, began time.Time) *EventLog {
	return &EventLog{size: size, next: uint64(began.UnixMilli()), changed: make(chan struct{})}
}

// Add adds an event to the log, and gives it the next ID.
func (l *EventLog) Add(e Event) {
	if l == nil {
		return
	}
	e.GPUs = slices.Clone(e.GPUs[:min(len(e.GPUs), eventGPUs)])
	for _, text := range []*string{&e.Job, &e.ForJob, &e.Node, &e.Text} {
		*text = store.AtMost(eventText, *text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID = l.next
	l.next++
	l.last = append(l.last, e)
	l.last = l.last[max(0, len(l.last)-l.size):]
	close(l.changed)
	l.changed = make(chan struct{})
}

// After returns the kept events whose ID is above id, oldest first. After also returns a channel
// that the next event closes.
func (l *EventLog) After(id uint64) ([]Event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	behind := slices.IndexFunc(l.last, func(e Event) bool { return e.ID > id })
	if behind < 0 {
		return nil, l.changed
	}
	// No event changes later, so all readers can share the memory.
	return slices.Clip(l.last[behind:]), l.changed
}

// StoppedFor returns the job (namespace/id) in whose favour job k was last stopped, or "" if no
// event names such a job.
func (l *EventLog) StoppedFor(k cluster.JobKey) string {
	if l == nil {
		return ""
	}
	events, _ := l.After(0)
	for _, e := range slices.Backward(events) {
		if e.Kind == Stopped && e.Namespace == k.Namespace && e.Job == k.ID {
			return e.ForJob
		}
	}
	return ""
}

// RedactedFor returns the event without the parts that a user may not see. ok is false if the user
// may not see the event at all. Events about GPUs can name jobs and tasks of any namespace, so only
// operators see them.
func (e Event) RedactedFor(sees model.Sees, operator func() bool) (_ Event, ok bool) {
	if e.Namespace == "" {
		return e, operator()
	}
	e.ForJob = sees.Name(e.ForJob)
	return e, sees(e.Namespace)
}

// emit adds an event about a job.
func (p *core) emit(k cluster.JobKey, kind EventKind, text string) {
	p.emitFound(k, kind, text, time.Time{})
}

// emitFound adds an event about the state of a job. since is the time when the state began, or zero
// if it began just now or at an unknown time.
func (p *core) emitFound(k cluster.JobKey, kind EventKind, text string, since time.Time) {
	p.hooks.Events.Add(Event{At: p.m.Time.UTC(), Kind: kind, Namespace: k.Namespace, Job: k.ID, Text: oneLine(text), Since: since})
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// stopText describes why a gang is being stopped, and what will happen next.
func stopText(t *model.Tracked) string {
	text := "its members are stopped: " + t.WhyStopped().String()
	switch why, _ := t.Stopping(); {
	case why == "": // an earlier placer stopped it
		return "its members are stopped"
	case why == gang.Preempted || why == gang.Moved:
		return text
	case t.Record != nil && !t.Record.GivenUp.IsZero():
		return text + "; the placer does not start the gang again"
	}
	return text + "; the gang starts again as a whole"
}

// foundSince returns the time when a job's state began, if the job was in this state when the
// placer first saw it. foundSince returns zero if the placer saw the change to this state itself,
// or if the time is unknown.
func (p *core) foundSince(t *model.Tracked, was gang.State, e gang.Event) time.Time {
	_, read := e.(gang.RecordRead)
	switch f := p.m.World().LastFailure(t.Job); {
	case was != "" && !read || t.Job.SubmitTime == nil:
		return time.Time{}
	case f != nil:
		return f.At
	case t.State(p.m) == gang.Lost: // lost at an unknown time since the job was submitted
		return time.Time{}
	}
	return time.Unix(0, *t.Job.SubmitTime)
}

// noteState adds an event if the last step changed a gang's state.
func (p *core) noteState(t *model.Tracked, was gang.State, heard gang.Event) {
	is := t.State(p.m)
	if p.hooks.Events == nil || is == was {
		return
	}
	found := p.foundSince(t, was, heard)
	switch is {
	case gang.Waiting:
		if was == "" {
			p.emitFound(t.Key, Queued, "waits for "+model.GPURange(float64(t.Request.Least().GPUs()), float64(t.Request.Gang.GPUs())), found)
		} else if was != gang.Committing && was != gang.Rejected {
			text := "waits again; it was " + string(was)
			if was == gang.Completing {
				text = "waits again, because all its members have stopped"
			}
			p.emit(t.Key, Requeued, text)
		}
	case gang.Running:
		if was == gang.Starting || was == gang.Waiting || was == gang.Committing {
			p.emit(t.Key, Started, allPlaced(t.Want))
		}
	case gang.Stopping:
		_, forJob := t.Stopping()
		p.hooks.Events.Add(Event{At: p.m.Time.UTC(), Kind: Stopped, Namespace: t.Key.Namespace, Job: t.Key.ID, ForJob: forJob, Text: stopText(t)})
	case gang.Lost:
		text := "ended before its members had finished"
		if f := p.m.World().LastFailure(t.Job); f == nil || f.Reason == failure.BeingStopped {
			text = "its members were stopped (node drain?); the gang starts again and keeps its place"
		}
		p.emitFound(t.Key, LostMembers, text, found)
	case gang.Failed:
		p.emitFound(t.Key, GivenUp, t.GaveUp().String(), found)
	case gang.Rejected:
		if t.Refused != nil {
			p.emitFound(t.Key, Refused, t.Refused.Error(), found)
		}
	case gang.Ended:
		stopping := slices.ContainsFunc(p.m.State.AllocsOf(t.Key), (*cluster.Alloc).Live)
		switch {
		case was != "" && stopping && !rewrite.Stopped(t.Job): // Nomad calls the job dead before its members have ended
			p.emit(t.Key, LostMembers, "its members are being stopped (node drain?)")
		case was != "":
			o := query.OutcomeOf(p.m, t.Observed)
			p.emit(t.Key, Finished, "is "+o.Status+": "+o.Reason.String())
		}
	case gang.Native:
		if was != "" {
			p.emit(t.Key, Released, "is left to Nomad from now on")
		}
	}
}

// allPlaced is the text of events of kind [Started]. The members may still be pending, because
// Nomad reports that they run only when their images are pulled and their tasks have started.
func allPlaced(members int) string {
	if members == 1 {
		return "Nomad has placed the only member"
	}
	return fmt.Sprintf("Nomad has placed all %d members", members)
}

// emitPlaced adds an event for a decision that Nomad has stored.
func (p *core) emitPlaced(t *model.Tracked, r gang.Record) {
	c := r.Decision.Chosen
	if p.hooks.Events == nil || c == nil {
		return
	}
	e := Event{At: p.m.Time.UTC(), Kind: Placed, Namespace: t.Key.Namespace, Job: t.Key.ID}
	if r.Note == gang.NoteMoved {
		e.Kind = Moved
	}
	e.GPUs = c.GPUIDs()
	e.Text = fmt.Sprintf("gets %s %s after %s, predicted slowdown %.2f", pal.CountGPUs(len(e.GPUs)), on(c), model.ShortDuration(r.Waited.Round(time.Second)), c.Cost)
	p.hooks.Events.Add(e)
}

// emitSized adds an event for a new number of members that Nomad has stored.
func (p *core) emitSized(t *model.Tracked, s gang.Sized) {
	text := fmt.Sprintf("%s from %d to %s", map[bool]string{true: "shrinks", false: "grows"}[s.To < s.From], s.From, reason.Counted(s.To, "member", "members"))
	p.hooks.Events.Add(Event{At: p.m.Time.UTC(), Kind: Resized, Namespace: t.Key.Namespace, Job: t.Key.ID, ForJob: s.For, GPUs: s.GPUs, Text: text})
}

func on(c *pal.Choice) string {
	if c.Nodes == 1 && len(c.Members) > 0 {
		return "on node " + c.Members[0].Node
	}
	return fmt.Sprintf("on %d nodes", c.Nodes)
}

// failedEvent returns the event about a failed allocation.
func failedEvent(f failure.Failure) Event {
	return Event{At: f.At.UTC(), Kind: AllocFailed, Namespace: f.Namespace, Job: f.Job, Node: f.Node, GPUs: f.GPUs,
		Text: oneLine(fmt.Sprintf("allocation %.8s on node %s failed (%s): %s", f.Alloc, f.Node, f.Cause, store.AtMost(reasonBytes, f.Reason)))}
}

// emitStoredFailures adds events about the failures that earlier placers stored, so that the events
// and the page's list of failures have the same. An earlier placer of this agent may have added some
// of them.
func (p *Placer) emitStoredFailures() {
	if p.hooks.Events == nil {
		return
	}
	known, _ := p.hooks.Events.After(0)
	for _, f := range p.failureLog.failures {
		e := failedEvent(f)
		e.Since = e.At
		same := func(k Event) bool { return k.Kind == e.Kind && k.At.Equal(e.At) && k.Job == e.Job && k.Text == e.Text }
		if f.Reason != failure.BeingStopped && !slices.ContainsFunc(known, same) {
			p.hooks.Events.Add(e)
		}
	}
}

// emitFailures adds events about failed allocations, and about GPUs that have just been put in
// quarantine.
func (p *Placer) emitFailures(found []failure.Failure, before map[string]failure.Quarantine) {
	if p.hooks.Events == nil {
		return
	}
	for _, f := range found {
		if f.Reason != failure.BeingStopped {
			p.hooks.Events.Add(failedEvent(f))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.failureLog.quarantine)) {
		q := p.failureLog.quarantine[id]
		if p.m.Time.Before(q.Until) && !q.Until.Equal(before[id].Until) {
			p.hooks.Events.Add(Event{At: p.m.Time.UTC(), Kind: Quarantined, GPUs: []string{id}, GPU: nameOfGPU(p.m.View, id),
				Text: oneLine(fmt.Sprintf("is quarantined until %s: %s", reason.Moment(q.Until), q.Reason))})
		}
	}
}
