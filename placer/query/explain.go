// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// draft is an explanation in the making, with what only its making needs.
type draft struct {
	palapi.Explanation
	// orders is a note on orders about the job: a changed priority, or its release.
	orders string
	// holds are the GPUs of the job's members. holds is nil for a gang without all its members,
	// because the missing members come back to the GPUs that were chosen.
	holds *pal.Choice
	// asks is the application class that the job requests now.
	asks pal.AppClass
	// record is a copy of the last decision on the job, or nil if the snapshot does not have it.
	record *gang.Record
	// pinned is the job as the placer would register it if it started now.
	pinned *api.Job
}

// takeWait copies the queue's data about a waiting job. If the job lacks GPUs, d has details, and
// small is how many matching GPUs are of models with too few GPUs for the job.
func (e *draft) takeWait(w *model.Wait, d *pal.Decision, small int) {
	e.Wait, e.WaitsFor = &w.Wait, waitsFor(d, w, small)
	if limited(w) { // nodes are irrelevant while a limit holds
		e.Obstacles = nil
	}
	if w.To > 0 {
		e.StartFrom, e.StartTo = time.Unix(0, int64(w.From)), time.Unix(0, int64(w.To))
	}
}

// waitsFor returns what a job waits for, according to the queue. If the job waits for GPUs, d
// explains why the free GPUs do not suffice.
func waitsFor(d *pal.Decision, w *model.Wait, small int) reason.Reason {
	r, n := w.Why(), d.Candidates
	if w.Away {
		return r
	}
	if r.Kind == reason.GPUs || r.Kind == reason.Scattered {
		r.Small = small
	}
	switch {
	case r.Kind == reason.GPUs:
		r.Match, r.Used = n.Total-n.Ineligible, n.Used()
		r.Used.Outliers, r.Used.Kept = w.Outliers, max(0, n.Free+n.Outliers-w.Free)
	case r.Kind == reason.Scattered && len(r.Because) == 0 && (d.Reason.Kind == reason.Scattered || d.Reason.Kind == reason.Apart):
		r.Kind = d.Reason.Kind
		r.Tier = d.Reason.Tier
		r.Because = d.Reason.Because
	}
	return r
}

// limited reports whether a limit keeps the job waiting, however many GPUs are free.
func limited(w *model.Wait) bool {
	switch w.Reason {
	case reason.Limit, reason.Quota, reason.Array:
		return true
	}
	return false
}

// Explain returns why a job runs where it runs, or why it does not run.
func (s *Snapshot) Explain(ctx context.Context, k cluster.JobKey) (*palapi.Explanation, error) {
	e, err := s.explain(ctx, k)
	if err != nil {
		return nil, err
	}
	e.noteSize()
	s.noteUncapped(e)
	e.addNote(e.orders)
	s.nameGPUs(e)
	return &e.Explanation, nil
}

func (s *Snapshot) explain(ctx context.Context, k cluster.JobKey) (*draft, error) {
	e, st, ok := s.explainFromState(k)
	if !ok {
		return s.explainUnknown(ctx, k)
	}
	switch st.Nomad {
	case palapi.Waiting:
		return e, nil
	case palapi.Template:
	case palapi.Native:
		err := s.addRefusal(ctx, e, st)
		if err != nil {
			return nil, err
		}
	default:
		d, err := deployment(ctx, s.nomad, st)
		if err != nil {
			return nil, err
		}
		s.addMissing(e, st.Key)
		if err := s.addRefusal(ctx, e, st); err != nil {
			return nil, err
		}
		if err := s.addDeployment(ctx, e, st, d); err != nil {
			return nil, err
		}
	}
	return e, s.addRecord(ctx, e, st)
}

