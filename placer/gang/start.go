// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// How a gang starts. A gang starts in two steps: the queue decides to start it ([Start]), and the
// placer registers the job with the pins ([Commit]). The registration can succeed, be refused, or
// have an unknown outcome.
//
// After a server error (500) or a lost answer, Nomad may have stored the job anyway. Package placer
// then reads the job from Nomad to find out the outcome. If the outcome is still unknown after this,
// the gang is requeued and tried again later (notStarted). An answer below 500 is a refusal. An
// error about the job's index is a conflict: somebody else has changed the job.
// While Nomad may still store the job, package model reserves the GPUs of the start. If the start
// succeeds late, the job's pins show it (cameAbout).

// commit registers the job with the pins. After a failure, or if the job requests something that
// only Nomad can check, commit first asks Nomad for a dry run.
func (g *memory) commit(e Event, w World) []Effect {
	if g.finishUnknown(w) {
		return g.refuseStart(e, w)
	}
	return []Effect{Commit{Start: e.(Start), DryRun: !g.Request.Modelled || g.Tries > 0}}
}

// started records that the registered job has the pins.
func (g *Lifecycle) started(o Observed, s Start, w World) []Effect {
	g.record(s, *o.Job.JobModifyIndex)
	g.verifyLater(o.Job)
	g.lineage = g.lineage.rewrote(g.Job, o.Job)
	g.Observed, g.Since = o, w.Now()
	g.Placed = g.Queued
	g.stop = nil
	g.Target = nil
	if s.Pins.Mode != rewrite.ModeGPU {
		g.Reserved = w.GPUIDs(s.Placement.GPUs())
	}
	c := s.Record.Decision.Chosen
	return []Effect{
		Own{s.Pins.GPUs()}, QueueStarted{s.Placement}, Placed{*g.Record},
		g.log(Info, "placed", "gpus", len(s.Placement.GPUs()), "nodes", c.Nodes, "app_class", g.Request.Gang.Class, "pm_score", c.PMScore, "cost", c.Cost),
	}
}

// notStarted handles a start that failed or whose outcome is unknown. If the outcome is unknown, Nomad
// may have accepted the start, and then a later observation shows the start's pins.
func (g *memory) notStarted(s Start, f Failure, w World) []Effect {
	out := []Effect{Release{g.Request.Gang, s.Placement}, g.requeue()}
	if f.Conflict {
		return append(out, g.log(Debug, "the job changed while it was being registered; reading it again"))
	}
	g.fail(w.Now(), reasonOf(f.Err))
	refused := (*DryRunRefusal)(nil)
	if errors.As(f.Err, &refused) {
		g.retryRefused(refused, w)
	}
	g.stumbled = fmt.Sprintf("%T", Commit{})
	return append(out, g.log(Warn, "could not place", "error", f.Err, "retry_in", g.RetryAt.Sub(w.Now())))
}

// requeue tells the queue that a start, or the start after a move, failed.
func (g *memory) requeue() Effect {
	if g.Placed {
		g.Placed = false
		return QueueStopped{}
	}
	return QueueRequeued{}
}

// refuseStart refuses a start because the gang cannot start in its present state. refuseStart frees
// the GPUs of the start, and tells the queue that the start failed.
func (g *memory) refuseStart(e Event, _ World) []Effect {
	return []Effect{Release{g.Request.Gang, e.(Start).Placement}, g.requeue()}
}

// cameAbout records a start that succeeded although Nomad did not answer the registration. The
// start succeeded if the job now has the pins of the start. If several unanswered starts chose the
// same GPUs, cameAbout assumes that the first one succeeded. ours is true if any placer's start
// changed the job.
func (g *memory) cameAbout(o Observation, b Book) (out []Effect, ours bool) {
	if g.Job == nil || o.Recreated || o.Nomad != palapi.Starting && o.Nomad != palapi.Running {
		return nil, false
	}
	all := b.Unanswered(g.Job)
	i := slices.IndexFunc(all, func(s Start) bool {
		return slices.Equal(s.Pins.GPUs(), o.Pins.GPUs()) && slices.Equal(s.Pins.Nodes(), o.Pins.Nodes())
	})
	if i < 0 { // if a start of this placer is unanswered, another placer's start came first
		return nil, len(all) > 0
	}
	s := all[i]
	g.record(s, *o.Job.JobModifyIndex)
	g.Tries = 0
	g.RetryAt = time.Time{}
	g.trouble = nil
	g.stumbled = ""
	return []Effect{Own{s.Pins.GPUs()}, Placed{s.Record}, g.log(Info, "the gang was placed, although Nomad did not confirm the start")}, true
}

// record stores the record of a successful start in the gang. The placer writes the record to Nomad
// when it sees the members with their GPUs.
func (g *known) record(s Start, index uint64) {
	s.Record.JobModifyIndex = index
	g.Record, g.Unsaved = &s.Record, true
}

// DryRunRefusal is the error that says why Nomad's scheduler would refuse a start.
type DryRunRefusal struct {
	Why reason.Reason
	// Unfit lists nodes that the placer considered fit, but on which Nomad cannot place even one
	// member. Unfit is empty if these nodes are unknown.
	Unfit []string
	// Never lists the reasons why no node can take the groups, according to a dry run without the
	// placer's pins. Never is empty if the gang may only have to wait.
	Never []palapi.Obstacle
}

func (r *DryRunRefusal) Error() string { return r.Why.String() }

// refusedAgain is the maximum wait before the placer retries a start that Nomad's dry run refused.
// The placer must retry after a time, because no event reports that a port or a volume has become
// free.
const refusedAgain = 30 * time.Second

// retryRefused retries a gang whose start the dry run refused. If the refusal names nodes to avoid,
// retryRefused retries almost at once.
func (g *memory) retryRefused(r *DryRunRefusal, w World) {
	if len(r.Never) > 0 {
		until := w.Now().Add(neverAgain)
		g.Never, g.RetryAt = &Never{r.Never, *g.Job.JobModifyIndex, w.NodeChanges(), until}, until
		g.SetTrouble(request.NeverPlaced(r.Never))
		return
	}
	if len(r.Unfit) == 0 {
		again := w.Now().Add(refusedAgain)
		if g.RetryAt.After(again) {
			g.RetryAt = again
		}
		return
	}
	g.Request, g.Refused = w.Request(g.Observed)
	g.edited = g.Queued
	g.Tries = 1
	g.RetryAt = w.Now().Add(time.Second)
}

// Never is the reason why no node can take a gang, according to Nomad.
type Never struct {
	Obstacles []palapi.Obstacle
	index     uint64 // JobModifyIndex of the job
	nodes     uint64 // [World.NodeChanges]
	until     time.Time
}

// neverAgain is how long the placer waits before it asks Nomad again about a gang that no node can
// take. If a node changes, the placer asks sooner. The placer must ask again after a time, because
// no event reports that a volume was created.
const neverAgain = 5 * time.Minute

// couldNever reports whether the placer knows that no node can take the gang. If the reason may
// have changed, couldNever clears Never, and the placer tries the gang at once.
func (g *memory) couldNever(w World) bool {
	n := g.Never
	switch {
	case n == nil:
		return false
	case n.index == *g.Job.JobModifyIndex && n.nodes == w.NodeChanges() && w.Now().Before(n.until):
		return true
	}
	g.Never = nil
	g.RetryAt = time.Time{}
	g.trouble = nil
	return false
}
