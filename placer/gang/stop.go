// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// How a gang is stopped, for another one, or to go elsewhere: its record is written ([WriteRecord]),
// then its gate is registered, then its members are told to stop, then all of them end
// ([Lifecycle.hasStopped]). Until then it holds all its GPUs (Held), those of the members that
// have ended included: the queue waits for them together.
//
// If a node goes down meanwhile, Nomad says that the members there are lost, and they are dying no
// longer, so the gang has stopped as if they had ended. The ledger gives nobody the GPUs of a node
// that is away. So the claim of the gang that was to have them lapses, and the queue decides on it
// anew. What still runs on a node that has only lost touch with Nomad is live, and is waited for.

// stopping is why and how far a gang is being stopped.
type stopping struct {
	why Reason
	// forJob is the job that it makes room for, target where it goes.
	forJob string
	target *pal.Placement
	// before is the record as it was, recorded that the stop is written down, gated that the gate
	// is on, and told that members were told to stop.
	before                *Record
	asked                 bool // by somebody: see [Control]
	recorded, gated, told bool
	// someDone: members had done their work, and the queue may know of the others only. All start again.
	someDone bool
}

// Reason is why a gang is stopped.
type Reason string

// The reasons.
const (
	Preempted Reason = "preempted"
	Moved     Reason = "moved"
	Requeued  Reason = "requeued"
	Resized   Reason = "resized" // by its author
)

// Stopping says why the gang is being stopped, and for which job, if that is known;
// "" if it is not being stopped.
func (g *Lifecycle) Stopping() (why Reason, forJob string) {
	if g.stop == nil {
		return "", ""
	}
	return g.stop.why, g.stop.forJob
}

// WhyStopped is why the gang is being stopped; none if it is not. For whom it makes room is not
// everybody's to know.
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
	return reason.Reason{Kind: reason.NotWhole}.Over(g.Trouble)
}

// preempt stops the gang for another one. That one stays in the queue, which keeps the GPUs for
// it, until the queue hears that this one has stopped, whatever becomes of it meanwhile, or
// that it is not stopped ([QueueKept]): then it decides anew.
func (g *Lifecycle) preempt(e Event, w World) []Effect {
	if g.MayHaveOverwritten() {
		return g.keep(e, w)
	}
	job := e.(Preempt).For
	return append([]Effect{g.log(Info, "preempting", "for", job)}, g.stopFor(stopping{why: Preempted, forJob: job}, g.Record, w)...)
}

// move stops the gang, to start it on better GPUs.
func (g *Lifecycle) move(e Event, w World) []Effect {
	if g.MayHaveOverwritten() || g.Have > g.Live { // those that have done their work would do it again
		return g.keep(e, w)
	}
	to := e.(Move).To
	return append([]Effect{g.log(Info, "moving", "from_cost", w.Running(g.Request, w.Holds(g.Key)).Cost(), "to_cost", to.Cost())},
		g.stopFor(stopping{why: Moved, target: &to}, g.Record, w)...)
}

// keep answers a preemption or a move of a gang that is not stopped now.
func (g *Lifecycle) keep(Event, World) []Effect { return []Effect{QueueKept{}} }

// stopFor begins to stop the gang, whose record is then r: it is written down, then
// comes the gate, so that a placer that dies in between loses nothing, then the
// members are stopped.
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
	if s.why == Resized { // another gang could start there while the record is written
		return append(g.holdTarget(w), WriteRecord{out})
	}
	return []Effect{WriteRecord{out}}
}

// proceed is the next step of stopping the gang.
func (g *Lifecycle) proceed(w World) []Effect {
	switch {
	case g.stop.gated:
		return []Effect{g.stopMembers()}
	case rewrite.Gated(g.Job): // by its author
		return append(g.closed(w), g.stopMembers())
	}
	return []Effect{Register{Why: ToStop, Job: rewrite.Gate(g.Job)}}
}

// closed takes in that the gate is on. Until all of the gang has stopped, all its GPUs are
// its own: the queue waits for them together. So are those that its new size gets; those
// of a move the queue keeps.
func (g *Lifecycle) closed(w World) []Effect {
	g.stop.gated, g.Target = true, g.stop.target
	if g.stop.why == Resized {
		return g.holdTarget(w)
	}
	g.Held = w.GPUIDs(w.Holds(g.Key))
	return nil
}

// holdTarget keeps the GPUs of a gang's new size for it, beside those that it has.
func (g *Lifecycle) holdTarget(w World) []Effect {
	g.Held = w.GPUIDs(slices.Concat(w.Holds(g.Key), g.stop.target.GPUs()))
	return []Effect{Keep{*g.stop.target}}
}

func (g *Lifecycle) stopMembers() Effect {
	var ids []string
	for _, a := range g.Members {
		ids = append(ids, a.ID)
	}
	return StopMembers{ids}
}

// told takes in that members were told to stop, or some of them: Nomad stops them, whatever is
// registered now.
func (g *Lifecycle) told() {
	if g.stop != nil {
		g.stop.told = true
	}
}

// cancelStop takes in that a step of stopping the gang did not come about: before the gate is on,
// it runs on, as its record and the queue are told.
func (g *Lifecycle) cancelStop(step Effect, err error) (out []Effect) {
	_, unwritten := step.(WriteRecord)
	s := g.stop
	if s == nil || s.gated {
		return nil
	}
	g.stop, g.Held = nil, nil
	gate, _ := step.(Register)
	switch {
	case gate.Why == ToStop && errors.Is(err, nomad.ErrUnknownOutcome):
		// The gate may yet come. What is written down of the stop holds whether it does or not.
	case s.recorded && s.before != nil:
		g.Record = s.before
		out = append(out, SaveRecord{*g.Record})
	case unwritten: // it may be in Nomad all the same
		out = append(out, SaveRecord{*g.Record})
	}
	if s.why != Requeued {
		out = append(out, QueueKept{})
	}
	return out
}

// stopOrGoOn goes on with what a preemption or a repair began: the gate is on, the
// members still run. A gang that was not whole did not go on before either: it is stopped. Of a
// service the other members keep running.
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
		// A placer died between gate and stop. Nothing was lost: open again.
		return []Effect{g.log(Info, "a placer died before it stopped the members: the gang runs on"), Register{Why: ToGoOn, Job: rewrite.Open(g.Job)}}, false
	}
	return await(g.stopMembers())
}

// dying reports whether allocations of the job still hold resources.
func (g *Lifecycle) dying(w World) bool {
	return slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool { return a.Live() && !a.LeftBehind(g.Job) })
}

// hasStopped takes in that all of a gang that was being stopped has stopped. The
// view does not know yet that its GPUs are free.
func (g *Lifecycle) hasStopped(w World) []Effect {
	if g.Nomad != Waiting || g.stop == nil || g.dying(w) {
		return nil
	}
	g.edited = g.edited || g.Queued && (g.stop.someDone || g.stop.why == Requeued) // or it wants other nodes now than those that failed it
	out := []Effect{Again{}}
	if g.Target != nil {
		out = append(out, StartAtTarget{g.stop.why})
	}
	g.stop, g.Held = nil, nil
	return out
}