// explainFromState explains a job from the snapshot alone. ok is false if the snapshot does not
// have the job.
func (s *Snapshot) explainFromState(k cluster.JobKey) (e *draft, st gang.Observed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job, ok := s.m.State.Jobs[k]
	if !ok {
		return nil, st, false
	}
	st = s.m.Observed(job)
	if st.Nomad == palapi.Rejected { // isolated after a panic: do not examine the job
		why, _ := s.m.Isolated(job, s.m.Time)
		return &draft{Explanation: palapi.Explanation{Namespace: k.Namespace, Job: k.ID, State: palapi.Rejected, Reason: why}}, st, true
	}
	e = &draft{Explanation: palapi.Explanation{Namespace: k.Namespace, Job: k.ID, State: st.Nomad, Allocations: summary{s.m}.allocations(st), Failures: s.m.Tries(k), ClassFrom: s.m.View.ClassFrom(job)}}
	e.Submitted, e.Leaving = time.Unix(0, *job.SubmitTime), s.m.Leaving(st)
	if cluster.Child(job) {
		e.Parent = *job.ParentID
	}
	t := s.m.Jobs[k]
	if t != nil {
		e.Submitted = t.Submitted()
		e.SpeedsFrom, e.NeighboursFrom = t.Request.SpeedsFrom, t.Request.NeighboursFrom
		e.Elastic = s.m.SizeOf(t)
		e.asks = t.Request.Gang.Class
		e.Hold = t.Control.Hold()
		e.orders = ordersSentence(t)
		if st.Nomad == palapi.Running || st.Nomad == palapi.Starting {
			summary{s.m}.whenEnds(e, t)
		}
		search{s.m}.runsOn(e, t)
		if t.Record != nil {
			e.record = new(*t.Record)
		}
	}
	switch st.Nomad {
	case palapi.Native:
		e.native(st)
	case palapi.Template:
		e.Reason = request.TemplateReason(job, s.m.Cfg.Children)
		e.Runs = summary{s.m}.runsOf(k)
		e.StartRun = palapi.StartRun(job)
	case palapi.Waiting:
		s.explainWaiting(e, t)
		summary{s.m}.ranBefore(e, k)
	case palapi.Ended:
		e.Outcome = OutcomeOf(s.m, st)
		e.Reason = e.Outcome.Reason
		e.Runs = summary{s.m}.runsOf(k)
	default:
		e.Reason = membersSay(s.m.State, st)
		if t != nil && !t.GaveUp().IsZero() {
			e.State, e.Reason = palapi.Failed, t.GaveUp()
		}
		if (st.Nomad == palapi.Starting || st.Nomad == palapi.Lost) && t != nil {
			e.Reason = e.Reason.And(t.Trouble())
		}
		e.Reason = summary{s.m}.tooLarge(t).Or(model.CanariesRun(st)).Or(e.Reason)
		e.broken(t)
	}
	return e, st, true
}

// ranBefore says when a waiting job ran before, and why it was stopped.
func (s summary) ranBefore(e *draft, k cluster.JobKey) {
	e.Ran = lastEnd(s.m.State.AllocsOf(k), e.Submitted)
	t := s.m.Jobs[k]
	if t != nil && t.Record != nil && t.Record.Stopped.After(t.Record.Decided) && !e.Ran.IsZero() {
		e.StoppedWhy, e.StoppedFor = t.Record.StoppedWhy, t.Record.StoppedFor
	}
}

// broken handles a job that still runs in its old version because its newer version is invalid: it
// adds to the explanation what to fix. t may be nil.
func (e *draft) broken(t *model.Tracked) {
	if t == nil || t.Refused == nil || e.State == palapi.Failed {
		return
	}
	e.Reason = e.Reason.And(reason.Reason{Kind: reason.RunsUnread, Cause: t.Refused.Error()})
	e.Remedies = append(e.Remedies, reason.Reason{Kind: reason.FixVersion})
}

// lastEnd returns the latest end among the members that were placed after the time since; zero if
// there is none.
func lastEnd(as []*cluster.Alloc, since time.Time) (at time.Time) {
	for _, a := range as {
		ended := a.End()
		if !a.Live() && a.CreateTime > since.UnixNano() && ended.After(at) {
			at = ended
		}
	}
	return at
}

