// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// The functions in this file stop a gang that must make room, move, or be requeued. The placer
// writes the gang's record ([WriteRecord]), registers the job with the gate, tells the members to
// stop, and waits until all members have ended ([Lifecycle.hasStopped]). Until the stop is
// complete, the gang holds all its GPUs (Reserved), even those of members that have ended. The
// queue needs them together.
//
// If a node goes down before the gang has stopped, Nomad reports the members on this node as lost.
// Lost members do not count as dying, so the gang counts as stopped, as if these members had ended.
// The ledger gives the GPUs of a lost node to no job. Another gang has a claim on the GPUs of the
// stopping gang. If the claim includes GPUs of the lost node, the claim lapses when the remaining
// members have ended, and the queue decides again. Until then, the gang that has the claim can start
// on other GPUs. A member is
// left behind if its node is only disconnected from Nomad (status unknown). The placer does not
// wait for a member that is left behind, and no job gets its GPUs until the node is back
// ([cluster.Alloc.LeftBehind]).

// stopping describes why a gang is being stopped, and how far the stop has come.
type stopping struct {
	why StopReason
	// forJob is the job for which the gang makes room. target is the placement in which the gang
	// starts again.
	forJob string
	target *pal.Placement
	// before is the record before the stop. recorded is true once Nomad has the record of the stop,
	// or if there is no record to write. gated is true once Nomad has the gate. requested is true
	// once the placer has told members to stop.
	before                     *Record
	asked                      bool // a person requested the stop: see [Control]
	drained                    bool // a drain stopped members, or their node went down
	recorded, gated, requested bool
	// someDone is true if members had succeeded before the stop. The queue may then know only the
	// members that had not succeeded. When the gang starts again, all its members start.
	someDone bool
}

// StopReason is the reason for which a gang is stopped.
type StopReason string

// The reasons.
const (
	Preempted StopReason = "preempted"
	Moved     StopReason = "moved"
	Requeued  StopReason = "requeued"
	Resized   StopReason = "resized" // by its author
)

// Stopping returns the reason for which the gang is being stopped, and the job that gets its GPUs,
// if known. Stopping returns "" if the gang is not being stopped.
func (g *Lifecycle) Stopping() (why StopReason, forJob string) {
	if g.stop == nil {
		return "", ""
	}
	return g.stop.why, g.stop.forJob
}

// WhyStopped returns the reason for which the gang is being stopped, or no reason if it is not
// being stopped. WhyStopped does not name the job that gets the GPUs, because not everybody may see
// that job.
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
	if g.stop.drained {
		return reason.Reason{Kind: reason.MembersStopped}.Over(g.Trouble())
	}
	return reason.Reason{Kind: reason.NotWhole}.Over(g.Trouble())
}

// preempt stops this gang so that another gang can get its GPUs. The other gang stays in the queue.
// The queue reserves the GPUs for the other gang until this gang has stopped for any reason, or
// keeps running after all ([QueueKept]). After the reservation, the queue decides again.
func (g *Lifecycle) preempt(e Event, w World) []Effect {
	if g.MayHaveOverwritten() {
		return g.refuseStop(e, w)
	}
	job := e.(Preempt).For
	return append([]Effect{g.log(Info, "preempting", "for", job)}, g.stopFor(stopping{why: Preempted, forJob: job}, g.Record, w)...)
}

// move stops the gang and starts it again on better GPUs.
func (g *Lifecycle) move(e Event, w World) []Effect {
	if g.MayHaveOverwritten() || g.Have > g.Live { // completed members would run again
		return g.refuseStop(e, w)
	}
	to := e.(Move).To
	return append([]Effect{g.log(Info, "moving", "from_cost", w.Running(g.Request, w.Holds(g.Key)).Cost(), "to_cost", to.Cost())},
		g.stopFor(stopping{why: Moved, target: &to}, g.Record, w)...)
}

