// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// makeCanaryRoom adds nodes to the pins of a service whose canaries do not fit on the pinned nodes
// together with the running version. The new version has no members yet, so wider pins affect no
// running member. makeCanaryRoom acts only once a blocked evaluation shows that the canaries do not
// fit.
func (g *Lifecycle) makeCanaryRoom(w World) ([]Effect, bool) {
	now, index := w.Now(), *g.Job.JobModifyIndex
	if g.Pins.Mode == rewrite.ModePrefer || g.canariesDone == index || !WantsCanaries(g.Observed) {
		return nothing()
	}
	if g.canariesLack != index {
		if g.Age(now) < w.ReadyTimeout() {
			return nothing()
		}
		if !g.read.hasEvaluations {
			return await(ReadEvaluations{})
		}
		blocked, settled := Blocked(g.Job, g.read.evaluations)
		if !settled {
			return nothing()
		}
		if blocked == nil {
			g.canariesDone = index
			return nothing()
		}
		g.canariesLack = index
	}
	room, err := w.RoomForCanaries(g)
	switch {
	case err != nil:
		return g.wrong(err, w), false
	case room.Gang.GPUs() == 0:
		return nothing()
	case !room.Fits:
		g.SetTrouble(reason.Reason{Kind: reason.NoRoomCanaries}.Over(room.Reason))
		return nothing()
	}
	es, _ := g.repin(ToCanary, room.Pins, w)
	g.fail(now, reason.Reason{})
	return append([]Effect{g.log(Info, "making room for canaries", "gpus", room.Gang.GPUs()), Take{room.Gang, room.Placement}}, es...), false
}

// WantsCanaries reports whether the job is a service that updates with canaries and whose present
// version has no member yet.
func WantsCanaries(st Observed) bool {
	return HasCanaries(st.Job) && !slices.ContainsFunc(st.Members, func(a *cluster.Alloc) bool { return a.PlacedFor(st.Job) })
}

// HasCanaries reports whether the job is a service that updates with canaries.
func HasCanaries(job *api.Job) bool {
	return *job.Type == api.JobTypeService && slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return request.CanariesOf(g) > 0 })
}
