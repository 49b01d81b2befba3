// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"slices"
	"time"
	"unique"

	"github.com/nomad-pal/nomad-pal/pal"
)

// finder finds GPUs for one gang, now or in a what-if. It ignores other waiting gangs, and decides
// nothing. It works on copies of the cluster.
type finder struct {
	*Queue
	now          time.Duration
	base         *pal.Cluster // the caller's cluster, which does not change
	c            *pal.Cluster // the cluster with what was decided so far
	ended, empty *pal.Cluster // see onceEnded and ever
	started      []*entry     // gangs whose start was decided, and which c shows
	// slack is set after a search for a gang has failed. Another gang of the same signature may fit
	// if its run time at cost 1 is at most slack. 0 means that no gang of this signature fits,
	// however short it is.
	slack time.Duration
	// startsAt is the time when the gang would start; 0 means now.
	startsAt time.Duration
}

// search identifies a search for GPUs by all that its answer depends on. Searches for gangs that
// share GPUs or spread depend on more, so they are not remembered.
type search struct {
	kind      unique.Handle[signature]
	threshold float64
	cluster   uint64 // the cluster's state
}

// answer is the answer to a search. It keeps the gang, because the signature contains addresses of
// parts of the gang, which must not be used for other parts meanwhile.
type answer struct {
	pal.Found
	ok   bool
	gang pal.Gang
}

// mostFound is the maximum number of remembered searches.
const mostFound = 1 << 12

// lookUp returns a placement for the gang on the cluster.
func (q *Queue) lookUp(c *pal.Cluster, e *entry, by pal.Policy) (pal.Found, bool) {
	q.trying = e.job.ID
	spreads := func(s pal.MemberSet) bool { return len(s.Spreads) > 0 }
	if e.job.Gang.Sharing != nil || by.Sample != nil || slices.ContainsFunc(e.job.Gang.MemberSets, spreads) {
		f, ok := pal.Find(c, e.job.Gang, by)
		q.trying = ""
		return f, ok
	}
	k := search{e.memo.kind, by.OutlierThreshold, c.State()}
	a, known := q.found[k]
	if !known {
		a.gang = e.job.Gang
		a.Found, a.ok = pal.Find(c, e.job.Gang, by)
		if len(q.found) >= mostFound {
			clear(q.found)
		}
		q.found[k] = a
	}
	q.trying = ""
	return a.Found, a.ok
}

// Trying returns the ID of the job for which the Queue is looking for GPUs; "" for none. After a
// panic during a search, it returns the job that was searched for.
func (q *Queue) Trying() string { return q.trying }

// search does the same as find, but ignores windows. If the gang does not fit without outliers and
// needs them, search tries again with outliers. There is no second try for gangs with their own
// bound on PM scores (within). Such a bound is set for elastic gangs that grow, and for gangs that
// can use an outlier now (onOutlier).
func (p *finder) search(e *entry) (pal.Found, bool) {
	by := policyFor(p.Queue, e)
	if e.within > 0 {
		by.OutlierThreshold = float64(e.within)
		return p.lookUp(p.c, e, by)
	}
	f, _, ok := p.avoiding(e, by)
	return f, ok
}

// policyFor returns the placement policy for a gang. Normally, the policy's RefuseBad keeps gangs
// off parts of shared GPUs where neighbours would slow each other too much. RefuseBad does not
// apply in three cases:
//
//   - The gang is overdue, and has its turn or a promise that it got in its turn.
//   - Other members of the gang already run. In this case, RoomFor has set anyNeighbour.
//   - The pass tests whether the gang does not fit because of RefuseBad. In this case, refused has
//     set anyNeighbour.
func policyFor(q *Queue, e *entry) pal.Policy {
	by := q.opt.Placement
	if e != nil && (e.anyNeighbour || q.hasTurn(e) || e.promised != nil && e.promised.inTurn) {
		by.RefuseBad = false
	}
	return by
}