// explainUnknown explains a job that the snapshot does not have, because the job requests no GPUs
// or is newer than the snapshot.
func (s *Snapshot) explainUnknown(ctx context.Context, k cluster.JobKey) (*draft, error) {
	job, err := s.nomad.Job(ctx, k)
	if err != nil {
		return nil, err
	}
	if job == nil {
		return nil, nomad.NoJob(k)
	}
	if rewrite.AsksGPUs(job) {
		e := &draft{Explanation: palapi.Explanation{Namespace: k.Namespace, Job: k.ID, State: palapi.Waiting, Behind: true}}
		e.Reason = (reason.Reason{Kind: reason.NewJob})
		if s.m.State.Unread[k] != nil {
			e.State, e.Reason = palapi.Rejected, reason.Reason{Kind: reason.Unreadable, Cause: s.m.State.Unread[k].Error()}
		}
		return e, nil
	}
	if rewrite.Gated(job) {
		why := model.Refused(request.Servable(job))
		if len(rewrite.OtherDevices(job)) == 0 {
			why.Kind = reason.StaysGated
		}
		return &draft{Explanation: palapi.Explanation{Namespace: k.Namespace, Job: k.ID, State: palapi.Rejected, Reason: why}}, nil
	}
	return &draft{Explanation: palapi.Explanation{Namespace: k.Namespace, Job: k.ID, State: palapi.Native, Reason: reason.Reason{Kind: reason.WithoutGPUs, Cause: request.NoGPUs(job)}}}, nil
}

// native sets the reason why the placer leaves a job to Nomad.
func (e *draft) native(st gang.Observed) {
	e.Reason = reason.Reason{Kind: reason.NotOurs, Needs: st.Holds(), Have: st.Have, Want: st.Want}
	if err := request.Servable(rewrite.Author(st.Job)); err != nil { // without pins that a release left
		e.Reason.Cause = err.Error()
		return
	}
	e.Reason.Kind = reason.Ungated
}

// addRecord adds the recorded last decision to the explanation.
func (s *Snapshot) addRecord(ctx context.Context, e *draft, st gang.Observed) error {
	if e.Outcome != nil && (e.Outcome.Status == "stopped" || e.Outcome.Status == palapi.AtRest) { // stopping the job made a new version; the version before has the author's submit time
		if vs, err := s.nomad.Versions(ctx, st.Key); err == nil && *st.Job.Version > 0 && vs[*st.Job.Version-1] != nil {
			e.Submitted = time.Unix(0, *vs[*st.Job.Version-1].SubmitTime)
		}
	}
	r := e.record
	if r == nil {
		var err error
		r, err = store.In(s.nomad).Record(ctx, st.Key)
		if store.Unreadable(err) { // the placer replaces damaged records
			return nil
		}
		if err != nil {
			return err
		}
	}
	if r == nil || st.Nomad == palapi.Native && !e.holdsAll(r.Decision.Chosen) {
		return nil
	}
	e.Restarted = restarted(st, r)
	switch {
	case e.holds == nil:
	case st.Nomad == palapi.Running:
		r.Got(e.holds)
		r.Resized(e.holds)
		r.Decision.Chosen = besideNow(r.Decision.Chosen, e.holds)
	case !r.Ready.IsZero(): // replicas are missing
		r.Decision.Chosen, r.Predicted = e.holds, nil
	}
	if e.asks != "" && e.asks != r.Decision.Class {
		e.ClassFrom = fmt.Sprintf("the class when the gang was placed; the job's class is now %s, which counts when the gang is placed again", e.asks)
	}
	e.Decision = &r.Decision
	e.Predicted = r.Predicted
	e.Decided = r.Decided
	e.Ready = r.Ready
	e.Mode = string(r.Mode)
	e.Note = string(r.Note)
	if st.Nomad == palapi.Native { // the job was released, and no longer has pins
		e.Mode = ""
	}
	if st.Nomad == palapi.Ended && len(st.Pins.Groups) > 0 {
		e.Submitted = r.Submitted
	}
	return nil
}

// holdsAll reports whether the job's members hold exactly the chosen GPUs. Otherwise Nomad has placed
// or stopped members since the placer left the job to it.
func (e *draft) holdsAll(chosen *pal.Choice) bool {
	var held []string
	for _, a := range e.Allocations {
		held = append(held, a.GPUs...)
	}
	return chosen == nil || slices.Equal(slices.Sorted(slices.Values(held)), slices.Sorted(slices.Values(chosen.GPUIDs())))
}

