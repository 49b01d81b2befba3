// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// addNote appends said to the note, if said is not empty.
func (e *draft) addNote(said string) {
	if e.Note != "" && said != "" {
		e.Note += "; "
	}
	e.Note += said
}

// noteSize notes the size of an elastic gang, and how the size can change.
func (e *draft) noteSize() {
	if e.Elastic != nil {
		e.addNote(sizeInWords(e.Elastic, e.State))
	}
}

// noteUncapped adds to the note how many GPUs of a gang of class A have scores that say little
// about training.
func (s *Snapshot) noteUncapped(e *draft) {
	if e.Decision == nil || e.Decision.Chosen == nil || e.Decision.Class != pal.ClassA || e.State == palapi.Ended {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, uncapped := 0, (&hardware{m: s.m}).uncapped()
	for _, id := range e.Decision.Chosen.GPUIDs() {
		i := s.m.View.Cluster.Find(id)
		if i >= 0 && uncapped(i) {
			n++
		}
	}
	if n > 0 {
		e.addNote(palapi.Uncapped(n))
	}
}

// sizeInWords describes the size of an elastic gang, and how the size can change.
func sizeInWords(s *queue.Size, st palapi.State) string {
	members := reason.Counted(s.Members, "member", "members")
	switch {
	case s.Members == 0 || st == palapi.Waiting || st == palapi.Unschedulable:
		return fmt.Sprintf("elastic: the gang starts with %d to %d members: as many as fit, unless the gang would finish sooner with fewer", s.Least, s.Most)
	case s.Settled:
		return fmt.Sprintf("elastic: the gang runs with %s (%d to %d allowed), and keeps this size until it starts again", members, s.Least, s.Most)
	case s.Members >= s.Most:
		return fmt.Sprintf("elastic: the gang runs with all its members (%d to %d allowed); it gives GPUs back when an equally important gang waits for them", s.Least, s.Most)
	}
	return fmt.Sprintf("elastic: the gang runs with %s (%d to %d allowed); it grows on GPUs that nobody waits for, when this saves time", members, s.Least, s.Most)
}

// noteWindows notes which windows reserve GPUs that a waiting job could use.
func (s summary) noteWindows(e *draft, t *model.Tracked) {
	for _, k := range s.m.Queue.KeptFrom(gang.QueueTime(s.m.Time), t.Key.String(), s.m.View.Cluster) {
		e.addNote(fmt.Sprintf("window %s keeps %s from %s to %s, because the job might run then", k.Name, pal.CountGPUs(len(k.GPUs)), model.Moment(k.From), model.Moment(k.To)))
	}
}

// whenEnds explains when a running job is expected to end and what this expectation is based on, or
// why the end is not known.
func (s summary) whenEnds(e *draft, t *model.Tracked) {
	e.EndFrom, e.EndTo = s.ends(t.Key)
	if e.EndTo.IsZero() {
		job := t.QueueJob(s.m.Cfg.RestartCost)
		runs, _, _ := s.m.Queue.EarlierRuns(t.Key.String())
		switch {
		case job.Endless:
			e.EndWhy = "when somebody stops the job, which is a service"
		case job.Estimate > 0 || runs > 0 || job.Limit > 0:
			e.EndWhy = "not known: the job has run longer than predicted"
		default:
			e.EndWhy = "not known: the job has no pal_duration, and none of its runs has ended yet"
		}
		return
	}
	job, longer := t.QueueJob(s.m.Cfg.RestartCost), 1.0
	r := t.Record
	if r != nil && r.Decision.Chosen != nil {
		longer = r.Decision.Chosen.Cost
	}
	runs, shortest, longest := s.m.Queue.EarlierRuns(t.Key.String())
	switch {
	case job.Estimate > 0:
		e.EndWhy = "pal_duration = " + palapi.ShortDuration(job.Estimate) + " counts as the time on the best GPUs that the job can get"
		longer /= cmp.Or(job.Best, 1)
	case runs > 0:
		e.EndWhy = earlierRuns(runs, shortest, longest) + " on median GPUs of one node"
	default:
		e.EndWhy = "max_run_duration is the only thing known about its run time"
	}
	n := e.Elastic
	if n != nil && n.Members < n.Most {
		e.EndWhy += fmt.Sprintf("; with %d of %d members %.3g times as long", n.Members, n.Most, queue.Slower(n.Members, n.Most))
	}
	if longer != 1 {
		e.EndWhy += fmt.Sprintf("; on the job's GPUs %.3g times as long", longer)
	}
	e.EndWhy += "; 8 of 10 jobs end within their range"
}

// earlierRuns describes how long the earlier runs of a job's name took.
func earlierRuns(runs int, shortest, longest time.Duration) string {
	took := palapi.ShortDuration(shortest.Round(time.Second))
	to := palapi.ShortDuration(longest.Round(time.Second))
	if to != took {
		took += " to " + to
	}
	if runs == 1 {
		return "its last run took " + took
	}
	return fmt.Sprintf("its last %d runs took %s", runs, took)
}

// ordersSentence describes a priority that somebody has set without the jobspec, and the order to
// release the job; "" if there is neither.
func ordersSentence(t *model.Tracked) string {
	switch {
	case t.Control.Release != nil:
		return "when all its members are placed, the job is handed over to Nomad (nomad-pal release)"
	case t.Control.Priority == 0:
		return ""
	}
	return fmt.Sprintf("priority %d (set with nomad-pal priority; the jobspec has %d)", t.Control.Priority, *t.Job.Priority)
}

// holding splits a tenant's GPUs into GPUs that its jobs hold and GPUs for which its jobs wait
// (Awaited). The queue counts GPUs of both kinds, because a running service can wait for GPUs for
// members that its author added. holding also sets Ungated.
func holding(u *queue.TenantUse, held map[string]model.NamespaceHolds) {
	has, ungated := 0.0, 0.0
	for _, namespace := range u.Namespaces {
		has += held[namespace].GPUs
		ungated += held[namespace].Ungated
	}
	has, u.Ungated = reason.Rounded(has), reason.Rounded(ungated)
	u.GPUs, u.Awaited = has, reason.Rounded(max(0, u.GPUs-has))
}

// Tenants returns the tenants with namespaces that the user may see. Tenants names only these
// namespaces, and names users only if the user may see all namespaces of the tenant.
func (s *Snapshot) Tenants(sees palapi.Sees) []queue.TenantUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	tenants := s.m.Queue.Tenants(gang.QueueTime(s.m.Time))
	held := s.m.HeldByNamespace()
	for i := range tenants {
		holding(&tenants[i], held)
		unseen := func(namespace string) bool { return !sees(namespace) }
		if slices.ContainsFunc(tenants[i].Namespaces, unseen) {
			tenants[i].Users = nil
		}
		tenants[i].Namespaces = slices.DeleteFunc(tenants[i].Namespaces, unseen)
	}
	return slices.DeleteFunc(tenants, func(u queue.TenantUse) bool { return len(u.Namespaces) == 0 })
}