// Look returns the placement that the Queue would find now for a gang on the cluster, and the
// policy that it used. ok is false if the gang does not fit. Look ignores waiting gangs and
// windows. Look avoids outliers, unless the gang could never run without outliers.
func (q *Queue) Look(c *pal.Cluster, g pal.Gang) (f pal.Found, by pal.Policy, ok bool) {
	e := &entry{job: Job{ID: g.ID, Gang: g}, gpus: g.GPUs()}
	q.sign(e)
	return q.newPass(0, c).avoiding(e, policyFor(q, q.entries[g.ID]))
}

// avoiding returns a placement without outliers or, if there is none and the gang needs outliers, a
// placement on any GPUs. The policy that was used is returned, too; ok is false if the gang does
// not fit.
func (p *finder) avoiding(e *entry, by pal.Policy) (f pal.Found, used pal.Policy, ok bool) {
	by.OutlierThreshold = p.avoids(p.c, e)
	f, ok = p.lookUp(p.c, e, by)
	if !ok && by.OutlierThreshold > 0 && p.needsOutliers(e, by) {
		by.OutlierThreshold = 0
		f, ok = p.lookUp(p.c, e, by)
	}
	return f, by, ok
}

// avoids returns the threshold above which GPUs are outliers for the gang; 0 if there are none, or if
// the cluster has too few other GPUs.
func (p *finder) avoids(c *pal.Cluster, e *entry) float64 {
	above := p.opt.OutlierThreshold
	if above > 0 {
		bad := c.Outliers(e.job.Gang.Class, above)
		if bad > 0 && e.gpus <= c.NumGPUs()-bad {
			return above
		}
	}
	return 0
}

// avoided returns the number of free GPUs that the gang does not use because they are outliers.
func (p *finder) avoided(e *entry) int {
	by := policyFor(p.Queue, e)
	by.OutlierThreshold = p.avoids(p.c, e)
	if by.OutlierThreshold == 0 || p.needsOutliers(e, by) {
		return 0
	}
	return p.c.FreeOutliersFor(e.job.Gang, by.OutlierThreshold)
}

// needsOutliers reports whether the gang would need outliers even if only gangs that never end kept
// their GPUs.
func (p *finder) needsOutliers(e *entry, by pal.Policy) bool {
	_, fits := p.lookUp(p.onceEnded(), e, by)
	return !fits
}

// place returns the placement that find returns, without the details of the search.
func (p *finder) place(e *entry) (pal.Placement, bool) {
	f, ok := p.find(e)
	return f.Placement, ok
}

// onceEnded returns the cluster as it is when only gangs that never end keep their GPUs.
func (p *finder) onceEnded() *pal.Cluster {
	if p.ended == nil {
		p.ended = p.without(p.ends)
	}
	return p.ended
}

// ever returns the cluster as it is when no gang of the Queue runs.
func (p *finder) ever() *pal.Cluster {
	if p.empty == nil {
		p.empty = p.without(func(*entry) bool { return true })
	}
	return p.empty
}

// without returns the caller's cluster without the gangs for which `gone` returns true.
func (p *finder) without(gone func(*entry) bool) *pal.Cluster {
	c := p.copyOf(p.base)
	for _, e := range p.all {
		if e.state != waiting && gone(e) {
			p.free(c, e, 0, len(e.placement.Members))
		}
	}
	return c
}

// ends reports whether the gang ends at some time or can be stopped. It returns false for a service
// that must not be stopped: no gang waits for the GPUs of such a service.
func (q *Queue) ends(e *entry) bool { return !e.job.Endless || q.mayStop(e) }

// fitsOn reports whether the gang fits on this cluster, whatever the windows.
func (p *finder) fitsOn(c *pal.Cluster, e *entry) (f pal.Found, ok bool) {
	p.on(c, func() { f, ok = p.search(e) })
	return f, ok
}

// possible reports whether the gang would fit on the GPUs that are healthy now if no gang of the
// Queue ran.
func (p *finder) possible(e *entry) bool {
	_, ok := p.fitsOn(p.ever(), e)
	return ok
}

