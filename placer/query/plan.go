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
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Plan explains what would happen to a job if it were registered with a gate now: whether and where
// it would start, or what it would wait for. Plan tries the registration on a copy of the model.
func (s *Snapshot) Plan(ctx context.Context, job *api.Job) (*Explanation, error) {
	s = s.With(s.Activity)
	e, err := s.plan(job)
	if err == nil && !s.runs(job) {
		s.askNomad(ctx, e, job)
		s.checkAfter(ctx, e, job)
	}
	if err == nil {
		s.noteUncapped(e)
	}
	return e, err
}

// checkAfter asks Nomad about the jobs in pal_after of a planned job. checkAfter names the jobs for
// which the planned job would wait forever, because Nomad does not have these jobs, or they do not
// finish.
func (s *Snapshot) checkAfter(ctx context.Context, e *Explanation, job *api.Job) {
	hints, err := rewrite.ParseHints(job)
	if err != nil || s.nomad == nil || e.State != gang.Starting && e.State != gang.Waiting {
		return
	}
	for _, id := range hints.Jobs() {
		k := cluster.JobKey{Namespace: e.Namespace, ID: id}
		if !s.m.Dependencies.Known[k].Finished.IsZero() {
			continue
		}
		of, err := s.nomad.Job(ctx, k)
		if err != nil {
			continue
		}
		if why := cluster.NeverFinishes(of); !why.IsZero() {
			e.State, e.Reason = gang.Waiting, reason.Reason{Kind: reason.ComesAfter, Jobs: []string{k.String()}}.Over(why)
			return
		}
	}
}

// runs reports whether the placer has already placed the job.
func (s *Snapshot) runs(job *api.Job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, runs := s.placed(cluster.KeyOf(job))
	return runs
}

// plan is [Snapshot.Plan] without requests to Nomad.
func (s *Snapshot) plan(job *api.Job) (*Explanation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = nil
	k := cluster.KeyOf(job)
	planned := registeredAt(s.m.Time, job)
	e := &Explanation{Namespace: k.Namespace, Job: k.ID, State: gang.Waiting, Planned: true, GPUIDLength: s.idLength()}
	if e.notServed(job, s.m.Cfg.Children) {
		return e, nil
	}
	st, runs := s.placed(k)
	if t := s.m.Jobs[k]; t != nil && t.Nomad == gang.Waiting { // the job keeps its place in the queue
		at := t.Submitted().UnixNano()
		planned.SubmitTime, e.Submitted = &at, t.Submitted()
	}
	v, err := request.NewView(s.m.State, s.m.ViewOptions(s.m.Time), k)
	if err != nil {
		return nil, err
	}
	r, err := v.Request(&planned)
	if err != nil {
		e.State, e.Reason = gang.Rejected, model.Refused(err)
		return e, nil
	}
	e.Mode, e.ClassFrom, e.SpeedsFrom, e.NeighboursFrom = string(r.Mode), v.ClassFrom(&planned), r.SpeedsFrom, r.NeighboursFrom
	d := s.explainOn(v.Cluster, r.Gang)
	if !d.Placed && r.Elastic != nil {
		d = s.explainOn(v.Cluster, r.Least())
	}
	if !d.Placed {
		e.Obstacles = v.Obstacles(&planned, sparing(d))
		model.Obstruct(&d, e.Obstacles)
	}
	e.Decision = &d
	defer e.noteSize()
	t := &model.Tracked{Lifecycle: gang.Of(gang.Observed{Key: k, Job: &planned, Nomad: gang.Waiting})}
	t.Request = r
	orders := s.m.Controls[k]
	t.Control = gang.Control{Held: orders.Held, Priority: orders.Priority} // orders belong to the job's name
	e.Hold, e.priority = t.Control.Hold(), prioritySentence(t)
	if runs {
		t.Nomad = gang.Resubmitted
		s.planRunning(e, st, t.Lifecycle, v, &d)
		return e, nil
	}
	if !e.Hold.IsZero() {
		e.Reason = e.Hold
		return e, nil
	}
	tradeoffs := s.tradeoffs(v.Cluster, r.Least(), sizeKey(r, "min")) // before planInQueue places gangs
	if s.planInQueue(e, t, v, &d); e.State == gang.Starting || e.State == gang.Waiting {
		if e.Tradeoffs = tradeoffs; e.State == gang.Waiting {
			e.Tradeoffs = s.thatMayStart(t, tradeoffs)
		}
		e.afterOthers(t.Dependencies())
	}
	return e, nil
}

// registeredAt returns the job as if it were registered at this time.
func registeredAt(at time.Time, job *api.Job) api.Job {
	now := at.UnixNano()
	planned := *job
	if rewrite.Gated(job) { // nomad-pal run also adds the gate to groups that lack it
		planned = *rewrite.Gate(job)
	}
	planned.SubmitTime = &now
	// The plan's version is later than any other, so members that finished in an earlier version
	// have to run again.
	later := uint64(math.MaxInt64)
	planned.JobModifyIndex, planned.Version = &later, &later
	return planned
}

// Refused returns why no placer could serve a job with GPUs, on any cluster; nil if a placer could.
func Refused(job *api.Job) *Explanation {
	err := request.Takes(job)
	if err == nil || !rewrite.Gated(request.Gate(job)) {
		return nil
	}
	k := cluster.KeyOf(job)
	return &Explanation{Namespace: k.Namespace, Job: k.ID, State: gang.Rejected, Planned: true, Reason: model.Refused(err)}
}

