// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
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
)

// Advice for a waiting gang: which jobs hold GPUs that it could use, when they are expected to end,
// and which change would let the gang start now.

// mostHolders is the maximum number of holders that an explanation names.
const mostHolders = 20

// rankOf returns the sort key of the list of holders: see [palapi.Holders.Jobs].
func rankOf(h palapi.Holder) int {
	switch {
	case h.Stopping:
		return 0
	case !h.EndFrom.IsZero():
		return 1
	case h.Service:
		return 3
	}
	return 2
}

// matching returns a predicate for the GPUs on which a member of the gang could run if the cluster
// were idle. If the cluster has too few GPUs of a model for the gang, matching excludes this
// model's GPUs, unless all models have too few. small is the number of excluded GPUs.
func matching(c *pal.Cluster, g pal.Gang) (matches func(gpu int) bool, small int) {
	may, usable := make([]bool, c.Groups()), c.Usable(g)
	for group := range may {
		_, model := c.Group(group)
		for _, s := range g.MemberSets {
			may[group] = may[group] || s.Eligible == nil || s.Eligible[group]
		}
		if may[group] && usable[model] == 0 && len(usable) > 0 {
			_, n := c.GroupGPUs(group)
			may[group], small = false, small+n
		}
	}
	return func(gpu int) bool { return may[c.GroupOf(gpu)] }, small
}

// search finds out who holds GPUs, and what would fit. It tries changes on the view, and undoes
// them. Callers of its methods hold the snapshot's mu.
type search struct{ m *model.Model }

// holders finds the holders for a gang.
func (s search) holders(g pal.Gang, self cluster.JobKey) *palapi.Holders {
	c, held := s.m.View.Cluster, map[cluster.JobKey]int{}
	matches, _ := matching(c, g)
	kept := s.kept(self)
	may := func(gpu int) bool { return matches(gpu) && !kept[gpu] }
	for i := range c.NumGPUs() { // ignore decisions that the ledger does not show yet
		o := s.m.View.Owner(i)
		if o != (cluster.JobKey{}) && o != self && may(i) {
			held[o]++
		}
	}
	if len(held) == 0 {
		return nil
	}
	out := &palapi.Holders{}
	keys := slices.SortedFunc(maps.Keys(held), cluster.JobKey.Compare)
	byName := map[string]cluster.JobKey{}
	for _, k := range keys {
		job := s.m.State.Jobs[k]
		h := palapi.Holder{Job: k.String(), GPUs: held[k], Stopping: s.stopping(k), Service: job != nil && *job.Type == api.JobTypeService}
		byName[h.Job] = k
		t := s.m.Jobs[k]
		if t != nil {
			h.Preemptible = s.m.Cfg.Queue.Preempt && t.Request.Hints.Preempt
		}
		from, to, ok := s.m.Queue.Ends(gang.QueueTime(s.m.Time), k.String())
		if ok && !h.Stopping {
			h.EndFrom, h.EndTo = time.Unix(0, int64(from)), time.Unix(0, int64(to))
		}
		out.Jobs = append(out.Jobs, h)
	}
	slices.SortStableFunc(out.Jobs, func(a, b palapi.Holder) int {
		return cmp.Or(cmp.Compare(rankOf(a), rankOf(b)), a.EndFrom.Compare(b.EndFrom), cmp.Compare(b.GPUs, a.GPUs))
	})
	out.Omitted = max(0, len(out.Jobs)-mostHolders)
	out.Jobs = out.Jobs[:len(out.Jobs)-out.Omitted]
	s.needed(out, g, byName, kept)
	return out
}

// kept returns the GPUs that a waiting gang avoids because of windows.
func (s search) kept(k cluster.JobKey) map[int]bool {
	kept := map[int]bool{}
	for _, w := range s.m.Queue.KeptFrom(gang.QueueTime(s.m.Time), k.String(), s.m.View.Cluster) {
		for _, u := range w.GPUs {
			kept[u] = true
		}
	}
	return kept
}

