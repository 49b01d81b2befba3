// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// How a gang is stopped, to make room, to move or to be requeued. The gang's record is written
// ([WriteRecord]), the gate is registered, the members are told to stop, and all members end
// ([Lifecycle.hasStopped]). Until its stop is complete, the gang holds all its GPUs (Reserved),
// including the GPUs of members that have ended, because the queue waits for all of these GPUs
// together.
//
// If a node goes down before the gang has stopped, Nomad reports the members on this node as lost.
// Lost members no longer count as dying, so the gang has stopped as if they had ended. The ledger
// gives nobody the GPUs of a node that is down. So the claim of the gang that was to get these GPUs
// lapses once the other members have ended, and the queue decides again. Before the claim lapses,
// the claiming gang can start elsewhere. A member on a node that is only disconnected from Nomad
// (status unknown) is left behind. Nothing waits for such a member, and nobody gets its GPUs until
// the node is back ([cluster.Alloc.LeftBehind]).

// stopping is why and how far a gang is being stopped.
type stopping struct {
	why StopReason
	// forJob is the job for which the gang makes room; target has the GPUs on which the gang starts
	// again.
	forJob string
	target *pal.Placement
	// before is the record before the stop. recorded is set once Nomad has the record of the stop,
	// or if there is no record to write. gated is set once Nomad has the gate, and requested once
	// the placer has told members to stop.
	before                     *Record
	asked                      bool // a person requested the stop: see [Control]
	recorded, gated, requested bool
	// someDone is set if members had succeeded, so the queue may have only the other members. When
	// the gang starts again, all its members start.
	someDone bool
}

// StopReason is why a gang is stopped.
type StopReason string

// The reasons.
const (
	Preempted StopReason = "preempted"
	Moved     StopReason = "moved"
	Requeued  StopReason = "requeued"
	Resized   StopReason = "resized" // by its author
)

// Stopping returns why the gang is being stopped and for which job, if known;
// "" if it is not being stopped.
func (g *Lifecycle) Stopping() (why StopReason, forJob string) {
	if g.stop == nil {
		return "", ""
	}
	return g.stop.why, g.stop.forJob
}

// WhyStopped returns why the gang is being stopped; none if it is not. WhyStopped does not name the
// job that gets the room, because not everybody may see that job.
func (g *Lifecycle) WhyStopped() reason.Reason {
	if g.stop == nil {
		return reason.Reason{}
	}
	switch g.stop.why {
	case Preempted:
		return reason.Reason{Kind: reason.MakesRoom}
	case Moved:
		return reason.Reason{Kind: reason.Moves}
	case Resized:
		return reason.Reason{Kind: reason.Edited}
	}
	if g.stop.asked {
		return reason.Reason{Kind: reason.RequeueAsked, Cause: g.Control.Requeue.byWhom()}
	}
	return reason.Reason{Kind: reason.NotWhole}.Over(g.Trouble())
}

// preempt stops this gang so that another gang can get its GPUs. The other gang remains in the
// queue, which reserves the GPUs for that gang until this gang has stopped, for whatever reason, or
// is not stopped after all ([QueueKept]). After that, the queue decides again.
func (g *Lifecycle) preempt(e Event, w World) []Effect {
	if g.MayHaveOverwritten() {
		return g.refuseStop(e, w)
	}
	job := e.(Preempt).For
	return append([]Effect{g.log(Info, "preempting", "for", job)}, g.stopFor(stopping{why: Preempted, forJob: job}, g.Record, w)...)
}

// move stops the gang to start it on better GPUs.
func (g *Lifecycle) move(e Event, w World) []Effect {
	if g.MayHaveOverwritten() || g.Have > g.Live { // completed members would run again
		return g.refuseStop(e, w)
	}
	to := e.(Move).To
	return append([]Effect{g.log(Info, "moving", "from_cost", w.Running(g.Request, w.Holds(g.Key)).Cost(), "to_cost", to.Cost())},
		g.stopFor(stopping{why: Moved, target: &to}, g.Record, w)...)
}

// refuseStop answers a preemption, move or resize that is not carried out.
func (g *memory) refuseStop(Event, World) []Effect { return []Effect{QueueKept{}} }

// stopFor begins to stop the gang; r becomes its record. The record is written first, then the gate
// is registered, then the members are stopped, so a placer that crashes in between loses nothing.
func (g *Lifecycle) stopFor(s stopping, r *Record, w World) []Effect {
	s.someDone = g.Have > g.Live
	g.stop = &s
	if r == nil {
		s.recorded = true
		return g.proceed(w)
	}
	changed := r != g.Record
	out := *r
	if len(g.Members) > 0 {
		g.addRunTime(&out, g.WhyStopped(), g.Want, w)
		if strings.HasPrefix(s.forJob, g.Key.Namespace+"/") { // no namespace has a slash
			out.StoppedFor = s.forJob
		}
		changed = true
	}
	if !changed {
		return g.proceed(w)
	}
	// Reserve the GPUs of the new size first, because another gang could take them while the record
	// is written.
	if s.why == Resized {
		return append(g.holdTarget(w), WriteRecord{out})
	}
	return []Effect{WriteRecord{out}}
}

