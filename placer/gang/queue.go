// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// earliest and latest limit the times that the queue can handle. An author's deadline or an
// operator's window can lie after 2262, which 64 bits of nanoseconds cannot represent. latest is
// well before 2262 because the queue adds spans to times.
var earliest, latest = time.Unix(0, 1), time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC)

// QueueTime converts a time to the queue's format, and limits it to the years 1970 to 2150.
func QueueTime(t time.Time) time.Duration {
	switch {
	case t.Before(earliest):
		t = earliest
	case t.After(latest):
		t = latest
	}
	return time.Duration(t.UnixNano())
}

// QueueJob converts the job to the queue's format. restart is the run time that the job loses when
// it restarts.
func (g *known) QueueJob(restart time.Duration) queue.Job {
	h := g.Request.Hints
	var attained, done, waited time.Duration
	returns := false
	r := g.ran()
	if r != nil && r.Attained > 0 {
		attained = r.Attained
		done = r.Done
		waited = r.Waited
		returns = r.StoppedWhy.Kind == reason.MembersStopped
	}
	return queue.Job{
		ID: g.Key.String(), Name: cluster.NameOf(g.Job).String(), Tenant: g.Key.Namespace, User: h.User, Gang: g.Request.Full(), Least: g.least(),
		Priority: g.QueuePriority(), Submitted: QueueTime(g.AsksSince()), Estimate: h.Duration, Best: g.Request.Best, Limit: rewrite.Limit(g.Job),
		Preemptible: h.Preempt && !g.Misplaced, Migratable: h.Migrate && !g.Misplaced,
		Attained: attained, Done: done, Waited: waited, RestartCost: restart, Checkpoint: h.Checkpoint,
		Anywhere: *g.Job.Type != api.JobTypeBatch || spreads(g.Request.Gang), // services and spread gangs do not wait for better GPUs
		Array:    g.array(), ArrayParallel: h.Parallel, Returns: returns, Endless: *g.Job.Type == api.JobTypeService,
	}
}

// least returns the minimum number of members of an elastic gang, or 0 for other gangs.
func (g *known) least() int {
	if g.Request.Elastic == nil {
		return 0
	}
	return g.Request.Elastic.Least
}

// spreads reports whether some members of the gang must run on different nodes or racks.
func spreads(g pal.Gang) bool {
	return slices.ContainsFunc(g.MemberSets, func(s pal.MemberSet) bool { return len(s.Spreads) > 0 })
}

// Submitted returns the time when the author registered the job. Registrations by the placer, after
// which the job has pins, do not count.
func (g *known) Submitted() time.Time {
	if g.Record != nil && len(g.Pins.Groups) > 0 {
		return g.Record.Submitted
	}
	if g.position.index == *g.Job.JobModifyIndex && !g.position.since.IsZero() { // both indexes of a job that Nomad does not have are 0
		return g.position.since
	}
	return time.Unix(0, *g.Job.SubmitTime)
}

// ran returns the record with the gang's run and wait times so far, or nil if the gang was never
// placed.
func (g *known) ran() *Record {
	if len(g.Pins.Groups) > 0 || g.Target != nil { // a job with the author's own gate may have no pins
		return g.Record
	}
	if g.position.index == *g.Job.JobModifyIndex {
		return g.position.record
	}
	return nil
}

// WaitsSince returns the time when the gang's present wait began.
func (g *known) WaitsSince() time.Time {
	r := g.ran()
	if r != nil && r.Attained > 0 && !r.Stopped.IsZero() {
		return r.Stopped
	}
	return g.AsksSince()
}

// NewRecord begins the record of a decision to start the gang.
func (g *known) NewRecord(now time.Time, d pal.Decision, note Note) Record {
	r := Record{
		Namespace: g.Key.Namespace, Job: g.Key.ID, Submitted: g.Submitted(), Decided: now,
		Mode: g.Request.Mode, Decision: d, Note: note,
	}
	if g.Record != nil && len(g.Pins.Groups) > 0 {
		r.UserFailures = g.Record.UserFailures
		r.Doubt = g.Record.Doubt
		r.Outage = g.Record.Outage
	}
	r.Waited = max(0, now.Sub(g.WaitsSince()))
	had := g.ran()
	if had != nil && had.Attained > 0 {
		r.Attained = had.Attained
		r.Done = had.Done
		r.Waited = r.Waited + had.Waited
	}
	return r
}

// leaveQueue removes from the queue a gang that the placer cannot or must not serve.
func (g *Lifecycle) leaveQueue(_ Event, w World) []Effect {
	return append(g.hasStopped(w), g.dequeue()...)
}

// dequeue removes the gang from the queue if it is in the queue.
func (g *memory) dequeue() []Effect {
	g.edited = false
	if !g.Queued {
		return nil
	}
	g.Queued, g.Placed = false, false
	return []Effect{Dequeue{}}
}