// stopping reports whether the job holds GPUs only for members that were told to stop.
func (s search) stopping(k cluster.JobKey) bool {
	ending := false
	for _, a := range s.m.State.AllocsOf(k) {
		if a.Member() {
			return false
		}
		ending = ending || a.Live()
	}
	return ending
}

// holding returns what a holder requested; ok is false if the request is unknown. The model's gangs
// lack jobs that are left to Nomad, and ended jobs whose members are still stopping. So holding
// reads their requests again.
func (s search) holding(k cluster.JobKey, stopping bool) (r request.Request, ok bool) {
	job, t := s.m.State.Jobs[k], s.m.Jobs[k]
	if job != nil && (stopping || t == nil) {
		r, err := s.m.View.Request(job)
		return r, err == nil
	}
	if t == nil || t.Refused != nil {
		return r, false
	}
	return t.Request, true
}

// needed marks the holders that make room for the gang when they end one after another. needed
// ignores jobs whose request is unknown, and resources other than GPUs. The gang cannot use the GPUs
// in kept. needed restores the cluster afterwards.
func (s search) needed(h *palapi.Holders, g pal.Gang, keys map[string]cluster.JobKey, kept map[int]bool) {
	c := s.m.View.Cluster
	var back []func()
	defer func() {
		for _, take := range slices.Backward(back) {
			take()
		}
	}()
	for i := range h.Jobs {
		k := keys[h.Jobs[i].Job]
		r, ok := s.holding(k, h.Jobs[i].Stopping)
		if !ok {
			continue
		}
		at := s.m.View.Running(r, s.m.View.Holds(k))
		if len(at.Members) == 0 || slices.ContainsFunc(at.GPUs(), func(u int) bool { return !c.Taken(u) }) {
			continue
		}
		back = append(back, c.Vacate(r.Gang, at))
		back = append(back, hide(c, kept))
		h.Jobs[i].Needed = true
		_, _, h.Enough = s.m.Queue.Look(c, g)
		if h.Enough {
			return
		}
	}
	for i := range h.Jobs { // not even the end of all holders is enough
		h.Jobs[i].Needed = false
	}
}

// remedies returns changes that would let a waiting gang start now without overtaking gangs ahead
// of it. try is the first change in the form that -what-if accepts.
func (s search) remedies(t *model.Tracked) (out []reason.Reason, try string) {
	r, g := t.Request, t.Request.Least()
	_, w, fits := s.starts(t, g)
	if fits || w.Reason == reason.Locality {
		return nil, ""
	}
	if g.MaxTier != 0 {
		wider := g
		wider.MaxTier = 0
		of := reason.Reason{Kind: reason.WiderFits, Tier: g.MaxTier.String(), Try: "pal_locality="}
		_, w, fits := s.starts(t, wider)
		if w.Reason == reason.Locality {
			of.Until = time.Unix(0, int64(w.Until))
		}
		if fits || w.Reason == reason.Locality {
			out, try = append(out, of), of.Try
		}
	}
	if len(g.MemberSets) != 1 || g.MemberSets[0].Members < 2 {
		return out, try
	}
	// Find the largest number of members that fits.
	n := sort.Search(g.MemberSets[0].Members-1, func(i int) bool { _, _, fits := s.starts(t, withMembers(g, i+1)); return !fits })
	if n > 0 {
		key := sizeKey(r)
		fewer := reason.Reason{Kind: reason.FewerFit, Key: key, Room: n, Members: g.MemberSets[0].Members, Try: fmt.Sprintf("%s=%d", key, n)}
		try = cmp.Or(try, fewer.Try)
		if *t.Job.Type == api.JobTypeService {
			fewer = fewer.And(editCount)
		}
		out = append(out, fewer)
	}
	return out, try
}

// editCount advises how to change the number of members of a service that waits for members. Nomad
// blocks scaling during a deployment (seen on 1.11.3), and a service with missing members is in a
// deployment.
var editCount = reason.Reason{Kind: reason.EditCount}

