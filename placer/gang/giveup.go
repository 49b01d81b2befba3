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

const (
	// maxInfraFailures bounds how often the infrastructure may fail a gang before it is
	// given up; how often it did is forgotten once the gang has run for steadyAfter.
	maxInfraFailures = 5
	steadyAfter      = time.Hour
	// ownForgottenAfter is how long a gang has to run for its own failures to be forgotten, as
	// a batch job's are in Nomad's default reschedule block.
	ownForgottenAfter = 24 * time.Hour
)

// ranFor reports whether the gang had run for so long by then. It counts from its start: with each
// size and edit it is seen to be whole anew.
func (g *Lifecycle) ranFor(d time.Duration, until time.Time) bool {
	r := g.Record
	return (!r.Ready.IsZero() || g.Request.Elastic != nil) && !r.Decided.IsZero() && until.Sub(r.Decided) >= d
}

// giveUp makes that the verdict on the job as it is.
func (g *Lifecycle) giveUp(r *Record, why reason.Reason) {
	r.GivenUp, r.JobModifyIndex = why, *g.Job.JobModifyIndex
}

// GaveUp is why the gang is not tried any more, none if it is. It is tried again once its author
// runs it anew: without pins, it is another job to the placer ([Lifecycle.findPosition]); edited behind
// its gate, or stopped and started ([Lifecycle.beginAnew]); or another version, which Nomad runs at
// once ([Lifecycle.forgive]).
func (g *Lifecycle) GaveUp() reason.Reason {
	if (g.Nomad == Waiting || g.Nomad == Lost) && g.Record != nil && len(g.Pins.Groups) > 0 {
		return g.Record.GivenUp
	}
	return reason.Reason{}
}

// forgive drops the verdict on what an earlier version did, if the author has another one run: he has
// reverted to one that has pins, say, or scaled it. That may have failed before it was seen to run.
func (g *Lifecycle) forgive() {
	r := g.Record
	ran := g.Nomad == Starting || g.Nomad == Running || g.Nomad == Lost
	if r == nil || r.GivenUp.IsZero() || !ran || r.JobModifyIndex == *g.Job.JobModifyIndex {
		return
	}
	own := *r
	own.GivenUp, own.UserFailures, own.InfraFailures = reason.Reason{}, 0, 0
	g.Record = &own
}

// ownFailure is the failure by its own fault that the gang is stuck for, nil for
// none.
func (g *Lifecycle) ownFailure(w World) *failure.Failure {
	if f := w.LastFailure(g.Job); f != nil && f.Cause == failure.User && g.Record != nil {
		return f
	}
	return nil
}

// countFailure is the record with the failure counted, if the gang failed by its own
// fault; one that has failed too often is given up. Each start counts once.
func (g *Lifecycle) countFailure(w World) (*Record, []Effect) {
	f := g.ownFailure(w)
	if f == nil || g.Record.CountedFor == *g.Job.JobModifyIndex {
		return g.Record, nil
	}
	r := *g.Record
	r.CountedFor = *g.Job.JobModifyIndex
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

// retries is how often the gang is tried on other GPUs after it failed by its own
// fault.
func retries(job *api.Job, most int) int {
	h, err := rewrite.ParseHints(job)
	if err != nil || h.OnFailure == rewrite.ReplaceNothing {
		return 0
	}
	return most
}