// besideNow returns the choice with the neighbours that the gang has now. The record has only the
// neighbours at the time of placement.
func besideNow(chosen, holds *pal.Choice) *pal.Choice {
	if chosen == nil {
		return nil
	}
	now := map[string][]pal.Neighbour{}
	for _, m := range holds.Members {
		for _, u := range m.GPUs {
			now[u.ID] = m.Neighbours
		}
	}
	c := *chosen
	c.Members = slices.Clone(c.Members)
	for i := range c.Members {
		m := &c.Members[i]
		for _, u := range m.GPUs {
			if is, ok := now[u.ID]; ok {
				m.Neighbours = is
			}
		}
	}
	return &c
}

// restarted returns when Nomad last restarted all members of a running gang on the same GPUs, or
// zero if Nomad has not restarted them.
func restarted(st gang.Observed, r *gang.Record) time.Time {
	if st.Nomad != palapi.Running || r.Ready.IsZero() {
		return time.Time{}
	}
	at := st.PlacedAgain()
	if at.After(r.Ready) {
		return at
	}
	return r.Restarted
}

// sparing returns the application class whose outliers a gang avoids, or "" if it avoids none of
// the free GPUs.
func sparing(d pal.Decision) pal.AppClass {
	if d.Candidates.Outliers == 0 {
		return ""
	}
	return d.Class
}

// explainWaiting explains what a waiting job waits for, and what would let the job start. Callers
// hold mu.
func (s *Snapshot) explainWaiting(e *draft, t *model.Tracked) {
	wait := s.waiting()[t.Key.String()]
	e.State = t.Shown(s.m, wait)
	switch e.State {
	case palapi.Failed:
		e.Reason = t.GaveUp()
		return
	case palapi.Rejected:
		e.Reason = model.Refused(t.Refused)
		return
	case palapi.Unschedulable:
		if t.Never != nil {
			e.never(t.Never.Obstacles)
			return
		}
	}
	defer search{s.m}.keptForIt(e.State, t)()
	d := search{s.m}.explainOn(s.m.View.Cluster, t.Request.Least())
	if !d.Placed {
		e.Obstacles = s.m.View.Obstacles(t.Job, sparing(d))
		model.Obstruct(&d, e.Obstacles)
	}
	search{s.m}.besideWindows(s.m.View.Cluster, t.Key, t.Request.Least(), &d)
	e.Decision, e.Mode = &d, string(t.Request.Mode)
	nodes := s.m.Avoids(t.Observed, s.m.Time)
	if len(nodes) > 0 {
		e.Note = fmt.Sprintf("nomad-pal avoids %s for this job if possible, because members failed there within the last hour", strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))
	}
	if e.State != palapi.Unschedulable {
		summary{s.m}.noteWindows(e, t)
	}
	summary{s.m}.notePreempt(e, t)
	job := t.QueueJob(s.m.Cfg.RestartCost)
	if job.Estimate > 0 {
		taken := s.m.Queue.Estimate(job)
		if taken != job.Estimate {
			e.addNote(fmt.Sprintf("pal_duration = %s counts as %s, because jobs of namespace %s have run %.3g times as long as estimated",
				palapi.ShortDuration(job.Estimate), palapi.ShortDuration(taken.Round(time.Minute)), t.Key.Namespace, float64(taken)/float64(job.Estimate)))
		}
	}
	if wait != nil {
		_, small := matching(s.m.View.Cluster, t.Request.Least())
		e.takeWait(wait, &d, small)
	}
	e.Reason = t.WhyWaits(s.m, wait, e.WaitsFor)
	if e.State == palapi.Waiting && t.After == nil {
		d.Impossible = false // the gang may fit on nodes that are away
		s.whatNow(e, t, wait)
	}
	if e.State == palapi.Unschedulable {
		e.neverRuns()
	}
	ending := s.m.Ending(t.Observed)
	if !ending.IsZero() && (e.State == palapi.Waiting || e.State == palapi.Completing) {
		e.State, e.Reason = palapi.Completing, ending
	}
}

// keptForIt frees the GPUs of a gang that is being started, so that its explanation does not count
// them as allocated. back takes them again.
func (s search) keptForIt(state palapi.State, t *model.Tracked) (back func()) {
	if state != palapi.Committing {
		return func() {}
	}
	_, back = s.m.View.Without(t.Key)
	return back
}

// never marks the job as one that Nomad cannot place on any node.
func (e *draft) never(found []palapi.Obstacle) {
	e.State = palapi.Unschedulable
	e.Obstacles = found
	e.Reason = request.NeverPlaced(found)
	e.Remedies = append(e.Remedies, reason.Reason{Kind: reason.ChangeJob})
}

