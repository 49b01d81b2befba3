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
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/live"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// Explanation says why a job runs where it runs, or why it does not run.
type Explanation struct {
	Namespace string     `json:"namespace"` // the job's namespace
	Job       string     `json:"job"`       // the job's id
	State     gang.State `json:"state"`     // the job's state
	// Parent is the parameterized or periodic job that made this job.
	Parent string `json:"parent,omitempty"`
	// Runs counts the jobs that a parameterized or periodic job has made.
	Runs *model.Runs `json:"runs,omitempty"`
	// Reason is why the job is in its state.
	Reason reason.Reason `json:"reason,omitzero"`
	// Planned reports whether the explanation is a plan: it describes what would happen if the job,
	// or a changed form of it, were submitted now.
	Planned bool `json:"planned,omitempty"`
	// Outcome is how the job ended, if it has ended.
	Outcome *Outcome `json:"outcome,omitempty"`
	// Wait is the queue's answer about the job; nil if the job does not wait in the queue.
	Wait *queue.Wait `json:"wait,omitempty"`
	// WaitsFor is what the job waits for, according to the queue.
	WaitsFor reason.Reason `json:"waits_for,omitzero"`
	// StartFrom and StartTo are the range of the job's expected start, if there is a forecast.
	StartFrom time.Time `json:"start_from,omitzero"`
	StartTo   time.Time `json:"start_to,omitzero"`
	// Decision is the decision in force, or what would be decided now.
	Decision *pal.Decision `json:"decision,omitempty"`
	// Decided is when the decision in force was made. Ready is when the placer saw all members run.
	Decided time.Time `json:"decided,omitzero"`
	Ready   time.Time `json:"ready,omitzero"`
	// Restarted is the time when Nomad last restarted all members on the same GPUs, or started them
	// again after the gang had no members.
	Restarted time.Time `json:"restarted,omitzero"`
	// Mode is how tightly the job is tied to its GPUs (pal_pin): gpu, class or prefer.
	Mode string `json:"mode,omitempty"`
	// Predicted is the original choice, if Nomad gave the job other GPUs within its pins. If
	// Predicted is set, the decision has the GPUs that the job got.
	Predicted *pal.Choice `json:"predicted,omitempty"`
	// ClassFrom is the source of the application class.
	ClassFrom string `json:"class_from,omitempty"`
	// SpeedsFrom is the source of the job's speed on each GPU model.
	SpeedsFrom map[string]string `json:"speeds_from,omitempty"`
	// NeighboursFrom is the source of the cost of sharing a GPU with a neighbour of each class. The
	// cost of a missing class comes from the table of neighbours.
	NeighboursFrom map[pal.AppClass]string `json:"neighbours_from,omitempty"`

	// Note has further facts that matter for the job, such as its priority or a quota, separated by
	// "; ".
	Note string `json:"note,omitempty"`
	// Hold is who holds the job (nomad-pal hold), since when and why. A held job that runs keeps
	// running.
	Hold reason.Reason `json:"hold,omitzero"`
	// Obstacles are the reasons why nodes cannot run a job that cannot start.
	Obstacles []request.Obstacle `json:"obstacles,omitempty"`
	// Submitted is when the job began to wait; zero if unknown.
	Submitted time.Time `json:"submitted,omitzero"`
	// Holders are the jobs that hold GPUs for which the job waits. Remedies are changes that would
	// let a waiting job start now, or would let a job run that cannot run on this cluster as it is.
	Holders  *Holders        `json:"holders,omitempty"`
	Remedies []reason.Reason `json:"remedies,omitempty"`
	// Ask asks the user for an estimate if the run time of a waiting job is unknown, and describes
	// what an estimate would gain.
	Ask string `json:"ask,omitempty"`
	// Try is a remedy in the form that explain -what-if accepts.
	Try string `json:"try,omitempty"`
	// Alternatives are other placements, for comparison.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Tradeoffs are what the job would get now if its author requested something else.
	Tradeoffs []Tradeoff `json:"tradeoffs,omitempty"`
	// GPUNames maps the ids of the GPUs in this explanation to short names, which commands accept:
	// NODE:INDEX with nvidia-smi's number, or the beginning of the id if the number is unknown.
	GPUNames map[string]string `json:"gpu_names,omitempty"`
	// Failures are the job's members that failed, by try, the oldest first.
	Failures []model.Try `json:"failures,omitempty"`
	// Elastic is the size of an elastic gang.
	Elastic *queue.Size `json:"elastic,omitempty"`
	// NoGate reports whether the placer leaves the job to Nomad only because the job has no gate.
	NoGate bool `json:"no_gate,omitempty"`
	// Behind is true if the placer's view of the cluster is older than the job.
	Behind bool `json:"-"`
	// Leaving lists drained or disconnected nodes of the job's members, and its GPUs that are
	// unhealthy or gone, each with what happens to the affected members. For a service, Leaving
	// also lists windows that reserve the service's nodes now or within a day.
	Leaving []reason.Reason `json:"leaving,omitempty"`
	// Members are sentences on how often Nomad has retried members, and what happened to missing
	// members. Retry is how to get a missing member back if Nomad does not restart it.
	Members []reason.Reason `json:"members,omitempty"`
	Retry   Retry           `json:"retry,omitempty"`
	// Ran is the time when the last member ended, for a gang that ran and waits again.
	Ran time.Time `json:"ran,omitzero"`
	// StoppedWhy is why the placer stopped the job, if the placer stopped it.
	StoppedWhy reason.Reason `json:"stopped_why,omitzero"`
	// StartRun is the command that starts a run of a parameterized or periodic job.
	StartRun string `json:"start_run,omitempty"`
	// StoppedFor is the job (namespace/id) for which this job was stopped, if known.
	StoppedFor string `json:"stopped_for,omitempty"`
	// Deployment is the service's deployment, if it is active or has failed.
	Deployment *Deployment `json:"deployment,omitempty"`
	// EndFrom and EndTo are the range in which a running job is expected to end. EndWhy is what the
	// range is based on, or why the end is unknown.
	EndFrom time.Time `json:"end_from,omitzero"`
	EndTo   time.Time `json:"end_to,omitzero"`
	EndWhy  string    `json:"end_why,omitempty"`
	// Allocations are the job's live members.
	Allocations []Allocation `json:"allocations,omitempty"`
	// Live maps GPU ids to their current load, if it is known.
	Live map[string]live.Use `json:"live,omitempty"`
	// Idle maps the id of each idle GPU of the job to the time since which the GPU has been idle.
	Idle map[string]time.Time `json:"idle,omitempty"`
}

