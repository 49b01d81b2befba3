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
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

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
	last    []palapi.Event // the oldest first
	size    int
	next    uint64
	changed chan struct{} // closed by the next event
}

// NewEventLog returns a log of at most size events. began is the time when the agent started.
func NewEventLog(size int, began time.Time) *EventLog {
	return &EventLog{size: size, next: uint64(began.UnixMilli()), changed: make(chan struct{})}
}

// Add adds an event to the log, and gives it the next ID.
func (l *EventLog) Add(e palapi.Event) {
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
func (l *EventLog) After(id uint64) ([]palapi.Event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	behind := slices.IndexFunc(l.last, func(e palapi.Event) bool { return e.ID > id })
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
		if e.Kind == palapi.EventStopped && e.Namespace == k.Namespace && e.Job == k.ID {
			return e.ForJob
		}
	}
	return ""
}

// emit adds an event about a job.
func (p *core) emit(k cluster.JobKey, kind palapi.EventKind, text string) {
	p.emitFound(k, kind, text, time.Time{})
}

// emitFound adds an event about the state of a job. since is the time when the state began, or zero
// if it began just now or at an unknown time.
func (p *core) emitFound(k cluster.JobKey, kind palapi.EventKind, text string, since time.Time) {
	p.hooks.Events.Add(palapi.Event{At: p.m.Time.UTC(), Kind: kind, Namespace: k.Namespace, Job: k.ID, Text: oneLine(text), Since: since})
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// stopText describes why a gang is being stopped, and what will happen next.
func stopText(t *model.Tracked) string {
	text := "its members are stopped: " + t.WhyStopped().String()
	why, _ := t.Stopping()
	switch {
	case why == "": // an earlier placer stopped it
		return "its members are stopped"
	case why == gang.Preempted || why == gang.Moved:
		return text
	case t.Record != nil && !t.Record.GivenUp.IsZero():
		return text + "; nomad-pal does not start the gang again"
	}
	return text + "; the gang starts again as a whole"
}

// foundSince returns when the state began in which the placer found a job. It is zero if the placer
// saw the change itself, or if the time is unknown.
func (p *core) foundSince(t *model.Tracked, was palapi.State, e gang.Event) time.Time {
	_, read := e.(gang.RecordRead)
	f := p.m.World().LastFailure(t.Job)
	switch {
	case was != "" && !read || t.Job.SubmitTime == nil:
		return time.Time{}
	case f != nil:
		return f.At
	case t.State(p.m) == palapi.Lost: // lost at an unknown time since the job was submitted
		return time.Time{}
	}
	return time.Unix(0, *t.Job.SubmitTime)
}

// noteState adds an event if the last step changed a gang's state.
func (p *core) noteState(t *model.Tracked, was palapi.State, heard gang.Event) {
	is := t.State(p.m)
	if p.hooks.Events == nil || is == was {
		return
	}
	found := p.foundSince(t, was, heard)
	switch is {
	case palapi.Waiting:
		if was == "" {
			p.emitFound(t.Key, palapi.EventQueued, "waits for "+palapi.GPURange(float64(t.Request.Least().GPUs()), float64(t.Request.Gang.GPUs())), found)
		} else if was != palapi.Committing && was != palapi.Rejected {
			text := "waits again; it was " + string(was)
			if was == palapi.Completing {
				text = "waits again, because all its members have stopped"
			}
			p.emit(t.Key, palapi.EventRequeued, text)
		}
	case palapi.Running:
		if was == palapi.Starting || was == palapi.Waiting || was == palapi.Committing {
			p.emit(t.Key, palapi.EventStarted, allPlaced(t.Want))
		}
	case palapi.Stopping:
		_, forJob := t.Stopping()
		p.hooks.Events.Add(palapi.Event{At: p.m.Time.UTC(), Kind: palapi.EventStopped, Namespace: t.Key.Namespace, Job: t.Key.ID, ForJob: forJob, Text: stopText(t)})
	case palapi.Lost:
		text := "ended before its members had finished"
		f := p.m.World().LastFailure(t.Job)
		if f == nil || f.Reason == failure.BeingStopped {
			text = "its members were stopped (node drain?); the gang starts again and keeps its place"
		}
		p.emitFound(t.Key, palapi.EventLostMembers, text, found)
	case palapi.Failed:
		p.emitFound(t.Key, palapi.EventGivenUp, t.GaveUp().String(), found)
	case palapi.Rejected:
		if t.Refused != nil {
			p.emitFound(t.Key, palapi.EventRefused, t.Refused.Error(), found)
		}
	case palapi.Ended:
		stopping := slices.ContainsFunc(p.m.State.AllocsOf(t.Key), (*cluster.Alloc).Live)
		switch {
		case was != "" && stopping && !rewrite.Stopped(t.Job): // Nomad calls the job dead before its members have ended
			p.emit(t.Key, palapi.EventLostMembers, "its members are being stopped (node drain?)")
		case was != "":
			o := query.OutcomeOf(p.m, t.Observed)
			p.emit(t.Key, palapi.EventFinished, "is "+o.Status+": "+o.Reason.String())
		}
	case palapi.Native:
		if was != "" {
			p.emit(t.Key, palapi.EventReleased, "is left to Nomad from now on")
		}
	}
}

// allPlaced is the text of events of kind [palapi.EventStarted]. The members may still be pending, because
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
	e := palapi.Event{At: p.m.Time.UTC(), Kind: palapi.EventPlaced, Namespace: t.Key.Namespace, Job: t.Key.ID}
	if r.Note == gang.NoteMoved {
		e.Kind = palapi.EventMoved
	}
	e.GPUs = c.GPUIDs()
	e.Text = fmt.Sprintf("gets %s %s after %s, predicted slowdown %.2f", pal.CountGPUs(len(e.GPUs)), on(c), palapi.ShortDuration(r.Waited.Round(time.Second)), c.Cost)
	p.hooks.Events.Add(e)
}

