// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// How a gang starts. The queue decides ([Start]), and the job is registered with its pins
// ([Commit]). The registration succeeds, is refused, or its outcome is unknown.
//
// If Nomad answers with an error (for example 500), it may have written the job anyway. Package
// placer then looks the job up. If the outcome is still unknown then, the gang is requeued and
// tried again later (notStarted). As long as Nomad may still write the job, package model reserves
// the start's GPUs. A start that succeeded late shows in the job's pins (cameAbout).

// commit registers the job with its pins. commit first asks Nomad for a dry run if the job requests
// something that only Nomad can check, or after a failure.
func (g *memory) commit(e Event, w World) []Effect {
	if g.finishUnknown(w) {
		return g.refuseStart(e, w)
	}
	return []Effect{Commit{Start: e.(Start), DryRun: !g.Request.Modelled || g.Tries > 0}}
}

// started records that the job has its pins.
func (g *Lifecycle) started(o Observed, s Start, w World) []Effect {
	g.record(s, *o.Job.JobModifyIndex)
	g.verifyLater(o.Job)
	g.lineage = g.lineage.rewrote(g.Job, o.Job)
	g.Observed, g.Since = o, w.Now()
	g.Placed, g.stop, g.Target = g.Queued, nil, nil
	if s.Pins.Mode != rewrite.ModeGPU {
		g.Reserved = w.GPUIDs(s.Placement.GPUs())
	}
	c := s.Record.Decision.Chosen
	return []Effect{
		Own{s.Pins.GPUs()}, QueueStarted{s.Placement}, Placed{*g.Record},
		g.log(Info, "placed", "gpus", len(s.Placement.GPUs()), "nodes", c.Nodes, "app_class", g.Request.Gang.Class, "pm_score", c.PMScore, "cost", c.Cost),
	}
}

// notStarted records that the job did not get its pins. If the outcome is unknown, Nomad may have
// accepted the start, and then a later observation shows the start's pins.
func (g *memory) notStarted(s Start, err error, w World) []Effect {
	out := []Effect{Release{g.Request.Gang, s.Placement}, g.requeue()}
	if errors.Is(err, nomad.ErrConflict) {
		return append(out, g.log(Debug, "the job changed while it was being registered, reading it again"))
	}
	g.fail(w.Now(), reasonOf(err))
	if refused := (*DryRunRefusal)(nil); errors.As(err, &refused) {
		g.retryRefused(refused, w)
	}
	g.stumbled = fmt.Sprintf("%T", Commit{})
	return append(out, g.log(Warn, "could not place", "error", err, "retry_in", g.RetryAt.Sub(w.Now())))
}

// requeue tells the queue that a start, or the start after a move, failed.
func (g *memory) requeue() Effect {
	if g.Placed {
		g.Placed = false
		return QueueStopped{}
	}
	return QueueRequeued{}
}

// refuseStart answers a start in a state in which the gang cannot start: it frees the start's GPUs,
// and tells the queue that the start failed.
func (g *memory) refuseStart(e Event, _ World) []Effect {
	return []Effect{Release{g.Request.Gang, e.(Start).Placement}, g.requeue()}
}

// cameAbout records a start that succeeded although its registration was not answered. The start
// succeeded if the job now has its pins. If two decisions chose the same GPUs, which is rare, it
// does not matter which start succeeded. ours reports whether a start by a placer changed the job.
func (g *memory) cameAbout(o Observation, b Book) (out []Effect, ours bool) {
	if g.Job == nil || o.BroughtBack || o.Nomad != Starting && o.Nomad != Running {
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
	g.Tries, g.RetryAt, g.trouble, g.stumbled = 0, time.Time{}, nil, ""
	return []Effect{Own{s.Pins.GPUs()}, Placed{s.Record}, g.log(Info, "the gang was placed, although Nomad did not confirm the start")}, true
}

// record makes the reasons of a successful start the gang's record. The placer writes the record
// when it sees the members with their GPUs.
func (g *known) record(s Start, index uint64) {
	s.Record.JobModifyIndex = index
	g.Record, g.Unsaved = &s.Record, true
}

// DryRunRefusal is why Nomad's scheduler would refuse a start.
type DryRunRefusal struct {
	Why reason.Reason
	// Unfit are the names of nodes that Nomad finds unfit even for one member, and that the
	// placer counted as fit; empty if unknown.
	Unfit []string
	// Never lists why no node can take the groups, according to a dry run without our pins; empty
	// if the gang may only have to wait.
	Never []request.Obstacle
}

func (r *DryRunRefusal) Error() string { return r.Why.String() }

// refusedAgain is the maximum wait before the placer retries a start that Nomad's dry run refused.
// No event reports that a port or a volume has become free.
const refusedAgain = 30 * time.Second

// retryRefused retries a gang whose start the dry run refused, and does so almost at once if the
// refusal names nodes to avoid.
func (g *memory) retryRefused(r *DryRunRefusal, w World) {
	if len(r.Never) > 0 {
		until := w.Now().Add(neverAgain)
		g.Never, g.RetryAt = &Never{r.Never, *g.Job.JobModifyIndex, w.NodeChanges(), until}, until
		g.SetTrouble(request.NeverPlaced(r.Never))
		return
	}
	if len(r.Unfit) == 0 {
		if again := w.Now().Add(refusedAgain); g.RetryAt.After(again) {
			g.RetryAt = again
		}
		return
	}
	g.Request, g.Refused = w.Request(g.Observed)
	g.edited, g.Tries, g.RetryAt = g.Queued, 1, w.Now().Add(time.Second)
}

// Never is why no node can take a gang, according to Nomad.
type Never struct {
	Obstacles []request.Obstacle
	index     uint64 // JobModifyIndex of the job
	nodes     uint64 // [World.NodeChanges]
	until     time.Time
}

// neverAgain is how long the placer waits before it asks Nomad again about a gang that no node can
// take, if no node has changed. No event reports that a volume was created.
const neverAgain = 5 * time.Minute

// couldNever reports whether no node can take the gang, as far as is known. If the reason may have
// changed, couldNever clears Never, and the gang is tried at once.
func (g *memory) couldNever(w World) bool {
	switch n := g.Never; {
	case n == nil:
		return false
	case n.index == *g.Job.JobModifyIndex && n.nodes == w.NodeChanges() && w.Now().Before(n.until):
		return true
	}
	g.Never, g.RetryAt, g.trouble = nil, time.Time{}, nil
	return false
}
