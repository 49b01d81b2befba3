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

// NeedsAll reports whether the members of the job need each other: see [rewrite.Hints.Independent].
// If the hints are invalid, the members of a batch job count as a gang, and those of a service do
// not.
func (st Observed) NeedsAll() bool {
	h, err := rewrite.ParseHints(st.Job)
	if err != nil {
		return *st.Job.Type != api.JobTypeService
	}
	return !h.Independent(st.Job)
}

// HasCanaries reports whether the job is a service that updates with canaries.
func HasCanaries(job *api.Job) bool {
	return *job.Type == api.JobTypeService && slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool {
		return g.Update != nil && cluster.ValueOf(g.Update.Canary) > 0 && rewrite.Members(g) > 0
	})
}

// leftToNomad explains why the placer does nothing for missing members of a started job whose
// members do not need each other. In all other cases, leftToNomad returns "". The pins of such a job
// keep Nomad from nothing, and the reschedule block decides how often Nomad retries a failed member.
// A batch job of which no member runs or has succeeded is requeued.
func (g *Observed) leftToNomad() reason.Kind {
	service := *g.Job.Type == api.JobTypeService
	switch {
	case g.NeedsAll(), !service && g.Have == 0:
		return ""
	case g.Live > 0:
		return reason.OthersRun
	case service:
		return reason.NomadPlaces
	}
	return reason.OthersDone
}

// lacksOnlyAdded reports whether all missing members of the gang are members that its author has
// added to the running gang (nomad job scale).
func (g *known) lacksOnlyAdded() bool {
	return g.Record != nil && g.Record.Decision.Demand > 0 && g.Holds() >= g.Record.Decision.Demand
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
	e, settled := Blocked(g.Job, g.read.evaluations)
	if e != nil || !settled {
		g.evaluatedAt = w.Now() // look again later
		return nothing()
	}
	return []Effect{g.log(Info, "a member of a group without GPUs was stopped; asking Nomad to place it again"), Evaluate{}}, false
}