// awaits reports whether the gang will fit at some time, even if all services keep running.
func (p *finder) awaits(e *entry) bool {
	_, ok := p.fitsOn(p.onceEnded(), e)
	return ok
}

// leastCost returns the gang's lowest possible cost: its cost if only gangs that never end kept
// their GPUs. For a service, leastCost returns the cost if none of the Queue's gangs ran. The cost
// is infinite if the gang would not fit at all.
func (p *finder) leastCost(e *entry) float64 {
	c := p.onceEnded()
	if e.job.Endless {
		c = p.ever()
	}
	f, ok := p.fitsOn(c, e)
	if !ok {
		return math.Inf(1)
	}
	return f.Cost()
}

// on calls f with another cluster.
func (p *finder) on(c *pal.Cluster, f func()) {
	was := p.c
	p.c = c
	f()
	p.c = was
}

// whatIf calls f on a copy of the cluster, which f may change.
func (p *finder) whatIf(f func()) {
	c := p.copyOf(p.c)
	p.on(c, f)
	p.spare = append(p.spare, c)
}

// copyOf returns a copy of a cluster, in the memory of an earlier copy if possible.
func (q *Queue) copyOf(c *pal.Cluster) *pal.Cluster {
	n := len(q.spare) - 1
	if n < 0 {
		return c.Clone()
	}
	o := q.spare[n]
	q.spare = q.spare[:n]
	pal.Copy(o, c)
	return o
}

// free frees, in the cluster c, the GPUs of the members from…to-1 of a gang. Members whose GPUs c
// does not show as taken are skipped. If a start was decided in an earlier pass, the cluster has not
// counted the gang's CPU and memory yet.
func (p *finder) free(c *pal.Cluster, e *entry, from, to int) {
	pl := e.placement
	pl.Members = pl.Members[from:to]
	if e.state == starting && !slices.Contains(p.started, e) {
		unmark(c, pl.GPUs())
		return
	}
	c.Release(e.job.Gang, among(pl, c.Taken))
}

// unmark marks GPUs as free.
func unmark(c *pal.Cluster, gpus []int) {
	for _, u := range gpus {
		if u < c.NumGPUs() && c.Taken(u) {
			c.SetTaken(u, false)
		}
	}
}

// hold marks the free GPUs in the list as taken, and returns them.
func (p *finder) hold(gpus []int) (held []int) {
	for _, u := range gpus {
		if u < p.c.NumGPUs() && p.c.Available(u) {
			p.c.SetTaken(u, true)
			held = append(held, u)
		}
	}
	return held
}

// besides calls f while these GPUs are not available.
func (p *finder) besides(gpus []int, f func()) {
	held := p.hold(gpus)
	f()
	unmark(p.c, held)
}

// busy reports whether a GPU is in use, by a gang of the Queue or by another job. For a GPU that
// is out of service, busy returns false, even if a job uses the GPU.
func (p *finder) busy(u int) bool {
	if p.c.Available(u) {
		return false
	}
	return p.c.GPU(u).Health == pal.Health{}
}

// freeNow returns the GPUs that are available.
func (p *finder) freeNow() []int {
	free := make([]int, 0, p.c.FreeGPUs())
	for u := range p.c.NumGPUs() {
		if p.c.Available(u) {
			free = append(free, u)
		}
	}
	return free
}

// setOf returns a list of GPUs as a set.
func setOf(gpus []int) map[int]bool {
	set := make(map[int]bool, len(gpus))
	for _, u := range gpus {
		set[u] = true
	}
	return set
}

// firstOn returns the index of the first member that has a GPU of the set. If there is none, it
// returns -1.
func firstOn(pl pal.Placement, set map[int]bool) int {
	return slices.IndexFunc(pl.Members, func(m pal.Member) bool {
		return slices.ContainsFunc(m.GPUs, func(u int) bool { return set[u] })
	})
}
