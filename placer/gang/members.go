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

// NeedsAll reports whether the members of the job need each other. Members of a batch job need each
// other unless its pal_on_failure is "member". Members of a service need each other only if its
// pal_on_failure is "gang".
func (st Observed) NeedsAll() bool {
	h, err := rewrite.ParseHints(st.Job)
	if *st.Job.Type == api.JobTypeService {
		return err == nil && h.OnFailure == rewrite.ReplaceGang
	}
	return err != nil || h.OnFailure != rewrite.ReplaceMember
}

// runsInPart explains why the missing members do not start, if the other members keep running and
// the placer can do nothing. In all other cases, runsInPart returns "". runsInPart returns a reason
// only if the members do not need each other. New GPUs in the pins would restart the whole service,
// and new nodes in the pins would rerun the finished members of a batch job. The reschedule block
// decides how often Nomad retries a failed member. runsInPart returns "" for a service whose GPU
// pins never held the whole gang, because the placer can requeue such a service.
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

// someOver reports whether some members of a batch job are over. Members are over if they have
// succeeded in the present version, or have failed without a retry. If the placer registered the
// job again, Nomad would rerun these members, even without room, and even if the reschedule limits
// forbid a retry (seen in random walk 693 with late writes). someOver reads the current
// allocations. The blocked evaluation, if there is one, counts failed members that wait for room.
func (g *Lifecycle) someOver(blocked *api.Evaluation) bool {
	if slices.ContainsFunc(g.read.allocs, func(a *cluster.Alloc) bool { return a.FinishedIn(g.Job) }) {
		return true
	}
	return blocked != nil && *g.Job.Type == api.JobTypeBatch && g.Want-g.Have > g.lackRoom(blocked)
}

// lackRoom returns the number of members with GPUs for which a blocked evaluation found no room.
func (g *Observed) lackRoom(blocked *api.Evaluation) (n int) {
	for group, m := range blocked.FailedTGAllocs {
		if tg := g.Job.LookupTaskGroup(group); tg != nil && rewrite.GPUsPerMember(tg) > 0 {
			n += 1 + m.CoalescedFailures
		}
	}
	return n
}

// halfThere reports whether the gang has lost members that its other members need, and there is no
// room for the lost members. Members that the author has just added (nomad job scale) do not count
// as lost.
func (g *known) halfThere(w World) bool {
	return g.NeedsAll() && g.Record != nil && len(w.Holds(g.Key)) < g.Record.Decision.Demand
}

// extend adds nodes for the missing members to pins that name a variability class. Only a
// constraint of the group changes, so Nomad leaves running members alone, unless the new members
// need a slower class.
func (g *Lifecycle) extend(w World) ([]Effect, bool) {
	room, err := w.RoomForMissing(g)
	if err != nil {
		return g.wrong(err, w), false
	}
	member := g.Request.Hints.OnFailure == rewrite.ReplaceMember
	switch {
	case !room.Fits:
		g.SetTrouble(reason.Reason{Kind: reason.NoRoomMissing}.Over(room.Reason))
		return nil, false
	case member && room.Pins.Ceiling != g.Pins.Ceiling:
		g.SetTrouble(reason.Reason{Kind: reason.OnlyItsClass, Class: g.Pins.Ceiling})
		return nil, false
	case member && !slices.Equal(room.Pins.GPUs(), g.Pins.GPUs()):
		g.SetTrouble(reason.Reason{Kind: reason.OnlyItsGPUs})
		return nil, false
	}
	g.read.room = &room
	return g.repin(ToExtend, room.Pins, w)
}

// placeLeftOut asks Nomad to evaluate a job again if Nomad stopped members of groups without GPUs.
// placeLeftOut does nothing if a blocked evaluation already waits for room for these members.
// Members with GPUs keep running.
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
	return []Effect{g.log(Info, "a member of a group without GPUs was stopped; asking Nomad to place it again"), Evaluate{}}, false
}