// notServed reports whether the placer would not place the job, and if so, sets the reason. The
// placer does not place jobs that nomad-pal run registers without a gate, jobs without members, and
// parameterized or periodic jobs whose children it cannot place. If the placer can place the
// children, notServed notes that the plan is for one child.
func (e *Explanation) notServed(job *api.Job, children bool) bool {
	childless := request.Childless(job, children)
	switch {
	case !rewrite.Gated(request.Gate(job)):
		e.State, e.Reason = gang.Native, reason.Reason{Kind: reason.WithoutGPUs, Cause: request.NoGPUs(job)}
		if rewrite.AsksGPUs(job) {
			e.Reason = reason.Reason{Kind: reason.WouldBeNative, Cause: request.Servable(job).Error()}
		}
	case request.Paused(job):
		e.State, e.Reason = gang.Ended, reason.Reason{Kind: reason.WouldRest, Cause: request.NoMembers}
	case childless != nil:
		e.State, e.Reason = gang.Rejected, reason.Reason{Kind: reason.NoChild, Cause: childless.Error()}
	default:
		if cluster.Template(job) {
			e.Members = append(e.Members, reason.Reason{Kind: reason.PlansChild, Cause: request.KindOfTemplate(job)})
		}
		return false
	}
	return true
}

// planRunning explains what an edit would do to a running gang.
func (s facts) planRunning(e *Explanation, st gang.Observed, changed gang.Lifecycle, v *request.View, d *pal.Decision) {
	room := s.m.RoomForPlan(&changed, v)
	if !d.Placed {
		room.Reason = d.Reason // the decision's reason has details about nodes
	}
	e.resubmitted(st, changed.Job, s.keeps(st, changed.Job), room)
	if t := s.m.Jobs[changed.Key]; t != nil {
		e.Elastic = s.m.SizeOf(t)
	}
}

// afterOthers explains that a planned gang first waits for other jobs. Their end is unknown, so
// plan cannot predict a start.
func (e *Explanation) afterOthers(keys []cluster.JobKey) {
	if len(keys) == 0 {
		return
	}
	var jobs []string
	for _, k := range keys {
		jobs = append(jobs, k.String())
	}
	e.StartFrom, e.StartTo = time.Time{}, time.Time{}
	if e.State == gang.Starting {
		e.Reason.Jobs = jobs
	} else {
		e.Reason = e.Reason.And(reason.Reason{Kind: reason.Provided, Jobs: jobs})
	}
}

// planInQueue lets the queue of the copied model decide on a planned gang, and fills in e.
func (s *Snapshot) planInQueue(e *Explanation, t *model.Tracked, v *request.View, d *pal.Decision) {
	k := t.Key
	s.m.Queue.Removed(gang.QueueTime(s.m.Time), k.String())
	s.m.Jobs[k] = t
	for _, e := range t.Step(gang.Sync{}, s.m.World()) {
		s.m.Update(t, e)
	}
	e.Elastic = s.m.SizeOf(t)
	actions := s.m.Queue.Decide(gang.QueueTime(s.m.Time), v.Cluster)
	starts := func(a queue.Action) bool { return a.Kind == queue.Start && a.Job == k.String() }
	if i := slices.IndexFunc(actions, starts); i >= 0 {
		a := actions[i]
		e.State, e.Reason = gang.Starting, reason.Reason{Kind: reason.WouldStart}
		if s.Activity.Idle() {
			e.Reason.Kind = reason.WouldStartIdle
		}
		d.Placed, d.Reason, d.Chosen = true, reason.Reason{}, pal.Describe(v.Cluster, t.Request.Gang, a.Placement)
		if n := len(a.Placement.GPUs()); n != d.Demand { // an elastic gang that starts with another number of GPUs than d assumed
			d.Demand, d.Walk, d.WalkOmitted, d.Packed = n, nil, 0, nil
		}
		e.Obstacles = nil
		if pinned, err := v.Pin(t.Job, v.Pins(t.Request, a.Placement)); err == nil {
			e.pinned = pinned
		}
		return
	}
	if w := s.waitsOf(v.Cluster)[k.String()]; w != nil {
		defer s.besideWindows(v.Cluster, k, t.Request.Least(), d)()
		_, small := matching(v.Cluster, t.Request.Least())
		e.takeWait(w, d, small)
		e.State, e.Reason = t.Shown(s.m, w), e.WaitsFor
		if e.State == gang.Waiting {
			d.Impossible = false // the gang may fit on nodes that are away
			s.whatNow(e, t, w)
		}
		if e.State == gang.Unschedulable {
			e.neverRuns(v, t.Job)
		}
	}
}

// placed returns the state of a job that the placer has placed; ok is false for other jobs.
func (s facts) placed(k cluster.JobKey) (st gang.Observed, ok bool) {
	job := s.m.State.Jobs[k]
	if job == nil {
		return st, false
	}
	st = s.m.Observed(job)
	return st, (st.Nomad == gang.Running || st.Nomad == gang.Starting || st.Nomad == gang.Resubmitted) && len(st.Members) > 0
}