// refuseStop refuses a preemption, move or resize, and tells the queue about the refusal.
func (g *memory) refuseStop(Event, World) []Effect { return []Effect{QueueKept{}} }

// stopFor begins to stop the gang. r becomes the gang's record. The placer first writes the record,
// then registers the gate, and then stops the members. In this order, nothing is lost if the placer
// crashes between two steps.
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
	} else if began, ended := g.endedRun(w); ended.After(began) {
		out.stop(ended, g.WhyStopped(), ended.Sub(began), g.slower(g.Want))
		changed = true
	}
	if !changed {
		return g.proceed(w)
	}
	// Reserve the GPUs for the new size first. Otherwise another gang could take the GPUs while the
	// record is written.
	if s.why == Resized {
		return append(g.holdTarget(w), WriteRecord{out})
	}
	return []Effect{WriteRecord{out}}
}

// proceed takes the next step to stop the gang.
func (g *Lifecycle) proceed(w World) []Effect {
	switch {
	case g.stop.gated:
		return []Effect{g.stopMembers()}
	case rewrite.Gated(g.Job): // by its author
		return append(g.closed(w), g.stopMembers())
	}
	return []Effect{Register{Why: ToStop, Job: rewrite.Gate(g.Job)}}
}

// closed records that Nomad has registered the gate. Until the whole gang has stopped, the gang
// keeps all its GPUs, because the queue needs all these GPUs together. The gang also keeps the GPUs
// for its new size. For a move, the queue reserves the new GPUs.
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

func (g *Observed) stopMembers() Effect { return StopMembers{g.memberIDs()} }

func (g *Observed) memberIDs() (ids []string) {
	for _, a := range g.Members {
		ids = append(ids, a.ID)
	}
	return ids
}

// recordStopRequest records that the placer has told some or all members to stop. Nomad stops these
// members, even if somebody registers the job again.
func (g *Lifecycle) recordStopRequest() {
	if g.stop != nil {
		g.stop.requested = true
	}
}

// cancelStop handles a failed step of stopping or resizing the gang. If the gate is not registered yet, the
// gang keeps running: its former record is restored, and the queue learns that the gang is not
// stopped.
func (g *Lifecycle) cancelStop(f Failure) (out []Effect) {
	_, unwritten := f.Of.(WriteRecord)
	gate, _ := f.Of.(Register)
	if gate.Why == ToSize {
		return []Effect{QueueKept{}}
	}
	s := g.stop
	if s == nil || s.gated {
		return nil
	}
	g.stop, g.Reserved = nil, nil
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

// stopOrGoOn finishes a stop that was interrupted after the gate was registered. It stops an
// incomplete gang, which cannot work. A complete gang or a service goes on, unless this placer is
// stopping it or has given it up.
func (g *Lifecycle) stopOrGoOn(World) ([]Effect, bool) {
	whole := g.Have >= g.Want || *g.Job.Type == api.JobTypeService
	if g.stop == nil && whole && (g.Record == nil || g.Record.GivenUp.IsZero()) {
		if g.MayHaveOverwritten() {
			return nothing()
		}
		// A placer crashed after it had gated the job and before it had told the members to stop.
		// The members still run, so open the gate again.
		return []Effect{g.log(Info, "an agent crashed before it stopped the members: the gang keeps running"), Register{Why: ToGoOn, Job: rewrite.Open(g.Job), While: g.memberIDs()}}, false
	}
	return await(g.stopMembers())
}

// dying reports whether the job has allocations that still hold resources, except members that are
// left behind.
func (g *Observed) dying(w World) bool {
	return slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool { return a.Live() && !a.LeftBehind(g.Job) })
}

// hasStopped ends the stop once all members have ended. Another cycle must then follow, because the
// view does not show the gang's GPUs as free yet.
func (g *Lifecycle) hasStopped(w World) []Effect {
	if g.Nomad != palapi.Waiting || g.stop == nil || g.dying(w) {
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