// Allocation is a live member, with the GPUs that Nomad allocated to it.
type Allocation struct {
	ID     string   `json:"id"`     // the allocation's id
	Group  string   `json:"group"`  // the member's task group
	Node   string   `json:"node"`   // name of the member's node; the node's id if the placer has not read the node
	Status string   `json:"status"` // Nomad's client status, such as running
	GPUs   []string `json:"gpus"`   // ids of the member's GPUs
	// Version is the version of the job that the member runs; missing if no deployment is shown.
	Version *uint64 `json:"version,omitempty"`
}

// draft is an explanation in the making, with what only its making needs.
type draft struct {
	Explanation
	// orders is a note on orders about the job: a changed priority, or its release.
	orders string
	// holds are the GPUs of the job's members. holds is nil for a gang without all its members,
	// because the missing members come back to the GPUs that were chosen.
	holds *pal.Choice
	// asks is the application class that the job requests now.
	asks pal.AppClass
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
		r.Kind, r.Tier, r.Because = d.Reason.Kind, d.Reason.Tier, d.Reason.Because
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
func (s *Snapshot) Explain(ctx context.Context, k cluster.JobKey) (*Explanation, error) {
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
	case gang.Waiting:
		return e, nil
	case gang.Native, gang.Template:
	default:
		d, err := deployment(ctx, s.nomad, st)
		if err != nil {
			return nil, err
		}
		e.addTried(s, st, d != nil)
		if err := s.canariesWait(ctx, e, st); err != nil {
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
	if st = s.m.Observed(job); st.Nomad == gang.Rejected { // isolated after a panic: do not examine the job
		why, _ := s.m.Isolated(job, s.m.Time)
		return &draft{Explanation: Explanation{Namespace: k.Namespace, Job: k.ID, State: gang.Rejected, Reason: why}}, st, true
	}
	e = &draft{Explanation: Explanation{Namespace: k.Namespace, Job: k.ID, State: st.Nomad, Allocations: s.allocations(st), Failures: s.m.Tries(k), ClassFrom: s.m.View.ClassFrom(job)}}
	e.Submitted, e.Leaving = time.Unix(0, *job.SubmitTime), s.m.Leaving(st)
	if cluster.Child(job) {
		e.Parent = *job.ParentID
	}
	if t := s.m.Jobs[k]; t != nil {
		e.Submitted, e.SpeedsFrom, e.NeighboursFrom = t.Submitted(), t.Request.SpeedsFrom, t.Request.NeighboursFrom
		e.Elastic, e.asks, e.Hold, e.orders = s.m.SizeOf(t), t.Request.Gang.Class, t.Control.Hold(), ordersSentence(t)
		if st.Nomad == gang.Running || st.Nomad == gang.Starting {
			s.whenEnds(e, t)
		}
		s.runsOn(e, t)
	}
	switch st.Nomad {
	case gang.Native:
		e.native(st)
	case gang.Template:
		e.Reason, e.Runs, e.StartRun = request.TemplateReason(job, s.m.Cfg.Children), s.runsOf(k), StartRun(job)
	case gang.Waiting:
		s.explainWaiting(e, s.m.Jobs[k])
		s.ranBefore(e, k)
	case gang.Ended:
		e.Outcome = OutcomeOf(s.m, st)
		e.Reason = e.Outcome.Reason
		e.Runs = s.runsOf(k)
	default:
		e.Reason = membersSay(s.m.State, st)
		t := s.m.Jobs[k]
		if t != nil && !t.GaveUp().IsZero() {
			e.State, e.Reason = gang.Failed, t.GaveUp()
		}
		if (st.Nomad == gang.Starting || st.Nomad == gang.Lost) && t != nil {
			e.Reason = e.Reason.And(t.Trouble())
		}
		e.Reason = s.tooLarge(t).Or(model.CanariesRun(st)).Or(e.Reason)
		e.broken(t)
	}
	return e, st, true
}

// ranBefore says when a waiting job ran before, and why it was stopped.
func (s facts) ranBefore(e *draft, k cluster.JobKey) {
	e.Ran = lastEnd(s.m.State.AllocsOf(k), e.Submitted)
	if t := s.m.Jobs[k]; t != nil && t.Record != nil && t.Record.Stopped.After(t.Record.Decided) && !e.Ran.IsZero() {
		e.StoppedWhy, e.StoppedFor = t.Record.StoppedWhy, t.Record.StoppedFor
	}
}

// broken handles a job that still runs in its old version because its newer version is invalid: it
// adds to the explanation what to fix. t may be nil.
func (e *draft) broken(t *model.Tracked) {
	if t == nil || t.Refused == nil || e.State == gang.Failed {
		return
	}
	e.Reason = e.Reason.And(reason.Reason{Kind: reason.RunsUnread, Cause: t.Refused.Error()})
	e.Remedies = append(e.Remedies, reason.Reason{Kind: reason.FixVersion})
}

// lastEnd returns the latest end among the members that were placed after the time since; zero if
// there is none.
func lastEnd(as []*cluster.Alloc, since time.Time) (at time.Time) {
	for _, a := range as {
		if ended := a.End(); !a.Live() && a.CreateTime > since.UnixNano() && ended.After(at) {
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
		e := &draft{Explanation: Explanation{Namespace: k.Namespace, Job: k.ID, State: gang.Waiting, Behind: true}}
		if e.Reason = (reason.Reason{Kind: reason.NewJob}); s.m.State.Unread[k] != nil {
			e.State, e.Reason = gang.Rejected, reason.Reason{Kind: reason.Unreadable, Cause: s.m.State.Unread[k].Error()}
		}
		return e, nil
	}
	if rewrite.Gated(job) {
		why := model.Refused(request.Servable(job))
		if len(rewrite.OtherDevices(job)) == 0 {
			why.Kind = reason.StaysGated
		}
		return &draft{Explanation: Explanation{Namespace: k.Namespace, Job: k.ID, State: gang.Rejected, Reason: why}}, nil
	}
	return &draft{Explanation: Explanation{Namespace: k.Namespace, Job: k.ID, State: gang.Native, Reason: reason.Reason{Kind: reason.WithoutGPUs, Cause: request.NoGPUs(job)}}}, nil
}

// native sets the reason why the placer leaves a job to Nomad.
func (e *draft) native(st gang.Observed) {
	e.Reason = reason.Reason{Kind: reason.NotOurs, Needs: st.Holds(), Have: st.Have, Want: st.Want}
	if err := request.Servable(rewrite.Author(st.Job)); err != nil { // without pins that a release left
		e.Reason.Cause = err.Error()
		return
	}
	e.NoGate, e.Reason.Kind = true, reason.Ungated
}

// addRecord adds the recorded last decision to the explanation.
func (s *Snapshot) addRecord(ctx context.Context, e *draft, st gang.Observed) error {
	if e.Outcome != nil && (e.Outcome.Status == "stopped" || e.Outcome.Status == AtRest) { // stopping the job made a new version; the version before has the author's submit time
		if vs, err := s.nomad.Versions(ctx, st.Key); err == nil && *st.Job.Version > 0 && vs[*st.Job.Version-1] != nil {
			e.Submitted = time.Unix(0, *vs[*st.Job.Version-1].SubmitTime)
		}
	}
	r, err := s.lastRecord(ctx, st)
	if err != nil || r == nil || st.Nomad == gang.Native && !e.holdsAll(r.Decision.Chosen) {
		return err
	}
	e.Restarted = restarted(st, r)
	switch {
	case e.holds == nil:
	case st.Nomad == gang.Running:
		r.Got(e.holds)
		r.Resized(e.holds)
		r.Decision.Chosen = besideNow(r.Decision.Chosen, e.holds)
		e.remeasured(r.Decision)
	case !r.Ready.IsZero(): // replicas are missing
		r.Decision.Chosen, r.Predicted = e.holds, nil
	}
	if e.asks != "" && e.asks != r.Decision.Class {
		e.ClassFrom = fmt.Sprintf("the class when the gang was placed; the job's class is now %s, which counts when the gang is placed again", e.asks)
	}
	e.Decision, e.Predicted, e.Decided, e.Ready, e.Mode, e.Note = &r.Decision, r.Predicted, r.Decided, r.Ready, string(r.Mode), string(r.Note)
	if st.Nomad == gang.Starting && r.Ready.After(s.m.Time) { // the members started after the snapshot, so none is lost
		e.Ready = time.Time{}
	}
	if st.Nomad == gang.Native { // the job was released, and no longer has pins
		e.Mode = ""
	}
	if st.Nomad == gang.Ended && len(st.Pins.Groups) > 0 {
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

// MeasuredNow names the alternative that consists of the gang's own GPUs with their current
// measurements.
const MeasuredNow = "here, measured now"

// remeasured adds the alternative MeasuredNow if its slowdown differs by 5 % or more from the
// decision's, because a GPU was measured again after the decision.
func (e *draft) remeasured(d pal.Decision) {
	was := d.Chosen
	if was == nil || e.asks != "" && e.asks != d.Class || e.holds.Cost > 0.95*was.Cost && e.holds.Cost < 1.05*was.Cost {
		return
	}
	e.Alternatives = slices.Insert(e.Alternatives, 0, Alternative{MeasuredNow, e.holds})
}

// recordComes is the time after a placement within which the placer writes its record, except in
// bursts of placements. recordComes includes the delay before the write, and the time until the
// placer sees the members.
const recordComes = 2 * time.Second

// restarted returns when Nomad last restarted all members of a running gang on the same GPUs, or
// started them after the gang had no members; zero if Nomad did neither. Nomad restarts members
// when an edit changes their tasks.
func restarted(st gang.Observed, r *gang.Record) time.Time {
	switch {
	case st.Nomad != gang.Running || r.Ready.IsZero():
		return time.Time{}
	case r.JobModifyIndex >= *st.Job.JobModifyIndex:
		return r.Restarted
	}
	return st.PlacedAgain()
}

// lastRecord reads the record of a job. If the job's members have just been placed, lastRecord
// waits for the new record, because Nomad can still have the previous one.
func (s *Snapshot) lastRecord(ctx context.Context, st gang.Observed) (*gang.Record, error) {
	for began := time.Now(); ; {
		r, err := store.In(s.nomad).Record(ctx, st.Key)
		if store.Unreadable(err) { // the placer replaces damaged records
			return nil, nil
		}
		if err != nil || !recordToCome(r, st, began, time.Now()) {
			return r, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// recordToCome reports whether a new record is expected soon. began is when the caller started to
// wait. The caller waits for [recordComes] at most, because clocks differ.
func recordToCome(r *gang.Record, st gang.Observed, began, now time.Time) bool {
	placed := len(st.Pins.Groups) > 0 && (st.Nomad == gang.Running || st.Nomad == gang.Ended)
	known := r != nil && r.JobModifyIndex >= *st.Job.JobModifyIndex
	registered := time.Unix(0, *st.Job.SubmitTime)
	return placed && !known && now.Sub(registered) <= recordComes && now.Sub(began) <= recordComes
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
	switch e.State = t.Shown(s.m, wait); e.State {
	case gang.Failed:
		e.Reason = t.GaveUp()
		return
	case gang.Rejected:
		e.Reason = model.Refused(t.Refused)
		return
	case gang.Unschedulable:
		if t.Never != nil {
			e.never(t.Never.Obstacles)
			return
		}
	}
	defer s.keptForIt(e.State, t)()
	d := s.explainOn(s.m.View.Cluster, t.Request.Least())
	if !d.Placed {
		e.Obstacles = s.m.View.Obstacles(t.Job, sparing(d))
		model.Obstruct(&d, e.Obstacles)
	}
	s.besideWindows(s.m.View.Cluster, t.Key, t.Request.Least(), &d)
	e.Decision, e.Mode = &d, string(t.Request.Mode)
	if nodes := s.m.Avoids(t.Observed, s.m.Time); len(nodes) > 0 {
		e.Note = fmt.Sprintf("the placer avoids %s for this job if possible, because members failed there within the last hour", strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))
	}
	s.notePriority(e, t)
	s.noteTenant(e, t)
	if e.State != gang.Unschedulable {
		s.noteWindows(e, t)
	}
	s.notePreempt(e, t)
	if job := t.QueueJob(s.m.Cfg.RestartCost); job.Estimate > 0 {
		if taken := s.m.Queue.Estimate(job); taken != job.Estimate {
			e.addNote(fmt.Sprintf("pal_duration = %s counts as %s, because jobs of namespace %s have run %.3g times as long as estimated",
				model.ShortDuration(job.Estimate), model.ShortDuration(taken.Round(time.Minute)), t.Key.Namespace, float64(taken)/float64(job.Estimate)))
		}
	}
	if wait != nil {
		_, small := matching(s.m.View.Cluster, t.Request.Least())
		e.takeWait(wait, &d, small)
	}
	e.Reason = t.WhyWaits(s.m, wait, e.WaitsFor)
	if e.State == gang.Waiting && t.After == nil {
		d.Impossible = false // the gang may fit on nodes that are away
		s.whatNow(e, t, wait)
		e.Tradeoffs = s.thatMayStart(t, s.tradeoffs(s.m.View.Cluster, t.Request.Least(), sizeKey(t.Request, "min")))
	}
	if e.State == gang.Unschedulable {
		e.neverRuns(s.m.View, t.Job)
	}
	if ending := s.m.Ending(t.Observed); !ending.IsZero() && (e.State == gang.Waiting || e.State == gang.Completing) {
		e.State, e.Reason = gang.Completing, ending
	}
}

// keptForIt frees, until back is called, the GPUs reserved for a gang that is being started, so
// that the explanation does not count these GPUs as allocated.
func (s facts) keptForIt(state gang.State, t *model.Tracked) (back func()) {
	if state != gang.Committing {
		return func() {}
	}
	_, back = s.m.View.Without(t.Key)
	return back
}

// never marks the job as one that Nomad cannot place on any node.
func (e *draft) never(found []request.Obstacle) {
	e.State, e.Obstacles, e.Reason = gang.Unschedulable, found, request.NeverPlaced(found)
	e.Remedies = append(e.Remedies, reason.Reason{Kind: reason.ChangeJob})
}

// askNomad asks Nomad's scheduler about a job that waits, or that could start according to the
// snapshot. If Nomad refuses the job on every node, the job can never start.
func (s *Snapshot) askNomad(ctx context.Context, e *draft, job *api.Job) {
	if s.nomad == nil || e.State != gang.Waiting && e.State != gang.Starting || cluster.Template(job) || cluster.Child(job) {
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
			e.State, e.Reason = gang.Waiting, reason.Reason{Kind: reason.NomadRefuses, Cause: refused}
		}
		return
	case len(found) == 0:
		return
	}
	*e = draft{Explanation: Explanation{Planned: e.Planned, Namespace: e.Namespace, Job: e.Job, Submitted: e.Submitted, Mode: e.Mode, ClassFrom: e.ClassFrom, SpeedsFrom: e.SpeedsFrom, GPUNames: e.GPUNames, Failures: e.Failures, Elastic: e.Elastic}}
	e.never(found)
}

// explainOn explains what the queue would find for a gang on a cluster.
func (s facts) explainOn(c *pal.Cluster, g pal.Gang) pal.Decision {
	_, by, _ := s.m.Queue.Look(c, g)
	return pal.Explain(c, g, by)
}

// besideWindows handles a waiting job that would fit if no window reserved GPUs. besideWindows
// makes d explain only the GPUs that no window reserves. The other GPUs count as kept.
func (s facts) besideWindows(c *pal.Cluster, k cluster.JobKey, g pal.Gang, d *pal.Decision) {
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

func (s facts) allocations(st gang.Observed) []Allocation {
	var as []Allocation
	for _, a := range st.Members {
		node := a.Node
		if n := s.m.State.Nodes[a.Node]; n != nil {
			node = n.Name
		}
		as = append(as, Allocation{ID: a.ID, Group: a.Group, Node: node, Status: a.Client, GPUs: a.GPUs})
	}
	return as
}

// RedactedFor returns the explanation as a user may see it. RedactedFor replaces the names of jobs
// in namespaces that the user may not see.
func (e Explanation) RedactedFor(sees model.Sees) *Explanation {
	if e.Wait != nil {
		now := sees.Wait(*e.Wait)
		e.Wait = &now
	}
	for _, r := range []*reason.Reason{&e.Reason, &e.WaitsFor, &e.StoppedWhy, &e.Hold} {
		*r = r.RedactedFor(sees.Name)
	}
	for _, rs := range []*[]reason.Reason{&e.Remedies, &e.Leaving, &e.Members} {
		*rs = reason.AllRedactedFor(*rs, sees.Name)
	}
	if e.Decision != nil {
		d := *e.Decision
		d.Reason = d.Reason.RedactedFor(sees.Name)
		e.Decision = &d
	}
	if e.Outcome != nil {
		o := *e.Outcome
		o.Reason = o.Reason.RedactedFor(sees.Name)
		e.Outcome = &o
	}
	e.StoppedFor = sees.Name(e.StoppedFor)
	if e.Holders != nil {
		h := *e.Holders
		h.Jobs = slices.Clone(h.Jobs)
		for i := range h.Jobs {
			h.Jobs[i].Job = sees.Name(h.Jobs[i].Job)
		}
		e.Holders = &h
	}
	return &e
}