// asking returns a waiting job in the queue's form, as if the job requested g.
func (s search) asking(t *model.Tracked, g pal.Gang) queue.Job {
	job := t.QueueJob(s.m.Cfg.RestartCost)
	job.Gang, job.Least = g, 0
	return job
}

// starts reports whether the queue would start a waiting job now if the job requested g, and returns
// the GPUs, or what the job would wait for.
func (s search) starts(t *model.Tracked, g pal.Gang) (at pal.Placement, w queue.Wait, ok bool) {
	if g.GPUs() > s.m.View.Cluster.FreeGPUs() {
		return at, w, false
	}
	return s.m.Queue.Ask(gang.QueueTime(s.m.Time), s.m.View.Cluster, s.asking(t, g), gang.QueueTime(t.WaitsSince()))
}

// whatNow sets the holders of GPUs that a waiting job could use, the remedies, and the change to
// try. Callers hold mu.
func (s *Snapshot) whatNow(e *draft, t *model.Tracked, w *model.Wait) {
	if w != nil && limited(w) {
		if w.Reason == reason.Quota {
			e.Remedies = []reason.Reason{{Kind: reason.AwaitTenant, User: w.User}}
		}
		return
	}
	e.Holders = search{s.m}.holders(t.Request.Least(), t.Key)
	e.Remedies, e.Try = search{s.m}.remedies(t)
	if w != nil && w.Reason == reason.Refused {
		e.Remedies = append(e.Remedies, reason.Reason{Kind: reason.AwaitPart})
	}
	e.Ask = s.ask(t, w)
}

// ask asks for an estimate if the run time of a waiting job is unknown. ask returns "" for other jobs,
// and while no placer is active.
func (s *Snapshot) ask(t *model.Tracked, w *model.Wait) string {
	job := t.QueueJob(s.m.Cfg.RestartCost)
	if w == nil || job.Endless || s.Activity.Idle() || s.m.Queue.Told(job) {
		return ""
	}
	return "Set the job's expected run time (pal_duration), because no earlier run of the job shows how long the job runs. A job with a short estimate can start in a gap before the jobs ahead of it, and is overdue sooner."
}

// sizeKey returns the -what-if key that sets the number of members: for an elastic job, the minimum
// in its scaling block.
func sizeKey(r request.Request) string {
	if r.Elastic != nil {
		return "min"
	}
	return "count"
}

// runsOn explains which GPUs a job's members have and, for a running job, where the job would be
// placed if it started now.
func (s search) runsOn(e *draft, t *model.Tracked) {
	c, g := s.m.View.Cluster, t.Request.Gang
	at := s.m.View.Running(t.Request, s.heldByMembers(t))
	complete := len(at.GPUs()) == g.GPUs() && !slices.ContainsFunc(at.GPUs(), func(u int) bool { return !c.Taken(u) })
	if t.Refused != nil || len(at.GPUs()) == 0 || !complete && !g.Replicas && !gang.HasCanaries(t.Job) {
		return
	}
	if !s.m.View.Reserved(t.Key) {
		e.holds = pal.Describe(c, g, at)
	}
	if !complete || t.Nomad != palapi.Running {
		return
	}
	defer c.Vacate(g, at)()
	f, _, ok := s.m.Queue.Look(c, g)
	if ok {
		e.Alternatives = []palapi.Alternative{{What: "the best now", Choice: pal.Describe(c, g, f.Placement)}}
	}
}

// heldByMembers returns the GPUs of the job's members. A member that Nomad is stopping is none, but
// holds its GPUs until it ends.
func (s search) heldByMembers(t *model.Tracked) []int {
	return slices.DeleteFunc(slices.Clone(s.m.View.Holds(t.Key)), func(u int) bool {
		return !slices.ContainsFunc(t.Members, func(a *cluster.Alloc) bool { return slices.Contains(a.GPUs, s.m.View.Cluster.GPU(u).ID) })
	})
}

// withMembers returns the gang with another number of members of its first set.
func withMembers(g pal.Gang, n int) pal.Gang {
	g.MemberSets = slices.Clone(g.MemberSets)
	g.MemberSets[0].Members = n
	return g
}