// emitSized adds an event for a new number of members that Nomad has stored.
func (p *core) emitSized(t *model.Tracked, s gang.Sized) {
	text := fmt.Sprintf("%s from %d to %s", map[bool]string{true: "shrinks", false: "grows"}[s.To < s.From], s.From, reason.Counted(s.To, "member", "members"))
	p.hooks.Events.Add(palapi.Event{At: p.m.Time.UTC(), Kind: palapi.EventResized, Namespace: t.Key.Namespace, Job: t.Key.ID, ForJob: s.For, GPUs: s.GPUs, Text: text})
}

func on(c *pal.Choice) string {
	if c.Nodes == 1 && len(c.Members) > 0 {
		return "on node " + c.Members[0].Node
	}
	return fmt.Sprintf("on %d nodes", c.Nodes)
}

// failedEvent returns the event about a failed allocation.
func failedEvent(f palapi.Failure) palapi.Event {
	return palapi.Event{At: f.At.UTC(), Kind: palapi.EventAllocFailed, Namespace: f.Namespace, Job: f.Job, Node: f.Node, GPUs: f.GPUs,
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
		same := func(k palapi.Event) bool {
			return k.Kind == e.Kind && k.At.Equal(e.At) && k.Job == e.Job && k.Text == e.Text
		}
		if f.Reason != failure.BeingStopped && !slices.ContainsFunc(known, same) {
			p.hooks.Events.Add(e)
		}
	}
}

// emitFailures adds events about failed allocations, and about GPUs that have just been put in
// quarantine.
func (p *Placer) emitFailures(found []palapi.Failure, before map[string]palapi.Quarantine) {
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
			p.hooks.Events.Add(palapi.Event{At: p.m.Time.UTC(), Kind: palapi.EventQuarantined, GPUs: []string{id}, GPU: nameOfGPU(p.m.View, id),
				Text: oneLine(fmt.Sprintf("is quarantined until %s: %s", reason.Moment(q.Until), q.Reason))})
		}
	}
}
