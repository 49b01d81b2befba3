// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
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
	if (g.Nomad == palapi.Waiting || g.Nomad == palapi.Lost) && g.Record != nil && len(g.Pins.Groups) > 0 {
		return g.Record.GivenUp
	}
	return reason.Reason{}
}

// forgive drops the decision to give up if the author runs another version of the job, for example
// by reverting to a version with pins or by scaling the job. The new version can fail before the
// placer sees it running.
func (g *known) forgive() {
	r := g.Record
	ran := g.Nomad == palapi.Starting || g.Nomad == palapi.Running || g.Nomad == palapi.Lost
	if r == nil || r.GivenUp.IsZero() || !ran || r.JobModifyIndex == *g.Job.JobModifyIndex {
		return
	}
	own := *r
	own.GivenUp = reason.Reason{}
	own.forgetFailures()
	g.Record = &own
}

// ownFailure returns the failure that the gang itself caused and that keeps it from running, or nil
// if there is none. Members also fail because the gang lost another member.
func (g *known) ownFailure(w World) *palapi.Failure {
	f := w.LastFailure(g.Job)
	if f != nil && f.Cause == palapi.CauseUser && g.Record != nil && !lostMembers(g.Job, w) {
		return f
	}
	return nil
}

// lostMembers reports whether the gang lost members that did not fail: a drain, a user or Nomad
// stopped them, or their node went down. The placer itself has stopped no member of this start yet.
func lostMembers(job *api.Job, w World) bool {
	return slices.ContainsFunc(w.Allocs(cluster.KeyOf(job)), func(a *cluster.Alloc) bool {
		return a.PlacedFor(job) && (wasStopped(a) || w.NodeLost(a))
	})
}

// wasStopped reports whether a member was told to stop before it failed. Nomad also tells a failed
// member to stop when it replaces the member.
func wasStopped(a *cluster.Alloc) bool {
	return a.Desired != api.AllocDesiredStatusRun && (a.Client != api.AllocClientStatusFailed || a.Next == "" && wasKilled(a.Tasks))
}

// countFailure returns the record, in which it has counted the failure that keeps the gang from
// running, at most one for each start. After too many failures the placer gives up. Nodes that go
// down do not count, because other nodes are as good.
func (g *memory) countFailure(w World) (*Record, []Effect) {
	f, own := w.LastFailure(g.Job), g.ownFailure(w)
	outage := f != nil && f.Cause == palapi.CauseInfrastructure && f.Reason != failure.NodeDown
	if g.Record == nil || own == nil && !outage || g.Record.CountedFor == *g.Job.JobModifyIndex {
		return g.Record, nil
	}
	r := *g.Record
	r.CountedFor = *g.Job.JobModifyIndex
	if outage {
		said := g.countOutage(&r, f, w)
		return &r, said
	}
	if g.ranFor(ownForgottenAfter, f.At) {
		r.UserFailures = 0
	}
	r.UserFailures++
	if f.At.Sub(f.Placed) >= failsAtOnce {
		r.Doubt = Doubt{Start: *g.Job.JobModifyIndex, Until: w.Now().Add(lossSeenAfter), Cause: f.Reason}
		return &r, nil
	}
	return &r, g.giveUpAfter(&r, f.Reason, w)
}

// giveUpAfter gives up if the gang itself has failed too often.
func (g *memory) giveUpAfter(r *Record, last string, w World) []Effect {
	if r.UserFailures <= retries(g.Job, w.Retries()) {
		return nil
	}
	g.giveUp(r, reason.Reason{Kind: reason.GaveUp, Tries: r.UserFailures, Cause: last})
	return []Effect{g.log(Warn, "giving up", "reason", r.GivenUp)}
}

const (
	// lossSeenAfter is the time in which Nomad marks a lost node as down: up to 30 s with Nomad's
	// defaults, more in clusters of over 1,000 nodes. The other members fail before.
	lossSeenAfter = time.Minute
	// A program that fails within failsAtOnce does so by itself, because its nodes have just
	// accepted its members.
	failsAtOnce = 5 * time.Second
)

// Doubt is about the last failure in [Record.UserFailures]: it does not count if a node of the gang
// turns out to be down. Until then the placer tries the gang again, but does not give it up.
type Doubt struct {
	Start uint64    `json:"start"` // the JobModifyIndex of the start that failed
	Until time.Time `json:"until"`
	Cause string    `json:"cause"`
}

// InDoubt returns a reason if the gang has failed too often to be tried again, but the last failure
// may not count. most is the number of retries that the configuration allows.
func (g *known) InDoubt(most int) reason.Reason {
	if g.Record == nil || len(g.Pins.Groups) == 0 {
		return reason.Reason{}
	}
	return g.Record.inDoubt(g.Job, most)
}

func (r *Record) inDoubt(job *api.Job, most int) reason.Reason {
	if r.Doubt == (Doubt{}) || r.UserFailures <= retries(job, most) {
		return reason.Reason{}
	}
	return reason.Reason{Kind: reason.InDoubt, Tries: r.UserFailures, Until: r.Doubt.Until, Cause: r.Doubt.Cause}
}

// resolveDoubt finds out whether the last failure counts.
func (g *Lifecycle) resolveDoubt(w World) ([]Effect, bool) {
	if g.Record == nil || g.Record.Doubt == (Doubt{}) || len(g.Pins.Groups) == 0 {
		return nothing()
	}
	r := *g.Record
	d := r.Doubt
	r.Doubt = Doubt{}
	switch {
	case !w.Now().Before(d.Until):
		said := g.giveUpAfter(&r, d.Cause, w)
		if said != nil {
			return append(said, WriteRecord{r}), false
		}
	case slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool { return a.CreateIndex > d.Start && w.NodeLost(a) }):
		r.UserFailures--
	default:
		return nothing()
	}
	g.Record = &r
	return []Effect{SaveRecord{r}}, true
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
