// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Plan explains what would happen to a job that is registered with a gate now: where it would
// start, or what it would wait for. Plan tries the registration on a copy of the model.
func (s *Snapshot) Plan(ctx context.Context, job *api.Job) (*palapi.Explanation, error) {
	s = s.With(s.Activity)
	e, err := s.plan(job)
	if err == nil && !s.runs(job) {
		s.askNomad(ctx, e, job)
		s.checkAfter(ctx, e, job)
	}
	if err == nil {
		s.noteUncapped(e)
		s.nameGPUs(e)
		return &e.Explanation, nil
	}
	return nil, err
}

// checkAfter asks Nomad about the jobs in the pal_after of a planned job. If the planned job would
// wait for one of them until somebody acts, e names this job: Nomad does not have the job, the job
// never ends, or the job did not succeed.
func (s *Snapshot) checkAfter(ctx context.Context, e *draft, job *api.Job) {
	hints, err := rewrite.ParseHints(job)
	if err != nil || s.nomad == nil || e.State != palapi.Starting && e.State != palapi.Waiting {
		return
	}
	for _, id := range rewrite.Predecessors(hints.After) {
		b := cluster.JobKey{Namespace: e.Namespace, ID: id}
		why := s.unmet(ctx, b)
		switch why.Kind {
		case reason.AheadMissing, reason.AheadTemplate, reason.AheadEndless, reason.AheadFailed, reason.AheadStopped, reason.AheadRejected:
			e.State, e.Reason = palapi.Waiting, model.ComesAfter(b, why)
			e.Wait, e.Holders = nil, nil
			return
		}
	}
}

// unmet returns why a planned job would have to wait for another job now.
func (s *Snapshot) unmet(ctx context.Context, b cluster.JobKey) reason.Reason {
	s.mu.Lock()
	of, t := s.m.Dependencies.Known[b], s.m.Jobs[b]
	s.mu.Unlock()
	if t != nil {
		return t.AsDependency(of).Unmet()
	}
	of, err := ReadDependency(ctx, s.nomad, b, of)
	if err != nil {
		return reason.Reason{}
	}
	return of.Unmet()
}

// runs reports whether the placer has already placed the job.
func (s *Snapshot) runs(job *api.Job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, runs := summary{s.m}.placed(cluster.KeyOf(job))
	return runs
}

// plan is [Snapshot.Plan] without requests to Nomad.
func (s *Snapshot) plan(job *api.Job) (*draft, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = nil
	k := cluster.KeyOf(job)
	planned := registeredAt(s.m.Time, job)
	e := &draft{Explanation: palapi.Explanation{Namespace: k.Namespace, Job: k.ID, State: palapi.Waiting, Planned: true}}
	if e.notServed(job, s.m.Cfg.Children) {
		return e, nil
	}
	st, runs := summary{s.m}.placed(k)
	v, err := request.NewView(s.m.State, s.m.ViewOptions(s.m.Time), k)
	if err != nil {
		return nil, err
	}
	r, err := v.Request(&planned)
	if err != nil {
		e.State, e.Reason = palapi.Rejected, model.Refused(err)
		return e, nil
	}
	e.Mode = string(r.Mode)
	e.ClassFrom = v.ClassFrom(&planned)
	e.SpeedsFrom = r.SpeedsFrom
	e.NeighboursFrom = r.NeighboursFrom
	d := search{s.m}.explainOn(v.Cluster, r.Gang)
	if !d.Placed && r.Elastic != nil {
		d = search{s.m}.explainOn(v.Cluster, r.Least())
	}
	if !d.Placed {
		e.Obstacles = v.Obstacles(&planned, sparing(d))
		model.Obstruct(&d, e.Obstacles)
	}
	e.Decision = &d
	defer e.noteSize()
	t := summary{s.m}.replanned(e, &planned, r)
	if runs {
		t.Nomad = palapi.Resubmitted
		summary{s.m}.planRunning(e, st, t.Lifecycle, v, &d)
		return e, nil
	}
	if !e.Hold.IsZero() {
		e.Reason = e.Hold
		return e, nil
	}
	if s.planInQueue(e, t, v, &d); e.State == palapi.Starting || e.State == palapi.Waiting {
		summary{s.m}.afterOthers(e, t)
	}
	return e, nil
}

