// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"context"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// answers returns a function that checks each snapshot that a placer publishes. In a snapshot, the
// answers about waiting jobs must agree with the queue and the ledger of the placer. If only the
// time has changed between snapshots, the function checks one snapshot per minute.
func (r *rules) answers(name string) func(*query.Snapshot, bool) {
	var looked time.Time
	return func(s *query.Snapshot, changed bool) {
		if now := s.Model().Time; !changed && now.Sub(looked) < time.Minute && !now.Before(looked) {
			return
		}
		looked = s.Model().Time
		asked, wrong := untrue(s)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked += asked
		for _, text := range wrong {
			r.violated("%s: %s", name, text)
		}
	}
}

// untrue asks a snapshot about its waiting jobs. untrue returns the number of these jobs, and the
// answers that disagree with the queue and the ledger.
func untrue(s *query.Snapshot) (asked int, wrong []string) {
	m := s.Model()
	waits := map[string]queue.Wait{}
	for _, w := range m.Queue.Waiting(gang.QueueTime(m.Time), m.View.Cluster) {
		waits[w.Job] = w
	}
	for _, j := range s.Jobs() {
		k := cluster.JobKey{Namespace: j.Namespace, ID: j.Job}
		t := m.Jobs[k]
		if t == nil || t.Nomad != palapi.Waiting {
			continue
		}
		e, err := s.Explain(context.Background(), k)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s cannot be explained: %v", k, err))
			continue
		}
		asked++
		w, waiting := waits[k.String()]
		for _, what := range []string{
			heldWrong(t, waiting),
			reasonWrong(e, j, w, waiting),
			aheadWrong(m, e, waits),
			startWrong(m, e, j, w),
			holdersWrong(m, e),
		} {
			if what != "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s", k, what))
			}
		}
	}
	return asked, wrong
}

// reasonWrong compares the reason that explain gives with the reasons in the list of jobs and in
// the queue.
func reasonWrong(e *palapi.Explanation, j palapi.JobStatus, w queue.Wait, waiting bool) string {
	switch {
	case e.State != j.State || e.Reason.IsZero() || !alike(e.Reason, j.Reason):
		return fmt.Sprintf("explain says %s: %q, but the list says %s: %q", e.State, e.Reason.String(), j.State, j.Reason.String())
	case e.State == palapi.Waiting && waiting != (e.Wait != nil):
		return fmt.Sprintf("is the job in the queue? explain says %v, but the queue says %v", e.Wait != nil, waiting)
	case e.State == palapi.Waiting && waiting && w.Reason != reason.TooLarge && e.Wait.Reason != w.Reason:
		return fmt.Sprintf("explain says that the job waits for %q, but the queue says for %q", e.Wait.Reason, w.Reason)
	case e.State == palapi.Waiting && waiting && w.Reason != reason.TooLarge && (w.Reason != reason.Next || e.Reason.Kind == reason.Next) && !alike(e.Reason, w.Why()):
		return fmt.Sprintf("explain says %q, but the queue says %q", e.Reason.String(), w.Why().String())
	case e.State == palapi.Waiting && waiting && !alike(e.WaitsFor, e.Reason):
		return fmt.Sprintf("explain gives both %q and %q", e.Reason.String(), e.WaitsFor.String())
	}
	return ""
}

// heldWrong checks that a job on hold is not in the queue.
func heldWrong(t *model.Tracked, waiting bool) string {
	if t.Control.Held != nil && waiting {
		return "the job is held, but it is in the queue"
	}
	return ""
}

// alike reports whether two reasons mean the same. Two reasons are alike if they have the same
// kind. Two reasons are also alike if both say that GPUs are missing, with the same numbers of
// needed and free GPUs. alike compares nothing else.
func alike(a, b reason.Reason) bool {
	lacking := map[reason.Kind]bool{reason.GPUs: true, reason.Scattered: true, reason.Apart: true}
	if lacking[a.Kind] && lacking[b.Kind] {
		return a.Needs == b.Needs && a.Free == b.Free
	}
	return a.Kind == b.Kind
}

// aheadWrong checks that the job that goes first is a different job and waits. aheadWrong also
// checks that the jobs in Stopping are being stopped.
func aheadWrong(m *model.Model, e *palapi.Explanation, waits map[string]queue.Wait) string {
	if e.Wait == nil {
		return ""
	}
	if first := e.Wait.Ahead; first != "" {
		if _, waiting := waits[first]; !waiting || first == e.Namespace+"/"+e.Job {
			return fmt.Sprintf("explain says that %s goes first, but that job does not wait", first)
		}
	}
	for _, id := range e.Wait.Stopping {
		if t := m.ByID(id); t == nil || t.Nomad == palapi.Running && t.WhyStopped().IsZero() {
			return fmt.Sprintf("explain says that %s is being stopped for the job, but nothing is being stopped", id)
		}
	}
	return ""
}

// startWrong compares the expected start that explain gives with the expected starts in the list of
// jobs and in the queue.
func startWrong(m *model.Model, e *palapi.Explanation, j palapi.JobStatus, w queue.Wait) string {
	from, to := gang.QueueTime(e.StartFrom), gang.QueueTime(e.StartTo)
	switch {
	case !e.StartFrom.Equal(j.StartFrom) || !e.StartTo.Equal(j.StartTo):
		return fmt.Sprintf("explain expects the job to start from %v to %v, but the list says from %v to %v", e.StartFrom, e.StartTo, j.StartFrom, j.StartTo)
	case e.StartTo.IsZero():
		return ""
	case from > to || e.StartTo.Before(m.Time):
		return fmt.Sprintf("explain expects the job to start between %v and %v, but it is now %v", e.StartFrom, e.StartTo, m.Time)
	case w.Reason != reason.Locality && (from != w.From || to != w.To), w.Reason == reason.Locality && to > w.Until && to > gang.QueueTime(m.Time):
		return fmt.Sprintf("explain expects the job to start from %v to %v, but the queue says from %v to %v", e.StartFrom, e.StartTo, time.Unix(0, int64(w.From)), time.Unix(0, int64(w.To)))
	}
	return ""
}

// holdersWrong compares the holders of GPUs in an explanation with the holders in the ledger.
func holdersWrong(m *model.Model, e *palapi.Explanation) string {
	if e.Holders == nil {
		return ""
	}
	has := map[string]int{}
	for i := range m.View.Cluster.NumGPUs() {
		has[m.View.Owner(i).String()]++
	}
	for _, h := range e.Holders.Jobs {
		if h.GPUs < 1 || h.GPUs > has[h.Job] {
			return fmt.Sprintf("explain says that %s holds %d GPUs, but that job holds %d", h.Job, h.GPUs, has[h.Job])
		}
	}
	return ""
}