// neverRuns adds the step for a job that cannot run even on the empty cluster, and omits obstacles
// that pass.
func (e *draft) neverRuns() {
	if e.Wait != nil && e.Wait.Reason == reason.Limit {
		e.Remedies = append(e.Remedies, reason.Reason{Kind: reason.AskLess, Limit: e.Wait.Limit, User: e.Wait.User})
		return
	}
	e.Obstacles = slices.DeleteFunc(e.Obstacles, func(o palapi.Obstacle) bool { return o.Now })
	e.Decision.Walk, e.Decision.WalkOmitted = nil, 0
	e.Remedies = append(e.Remedies, reason.Reason{Kind: reason.ChangeJob})
}

// askNomad asks Nomad's scheduler about a job that waits, or that could start according to the
// snapshot. If Nomad refuses the job on every node, the job can never start.
func (s *Snapshot) askNomad(ctx context.Context, e *draft, job *api.Job) {
	if s.nomad == nil || e.State != palapi.Waiting && e.State != palapi.Starting || cluster.Template(job) || cluster.Child(job) {
		return
	}
	s.mu.Lock()
	largest := s.m.View.Largest()
	s.mu.Unlock()
	found, refused, err := request.Judge(ctx, s.nomad, job, largest)
	switch {
	case err != nil:
		return
	case len(found) == 0 && e.pinned != nil && refused != "":
		// Ask whether Nomad also refuses the job on the GPUs that the placer would choose. Without
		// pins, Nomad may have given the GPUs of one group to another.
		if resp, err := s.nomad.DryRun(ctx, e.pinned); err == nil && len(resp.FailedTGAllocs) > 0 {
			e.State, e.Reason = palapi.Waiting, reason.Reason{Kind: reason.NomadRefuses, Cause: refused}
		}
		return
	case len(found) == 0:
		return
	}
	*e = draft{Explanation: palapi.Explanation{Planned: e.Planned, Namespace: e.Namespace, Job: e.Job, Submitted: e.Submitted, Mode: e.Mode, ClassFrom: e.ClassFrom, SpeedsFrom: e.SpeedsFrom, GPUNames: e.GPUNames, Failures: e.Failures, Elastic: e.Elastic}}
	e.never(found)
}

// explainOn explains what the queue would find for a gang on a cluster.
func (s search) explainOn(c *pal.Cluster, g pal.Gang) pal.Decision {
	_, by, _ := s.m.Queue.Look(c, g)
	return pal.Explain(c, g, by)
}

// besideWindows handles a waiting job that would fit if no window reserved GPUs. besideWindows
// makes d explain only the GPUs that no window reserves. The other GPUs count as kept.
func (s search) besideWindows(c *pal.Cluster, k cluster.JobKey, g pal.Gang, d *pal.Decision) {
	kept := s.kept(k)
	if !d.Placed || len(kept) == 0 {
		return
	}
	_, by, _ := s.m.Queue.Look(c, g)
	defer hide(c, kept)()
	was := d.Candidates
	*d = pal.Explain(c, g, by)
	n := &d.Candidates
	n.Kept = was.Free + was.Outliers - n.Free - n.Outliers
	n.Allocated -= n.Kept
	if !d.Placed { // the queue gives the reason
		d.Reason = reason.Reason{}
	}
}

// hide marks those of the GPUs as taken that are free, until back is called.
func hide(c *pal.Cluster, gpus map[int]bool) (back func()) {
	var hidden []int
	for u := range gpus {
		if c.Available(u) {
			c.SetTaken(u, true)
			hidden = append(hidden, u)
		}
	}
	return func() {
		for _, u := range hidden {
			c.SetTaken(u, false)
		}
	}
}

func (s summary) allocations(st gang.Observed) []palapi.Allocation {
	var as []palapi.Allocation
	for _, a := range st.Members {
		node := a.Node
		n := s.m.State.Nodes[a.Node]
		if n != nil {
			node = n.Name
		}
		as = append(as, palapi.Allocation{ID: a.ID, Group: a.Group, Node: node, Status: a.Client, GPUs: a.GPUs})
	}
	return as
}