// replanned returns a job as it would be after its author registered planned, which requests r. In
// e it notes what the job keeps: its orders and, if it waits, its place in the queue.
func (s summary) replanned(e *draft, planned *api.Job, r request.Request) *model.Tracked {
	k := cluster.KeyOf(planned)
	t := &model.Tracked{Lifecycle: gang.Of(gang.Observed{Key: k, Job: planned, Nomad: palapi.Waiting})}
	was := s.m.Jobs[k]
	if was != nil && was.Nomad == palapi.Waiting {
		t.Lifecycle, t.Eligible = was.Edited(t.Observed), was.Eligible
	}
	orders := s.m.Controls[k]
	// Orders belong to the job's name, so they also apply to the new version.
	t.Control = gang.Control{Held: orders.Held, Priority: orders.Priority}
	t.Request = r
	if t.Submitted().Before(s.m.Time) {
		e.Submitted = t.Submitted()
	}
	e.Hold, e.orders = t.Control.Hold(), ordersSentence(t)
	return t
}

// registeredAt returns the job as if it were registered at this time.
func registeredAt(at time.Time, job *api.Job) api.Job {
	now := at.UnixNano()
	planned := *job
	if rewrite.Gated(job) { // nomad-pal run also adds the gate to groups that lack it
		planned = *rewrite.Gate(job)
	}
	planned.SubmitTime = &now
	// The planned version is later than any other, so members that finished in an earlier version
	// must run again.
	later := uint64(math.MaxInt64)
	planned.JobModifyIndex, planned.Version = &later, &later
	return planned
}

// Refused returns why no placer could serve a job with GPUs, on any cluster; nil if a placer could.
func Refused(job *api.Job) *palapi.Explanation {
	err := request.Takes(job)
	if err == nil || !rewrite.Gated(request.Gate(job)) {
		return nil
	}
	k := cluster.KeyOf(job)
	return &palapi.Explanation{Namespace: k.Namespace, Job: k.ID, State: palapi.Rejected, Planned: true, Reason: model.Refused(err)}
}

// notServed reports whether the placer would not place the job, and if so, sets the reason. The
// placer does not place jobs that nomad-pal run registers without a gate, jobs without members, and
// parameterized or periodic jobs whose children it cannot place. If the placer can place the
// children, notServed notes that the plan is for one child.
func (e *draft) notServed(job *api.Job, children bool) bool {
	childless := request.Childless(job, children)
	switch {
	case !rewrite.Gated(request.Gate(job)):
		e.State, e.Reason = palapi.Native, reason.Reason{Kind: reason.WithoutGPUs, Cause: request.NoGPUs(job)}
		if rewrite.AsksGPUs(job) {
			e.Reason = reason.Reason{Kind: reason.WouldBeNative, Cause: request.Servable(job).Error()}
		}
	case request.Paused(job):
		e.State, e.Reason = palapi.Ended, reason.Reason{Kind: reason.WouldRest, Cause: request.NoMembers}
	case childless != nil:
		e.State, e.Reason = palapi.Rejected, reason.Reason{Kind: reason.NoChild, Cause: childless.Error()}
	default:
		if cluster.Template(job) {
			e.Members = append(e.Members, reason.Reason{Kind: reason.PlansChild, Cause: request.KindOfTemplate(job)})
		}
		return false
	}
	return true
}

// planRunning explains what an edit would do to a running gang.
func (s summary) planRunning(e *draft, st gang.Observed, changed gang.Lifecycle, v *request.View, d *pal.Decision) {
	room := s.m.RoomForPlan(&changed, v)
	if !d.Placed {
		room.Reason = d.Reason // the decision's reason has details about nodes
	}
	e.resubmitted(st, changed.Job, s.keeps(st, changed.Job), room)
	t := s.m.Jobs[changed.Key]
	if t != nil {
		e.Elastic = s.m.SizeOf(t)
	}
}