// waitInQueue tells the queue about a gang that is not running. A gang that must not start now
// stays out of the queue, because in the queue it would block the gangs behind it. A gang must not
// start while it backs off after a failure, waits for its pal_after or pal_begin, or is on hold, or
// if it may have finished already.
func (g *Lifecycle) waitInQueue(e Event, w World) []Effect {
	out := g.hasStopped(w)
	sync := e.(Sync)
	g.eligible = sync.Eligible
	// While members end, the queue knows the gang as running, unless they belong to a node that is
	// back after the gang joined the queue.
	ending := (g.stop != nil || g.dying(w)) && (g.Placed || !g.Queued)
	backsOff := !ending && (g.couldNever(w) || w.Now().Before(g.RetryAt) || sync.Unread || sync.After || g.finishUnknown(w))
	switch {
	case g.Refused == nil && g.Target == nil && !g.Queued && g.dying(w):
		return append(out, g.restored(true, w)...)
	case g.Refused != nil, backsOff && g.Target == nil:
		return append(out, g.dequeue()...)
	case g.Target != nil: // the gang counts as running; the queue learns the author's changes after its start
		return out
	case !g.Queued:
		out = append(out, g.enqueue(w))
	case g.Placed:
		// The queue must learn of the stop only when the gang's GPUs are free in the view. If the
		// queue learned of the stop earlier, it would find no room for the gang that gets these
		// GPUs, and would stop another gang for it.
		if g.dying(w) || len(w.Holds(g.Key)) > 0 {
			return out // changes by the gang's author are applied afterwards
		}
		g.Placed = false
		out = append(out, QueueStopped{})
		fallthrough
	case g.edited:
		if g.edited {
			out = append(out, Dequeue{}, g.enqueue(w))
		}
	}
	g.edited = false
	return out
}

// restored adds a gang with members to the queue as a running gang. ends means that an earlier
// placer has stopped the gang, so its GPUs will soon be free. If the queue did not know about the
// stop, it would stop a second gang to make room for the same waiting gang.
func (g *memory) restored(ends bool, w World) []Effect {
	j, at := g.asItRuns(w)
	if len(at.Members) == 0 {
		return nil
	}
	g.Queued = true
	g.Placed = true
	g.edited = true
	return []Effect{QueueRestored{Job: j, Placement: at, Since: g.startedAt(w.Now()), Ends: ends}}
}

// asItRuns returns the job in the queue's format, limited to the running members, and the placement
// of these members. The author may have changed the job since these members started.
func (g *known) asItRuns(w World) (queue.Job, pal.Placement) {
	at := w.Running(g.Request, w.Holds(g.Key))
	j := g.QueueJob(w.RestartCost())
	j.Gang.MemberSets, j.Least = slices.Clone(j.Gang.MemberSets), 0
	for i := range j.Gang.MemberSets {
		j.Gang.MemberSets[i].Members = 0
	}
	for _, m := range at.Members {
		j.Gang.MemberSets[m.MemberSet].Members++
	}
	r := g.Record
	if r != nil && r.Attained > 0 {
		j.Attained = r.Attained
		j.Done = r.Done
		j.Waited = r.Waited
	}
	return j, at
}

// enqueue puts the gang into the queue. A gang that was in the queue before keeps its old place.
func (g *memory) enqueue(w World) Effect {
	g.Queued, g.Placed = true, false
	return Enqueue{Job: g.QueueJob(w.RestartCost()), Since: g.WaitsSince()}
}

// staysInQueue handles a gang whose state the queue already knows, because the gang runs as before
// or is being stopped.
func (g *memory) staysInQueue(Event, World) []Effect {
	if g.Refused != nil {
		return g.dequeue()
	}
	return g.settle()
}

// runInQueue puts the gang into the queue as a running gang, unless it already is there as a
// running gang.
func (g *memory) runInQueue(_ Event, w World) []Effect {
	if g.Refused != nil {
		return g.dequeue()
	}
	var out []Effect
	if g.edited { // the queue still has the earlier request
		out = g.dequeue()
	}
	switch {
	case !g.Queued:
		out = append(out, QueueRestored{Job: g.QueueJob(w.RestartCost()), Placement: w.Running(g.Request, w.Holds(g.Key)), Since: g.startedAt(w.Now())})
	case !g.Placed:
		out = append(out, QueueStarted{w.Running(g.Request, w.Holds(g.Key))})
	}
	g.Queued, g.Placed = true, true
	return append(out, g.settle()...)
}

// runsOnInQueue puts the gang into the queue as a running gang with its present members, although
// the author now requests something else.
func (g *Lifecycle) runsOnInQueue(e Event, w World) []Effect {
	if !g.Queued && g.Refused == nil && g.stop == nil {
		es := g.restored(false, w)
		if es != nil {
			return es
		}
	}
	return g.staysInQueue(e, w)
}

// settle tells the queue not to move or resize the gang. settle does so only if some members have
// succeeded.
func (g *memory) settle() []Effect {
	if !g.Queued || g.Have <= g.Live {
		return nil
	}
	return []Effect{QueueSettled{}}
}

// AsksSince returns the time when the job began to request GPUs. Usually the job began to request
// GPUs when the author registered it. If the job's wait for pal_after and pal_begin ended later,
// AsksSince returns the end of that wait.
func (g *known) AsksSince() time.Time {
	submitted := g.Submitted()
	if submitted.After(g.eligible) {
		return submitted
	}
	return g.eligible
}

// array returns the parameterized or periodic job from which Nomad made this job, or "" if there is
// none.
func (g *Observed) array() string {
	if !cluster.Child(g.Job) {
		return ""
	}
	return cluster.TemplateOf(g.Job).String()
}
