// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// After a gang has run for ownForgottenAfter, its earlier failures no longer count. Nomad's default
// reschedule block for batch jobs uses the same time of 24 hours.
const ownForgottenAfter = 24 * time.Hour

// ranFor reports whether the gang had run for at least d by the given time. The run time counts
// from the decision to start the gang. The field Ready cannot be used, because each resize and edit
// resets it.
func (g *known) ranFor(d time.Duration, until time.Time) bool {
	r := g.Record
	return (!r.Ready.IsZero() || g.Request.Elastic != nil) && !r.Decided.IsZero() && until.Sub(r.Decided) >= d
}

// giveUp records that the placer stops trying to run the current version of the job, and why.
func (g *Observed) giveUp(r *Record, why reason.Reason) {
	r.GivenUp, r.JobModifyIndex = why, *g.Job.JobModifyIndex
}

// GaveUp returns the reason why the placer stopped trying to run the gang, or no reason if the
// placer still tries. The placer tries the gang again in three cases. First, the author registers
// the job without pins, as a new job ([Lifecycle.findPosition]). Second, the author edits the job
// while it is gated, or stops and starts the job ([memory.startOver]). Third, the author registers
// another version, which Nomad runs at once ([known.forgive]).
func (g *known) GaveUp() reason.Reason {
	if (g.Nomad == Waiting || g.Nomad == Lost) && g.Record != nil && len(g.Pins.Groups) > 0 {
		return g.Record.GivenUp
	}
	return reason.Reason{}
}

// forgive drops the decision to give up if the author runs another version of the job, for example
// by reverting to a version with pins or by scaling the job. The new version can fail before the
// placer sees it running.
func (g *known) forgive() {
	r := g.Record
	ran := g.Nomad == Starting || g.Nomad == Running || g.Nomad == Lost
	if r == nil || r.GivenUp.IsZero() || !ran || r.JobModifyIndex == *g.Job.JobModifyIndex {
		return
	}
	own := *r
	own.GivenUp, own.UserFailures, own.Outage = reason.Reason{}, 0, Outage{}
	g.Record = &own
}

// ownFailure returns the failure that the gang itself caused and that keeps it from running, or nil
// if there is none.
func (g *known) ownFailure(w World) *failure.Failure {
	if f := w.LastFailure(g.Job); f != nil && f.Cause == failure.User && g.Record != nil {
		return f
	}
	return nil
}

// countFailure returns the record, in which it has counted the failure that keeps the gang from
// running, at most one for each start. After too many failures the placer gives up. Nodes that go
// down do not count, because other nodes are as good.
func (g *memory) countFailure(w World) (*Record, []Effect) {
	f := w.LastFailure(g.Job)
	if f == nil || f.Cause == failure.Unknown || f.Reason == failure.NodeDown || g.Record == nil || g.Record.CountedFor == *g.Job.JobModifyIndex {
		return g.Record, nil
	}
	r := *g.Record
	r.CountedFor = *g.Job.JobModifyIndex
	if f.Cause == failure.Infrastructure {
		said := g.countOutage(&r, f, w)
		return &r, said
	}
	if g.ranFor(ownForgottenAfter, f.At) {
		r.UserFailures = 0
	}
	r.UserFailures++
	if r.UserFailures <= retries(g.Job, w.Retries()) {
		return &r, nil
	}
	g.giveUp(&r, reason.Reason{Kind: reason.GaveUp, Tries: r.UserFailures, Cause: f.Reason})
	return &r, []Effect{g.log(Warn, "giving up", "reason", r.GivenUp)}
}

// retries returns how often the placer tries the gang on other GPUs after failures that the gang
// itself caused.
func retries(job *api.Job, most int) int {
	h, err := rewrite.ParseHints(job)
	if err != nil || h.OnFailure == rewrite.ReplaceNothing {
		return 0
	}
	return most
}