// proceed takes the next step of stopping the gang.
func (g *Lifecycle) proceed(w World) []Effect {
	switch {
	case g.stop.gated:
		return []Effect{g.stopMembers()}
	case rewrite.Gated(g.Job): // by its author
		return append(g.closed(w), g.stopMembers())
	}
	return []Effect{Register{Why: ToStop, Job: rewrite.Gate(g.Job)}}
}

// closed records that the gate is registered. Until the whole gang has stopped, it keeps all its
// GPUs, because the queue waits for all of them together. The gang also keeps the GPUs for its new
// size. For a move, the queue reserves the new GPUs.
func (g *Lifecycle) closed(w World) []Effect {
	g.stop.gated, g.Target = true, g.stop.target
	if g.stop.why == Resized {
		return g.holdTarget(w)
	}
	g.Reserved = w.GPUIDs(w.Holds(g.Key))
	return nil
}

// holdTarget reserves the GPUs of a gang's new size, in addition to the GPUs that the gang has.
func (g *Lifecycle) holdTarget(w World) []Effect {
	g.Reserved = w.GPUIDs(slices.Concat(w.Holds(g.Key), g.stop.target.GPUs()))
	return []Effect{Keep{*g.stop.target}}
}

func (g *Observed) stopMembers() Effect {
	var ids []string
	for _, a := range g.Members {
		ids = append(ids, a.ID)
	}
	return StopMembers{ids}
}

// recordStopRequest records that some or all members were told to stop. Nomad stops these members,
// whatever is registered now.
func (g *Lifecycle) recordStopRequest() {
	if g.stop != nil {
		g.stop.requested = true
	}
}

// cancelStop handles a failed step of stopping the gang. If the gate is not registered yet, the
// gang keeps running: its former record is restored, and the queue learns that the gang is not
// stopped.
func (g *Lifecycle) cancelStop(f Failure) (out []Effect) {
	_, unwritten := f.Of.(WriteRecord)
	s := g.stop
	if s == nil || s.gated {
		return nil
	}
	g.stop, g.Reserved = nil, nil
	gate, _ := f.Of.(Register)
	switch {
	case gate.Why == ToStop && f.Unknown:
		// Nomad may still register the gate. The written record is right whether or not Nomad
		// registers the gate.
	case s.recorded && s.before != nil:
		g.Record = s.before
		out = append(out, SaveRecord{*g.Record})
	case unwritten: // Nomad may have stored the record anyway
		out = append(out, SaveRecord{*g.Record})
	}
	if s.why != Requeued {
		out = append(out, QueueKept{})
	}
	return out
}

// stopOrGoOn continues an interrupted stop, in which the gate is registered and members still run.
// stopOrGoOn keeps a complete gang or a service running, unless this placer is stopping it or has
// given up on it. stopOrGoOn stops an incomplete gang, which cannot work anyway.
func (g *Lifecycle) stopOrGoOn(World) ([]Effect, bool) {
	whole := g.Have >= g.Want || *g.Job.Type == api.JobTypeService
	if g.stop == nil && whole && (g.Record == nil || g.Record.GivenUp.IsZero()) {
		switch {
		case g.MayHaveOverwritten():
			return nothing()
		case !g.read.hasAllocs:
			return await(ReadAllocs{})
		case !g.allRun(g.read.allocs):
			return nothing()
		}
		// A placer crashed after it had gated the job and before it stopped the members. Nothing
		// was lost, so open the gate again.
		return []Effect{g.log(Info, "a placer crashed before it stopped the members: the gang keeps running"), Register{Why: ToGoOn, Job: rewrite.Open(g.Job)}}, false
	}
	return await(g.stopMembers())
}

// dying reports whether stopped allocations of the job still hold resources.
func (g *Observed) dying(w World) bool {
	return slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool { return a.Live() && !a.LeftBehind(g.Job) })
}

// hasStopped records that the whole gang has stopped. The view does not show its GPUs as free yet,
// so another cycle follows.
func (g *Lifecycle) hasStopped(w World) []Effect {
	if g.Nomad != Waiting || g.stop == nil || g.dying(w) {
		return nil
	}
	g.edited = g.edited || g.Queued && (g.stop.someDone || g.stop.why == Requeued) // a requeued gang may now avoid other nodes
	out := []Effect{Again{}}
	if g.Target != nil {
		out = append(out, StartAtTarget{g.stop.why})
	}
	g.stop, g.Reserved = nil, nil
	return out
}