// addRefusal explains why Nomad does not place the canaries of a running service's new version, or
// the missing members of a job that the placer leaves to Nomad, if Nomad has tried and failed.
func (s *Snapshot) addRefusal(ctx context.Context, e *draft, st gang.Observed) error {
	placed := func(a *cluster.Alloc) bool { return a.PlacedFor(st.Job) }
	canaries := st.Nomad == palapi.Running && gang.HasCanaries(st.Job) && !slices.ContainsFunc(st.Members, placed)
	if !canaries && (st.Nomad != palapi.Native || st.Have >= st.Want) {
		return nil
	}
	evals, err := s.nomad.Evaluations(ctx, st.Key)
	if err != nil {
		return err
	}
	blocked, _ := gang.Blocked(st.Job, evals)
	if blocked != nil {
		e.Reason = e.Reason.And(gang.Refusal(blocked))
	}
	return nil
}

// notePreempt notes which configuration key allows the placer to stop the job for other jobs,
// unless the job itself sets pal_preempt.
func (s summary) notePreempt(e *draft, t *model.Tracked) {
	from := t.Request.PreemptFrom
	if from != "" {
		e.addNote(fmt.Sprintf("%s allows nomad-pal to stop the job for other jobs; pal_preempt = \"false\" in the job's meta forbids this", from))
	}
}