// afterOthers explains that a planned gang first waits for its pal_begin, or for the jobs in its
// pal_after that have not succeeded. In this case, plan predicts no start, and offers no change,
// because none would let the gang start now.
func (s summary) afterOthers(e *draft, t *model.Tracked) {
	after := reason.Reason{Kind: reason.Provided}
	for _, b := range t.Predecessors() {
		if !s.m.Dependencies.Known[b].Unmet().IsZero() {
			after.Jobs = append(after.Jobs, b.String())
		}
	}
	if len(after.Jobs) == 0 {
		after = reason.Reason{}
	}
	begins := t.AwaitBegin(s.m.Time)
	switch {
	case begins.IsZero() && after.IsZero():
		return
	case begins.IsZero() && e.State == palapi.Starting:
		e.Reason = e.Reason.Over(after)
	case e.State == palapi.Starting:
		e.State, e.Reason = palapi.Waiting, begins.And(after)
	default:
		e.Reason = e.Reason.And(begins).And(after)
	}
	e.StartFrom, e.StartTo = time.Time{}, time.Time{}
	e.Remedies = nil
	e.Ask = ""
	e.Try = ""
}

// planInQueue lets the queue of the copied model decide on a planned gang, and fills in e.
func (s *Snapshot) planInQueue(e *draft, t *model.Tracked, v *request.View, d *pal.Decision) {
	k := t.Key
	s.m.Queue.Removed(gang.QueueTime(s.m.Time), k.String())
	s.m.Jobs[k] = t
	for _, e := range t.Step(gang.Sync{Eligible: t.Eligible}, s.m.World()) {
		s.m.Update(t, e)
	}
	e.Elastic = s.m.SizeOf(t)
	actions := s.m.Queue.Decide(gang.QueueTime(s.m.Time), v.Cluster)
	starts := func(a queue.Action) bool { return a.Kind == queue.Start && a.Job == k.String() }
	i := slices.IndexFunc(actions, starts)
	if i >= 0 {
		a := actions[i]
		e.State, e.Reason = palapi.Starting, reason.Reason{Kind: reason.WouldStart}
		if s.Activity.Idle() {
			e.Reason.Kind = reason.WouldStartIdle
		}
		d.Placed = true
		d.Reason = reason.Reason{}
		d.Chosen = pal.Describe(v.Cluster, t.Request.Gang, a.Placement)
		n := len(a.Placement.GPUs())
		if n != d.Demand { // an elastic gang that starts with another number of GPUs than d assumed
			d.Demand = n
			d.Walk = nil
			d.WalkOmitted = 0
			d.Packed = nil
		}
		e.Obstacles = nil
		if pinned, err := v.Pin(t.Job, v.Pins(t.Request, a.Placement)); err == nil {
			e.pinned = pinned
		}
		return
	}
	e.Reason = s.m.Ending(t.Observed)
	w := s.waitsOf(v.Cluster)[k.String()]
	if w != nil {
		search{s.m}.besideWindows(v.Cluster, k, t.Request.Least(), d)
		_, small := matching(v.Cluster, t.Request.Least())
		e.takeWait(w, d, small)
		e.State, e.Reason = t.Shown(s.m, w), e.WaitsFor
		if e.State == palapi.Waiting {
			d.Impossible = false // the gang may fit on nodes that are away
			s.whatNow(e, t, w)
		}
		if e.State == palapi.Unschedulable {
			e.neverRuns()
		}
	}
}

// placed returns the state of a job that the placer has placed; ok is false for other jobs.
func (s summary) placed(k cluster.JobKey) (st gang.Observed, ok bool) {
	job := s.m.State.Jobs[k]
	if job == nil {
		return st, false
	}
	st = s.m.Observed(job)
	return st, (st.Nomad == palapi.Running || st.Nomad == palapi.Starting || st.Nomad == palapi.Resubmitted) && len(st.Members) > 0
}
