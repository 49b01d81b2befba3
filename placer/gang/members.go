// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// NeedsAll reports whether the members need each other: those of a batch job, unless its author
// says otherwise, and those of a service if he says so.
func (st Observed) NeedsAll() bool {
	h, err := rewrite.ParseHints(st.Job)
	if *st.Job.Type == api.JobTypeService {
		return err == nil && h.OnFailure == rewrite.ReplaceGang
	}
	return err != nil || h.OnFailure != rewrite.ReplaceMember
}

// runsInPart says what becomes of the missing members where those run on that are there, which do
// not need them, and nothing can be done; "" where that is not so. Other GPUs in the pins of a
// service would restart all of it, and other nodes in those of a batch job run its finished
// members again. How often Nomad tries a member that fails, its reschedule block says. Pins to GPUs
// that never held all of it do not do.
func (g *Lifecycle) runsInPart(blocked *api.Evaluation) reason.Kind {
	rest := reason.OthersRun
	if g.Live == 0 {
		rest = reason.OthersDone
	}
	switch service := *g.Job.Type == api.JobTypeService; {
	case g.NeedsAll() || g.Have == 0:
	case !service && blocked == nil:
		return rest
	case !service && g.someOver(blocked):
		return reason.OnlyItsNodes
	case !service || g.Pins.Mode == rewrite.ModeClass:
	case blocked != nil && g.Pins.Mode == rewrite.ModeGPU:
		if g.Record != nil && !g.Record.Ready.IsZero() {
			return reason.OnlyItsGPUs
		}
	default:
		return rest
	}
	return ""
}

// someOver reports whether members of a batch job have done their work for the job as it is, or have
// failed and are not tried again. Nomad runs them again when it is registered anew, whatever room
// and limits there are (walk 693 with late writes). It goes by allocations that have just been read;
// what has failed and waits for room the blocked evaluation counts, nil for none.
func (g *Lifecycle) someOver(blocked *api.Evaluation) bool {
	if slices.ContainsFunc(g.read.allocs, func(a *cluster.Alloc) bool { return a.FinishedIn(g.Job) }) {
		return true
	}
	return blocked != nil && *g.Job.Type == api.JobTypeBatch && g.Want-g.Have > g.lackRoom(blocked)
}

// lackRoom is how many members with GPUs a blocked evaluation waits for room for.
func (g *Lifecycle) lackRoom(blocked *api.Evaluation) (n int) {
	for group, m := range blocked.FailedTGAllocs {
		if tg := g.Job.LookupTaskGroup(group); tg != nil && rewrite.GPUsPerMember(tg) > 0 {
			n += 1 + m.CoalescedFailures
		}
	}
	return n
}

// halfThere reports whether members of a gang are gone that its others need, and for which there
// is no room. Those that its author has added since (nomad job scale) it had not yet.
func (g *Lifecycle) halfThere(w World) bool {
	return g.NeedsAll() && g.Record != nil && len(w.Holds(g.Key)) < g.Record.Decision.Demand
}

// extend adds nodes to pins to a class for the members that are missing. Only a group constraint
// changes, so that those that run are left alone, unless the new members need a higher class
// ceiling.
func (g *Lifecycle) extend(w World) ([]Effect, bool) {
	room, err := w.RoomForMissing(g)
	if err != nil {
		return g.wrong(err, w), false
	}
	member := g.Request.Hints.OnFailure == rewrite.ReplaceMember
	switch {
	case !room.Fits:
		g.Trouble = reason.Reason{Kind: reason.NoRoomMissing}.Over(room.Reason)
		return nil, false
	case member && room.Pins.Ceiling != g.Pins.Ceiling:
		g.Trouble = reason.Reason{Kind: reason.OnlyItsClass, Class: g.Pins.Ceiling}
		return nil, false
	case member && !slices.Equal(room.Pins.GPUs(), g.Pins.GPUs()):
		g.Trouble = reason.Reason{Kind: reason.OnlyItsGPUs}
		return nil, false
	}
	g.read.room = room
	return g.repin(ToExtend, room.Pins, w)
}

// placeLeftOut has Nomad evaluate a job of which it has stopped members of groups without GPUs,
// unless an evaluation waits for room for them. Those with GPUs, which have theirs, run on meanwhile.
func (g *Lifecycle) placeLeftOut(w World) ([]Effect, bool) {
	if !g.LeftOutBeside || w.Now().Sub(g.evaluatedAt) < evaluateAgain {
		return nothing()
	}
	if !g.read.hasEvaluations {
		return await(ReadEvaluations{Limited: true})
	}
	if e, settled := Blocked(g.Job, g.read.evaluations); e != nil || !settled {
		g.evaluatedAt = w.Now() // look again later
		return nothing()
	}
	return []Effect{g.log(Info, "a member of a group without GPUs was stopped, having it placed again"), Evaluate{}}, false
}
