// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// WithLost returns the observation, with the state [palapi.Lost] if a gang of the placer ended early and
// must start again, as a whole or in part. In this state, all members have ended; for a gang that
// has lost only some members, see requeueIncomplete. Nomad does not retry a gang in this state. Either
// members of the gang were stopped, or a member failed for a known cause and the whole job must
// start again ([Observed.startsAsAWhole]).
func (st Observed) WithLost(w World) Observed {
	if st.Nomad == palapi.Ended && st.lost(w) {
		st.Nomad = palapi.Lost
	}
	return st
}

// lost reports whether [Observed.WithLost] must report the gang as Lost. lost ignores failures of
// unknown cause, but not members that a drain stopped.
func (st Observed) lost(w World) bool {
	switch {
	case rewrite.Stopped(st.Job) || len(st.Pins.Groups) == 0 || rewrite.Gated(st.Job):
		return false
	case st.Have >= st.Want || st.didItsWork(w):
		return false
	case slices.ContainsFunc(w.Allocs(st.Key), func(a *cluster.Alloc) bool { return a.Live() && a.Client != api.AllocClientStatusUnknown }):
		return false // Nomad calls the job dead while stopped tasks are still ending, and these tasks can still succeed
	}
	f := w.LastFailure(st.Job)
	if f != nil && f.Cause != palapi.CauseUnknown && st.startsAsAWhole() {
		return true // even if the gang must not be retried, because its record then shows that the placer gave up
	}
	if !st.NeedsAll() {
		return st.LeftOut
	}
	return slices.ContainsFunc(stopped(st.Job, w.Allocs(st.Key)), func(a *cluster.Alloc) bool {
		return rewrite.GPUsPerMember(st.Job.LookupTaskGroup(a.Group)) > 0
	})
}

// startsAsAWhole reports whether the whole job starts again after members have failed. The whole
// job starts again if its members need each other, or if it is a batch job of which no member has
// succeeded. In other jobs, the reschedule block decides how often Nomad retries a member.
func (st Observed) startsAsAWhole() bool {
	return st.NeedsAll() || *st.Job.Type == api.JobTypeBatch && st.Have == 0
}

// didItsWork reports whether all members with GPUs have finished in the present version. Members
// that a drain stopped after they had succeeded count as finished, and so do members whose version
// could not be read.
func (st Observed) didItsWork(w World) bool {
	done := map[string]int{} // by group
	for _, a := range w.Allocs(st.Key) {
		ofThis := a.Version == nil && a.ModifyIndex > *st.Job.JobModifyIndex || a.Version != nil && *a.Version == *st.Job.Version
		if ofThis && finished(a) {
			done[a.Group]++
		}
	}
	return !slices.ContainsFunc(st.Job.TaskGroups, func(g *api.TaskGroup) bool {
		return rewrite.GPUsPerMember(g) > 0 && done[*g.Name] < rewrite.Members(g)
	})
}

// requeueLost puts a lost gang back into the queue, or gives up on it. Drains and other requests to
// stop members do not count as failures. If the members do not need each other and some have
// succeeded, Nomad places only the stopped members again.
func (g *Lifecycle) requeueLost(w World) ([]Effect, bool) {
	if !g.GaveUp().IsZero() { // an earlier placer gave up, according to the record, which has just been read
		return nothing()
	}
	if !g.NeedsAll() && g.Have > 0 { // finished members must not run again
		return g.placeStopped(w)
	}
	why := reason.Reason{Kind: reason.MembersStopped}
	f := w.LastFailure(g.Job)
	if f != nil {
		why = reason.Unread(f.Reason)
	}
	r, said := g.countFailure(w)
	f = g.ownFailure(w)
	if f != nil && r.GivenUp.IsZero() && w.Now().Sub(f.At) >= retryWithin {
		late := *r
		g.giveUp(&late, reason.Reason{Kind: reason.FailedUnseen, Minutes: int(retryWithin.Minutes()), Cause: f.Reason})
		r, said = &late, append(said, g.log(Warn, "giving up", "reason", late.GivenUp))
	}
	if !r.GivenUp.IsZero() { // the placer does nothing more for the job
		return append(said, WriteRecord{*r}), false
	}
	doubt := r.inDoubt(g.Job, w.Retries())
	if !doubt.IsZero() { // the job stays dead in Nomad if the placer gives it up
		if g.SetTrouble(doubt); r == g.Record {
			return nil, false
		}
		return append(said, WriteRecord{*r}), false
	}
	out := []Effect{g.log(Warn, "the gang was lost: requeueing the gang", "reason", why)}
	out = append(out, g.dequeue()...) // the gang joins the queue again, to avoid the place where it failed
	return append(out, g.stopFor(stopping{why: Requeued, drained: lostMembers(g.Job, w)}, r, w)...), false
}

// placeStopped asks Nomad to place the stopped members of a dead job again. placeStopped does so at
// once, because garbage collection deletes dead jobs. With the GPUs of these members, the tenant
// can exceed its limit. Above the limit, the tenant gets no other GPUs.
func (g *memory) placeStopped(w World) ([]Effect, bool) {
	if w.Now().Sub(g.evaluatedAt) < evaluateAgain {
		return nothing()
	}
	g.SetTrouble(reason.Reason{Kind: reason.Replacing})
	return []Effect{g.log(Info, "asking Nomad to place stopped members again"), Evaluate{}}, false
}
