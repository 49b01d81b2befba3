// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// place is find for callers that need only the placement, not the details of its search. Both leave
// out GPUs that are outliers for the gang's class, unless the gang could never run without them.
func (p *finder) place(e *entry) (pal.Placement, bool) {
	f, ok := p.find(e)
	return f.Placement, ok
}

// search is find without windows: one search of package pal, or a second one with outliers for a
// gang that needs them. Some gangs have their own bound on PM scores (within): elastic gangs that
// grow, and gangs that may use an outlier now (anyGPU). For these the first search decides.
func (p *finder) search(e *entry) (pal.Found, bool) {
	p.trying = e.job.ID
	if e.within > 0 {
		policy := placementOf(p.Queue, e)
		policy.Market = p.market(e, p.c)
		policy.OutlierThreshold = float64(e.within)
		f, ok := pal.Find(p.c, e.job.Gang, policy)
		p.trying = ""
		return f, ok
	}
	f, _, ok := p.opt.avoiding(p.c, e.job.Gang, placementOf(p.Queue, e), p.market(e, p.c), func(policy pal.Policy) bool { return p.needsOutliers(e, policy) })
	p.trying = "" // not deferred: see Trying
	return f, ok
}

// placementOf returns the policy for a gang. Normally RefuseBad keeps gangs off parts of shared
// GPUs where the neighbours would slow each other too much. It does not apply in three cases:
//
//   - the gang is overdue and has its turn, or a claim that it got in its turn
//   - other members of the gang already run (anyNeighbour, set by RoomFor)
//   - the asker tests whether RefuseBad is why the gang does not fit (anyNeighbour, set by refused)
func placementOf(q *Queue, e *entry) pal.Policy {
	by := q.opt.Placement
	if e != nil && (e.anyNeighbour || q.turn != nil && q.turn.by == e || e.claim != nil && e.claim.granted) {
		by.RefuseBad = false
	}
	return by
}

// Look returns the placement that the Queue would find for a gang on the cluster now, and the
// policy used. It ignores waiting gangs and windows. It leaves out outliers unless the gang could
// never run without them.
func (q *Queue) Look(c *pal.Cluster, g pal.Gang) (f pal.Found, by pal.Policy, ok bool) {
	p := q.at(0, c)
	return q.opt.avoiding(c, g, placementOf(q, q.entries[g.ID]), q.market(q.entries[g.ID], c), func(by pal.Policy) bool { return !p.fitsLater(g, by) })
}

// avoiding looks for GPUs that are not outliers, or for any GPUs if the gang needs outliers.
func (o *Options) avoiding(c *pal.Cluster, g pal.Gang, by pal.Policy, m pal.Market, needs func(pal.Policy) bool) (f pal.Found, used pal.Policy, ok bool) {
	by.Market = m
	if o.OutlierThreshold > 0 {
		if bad := c.Outliers(g.Class, o.OutlierThreshold); bad > 0 && g.GPUs() <= c.NumGPUs()-bad {
			by.OutlierThreshold = o.OutlierThreshold
		}
	}
	f, ok = pal.Find(c, g, by)
	if !ok && by.OutlierThreshold > 0 && needs(by) {
		by.OutlierThreshold = 0
		f, ok = pal.Find(c, g, by)
	}
	return f, by, ok
}

// avoided counts the free GPUs that the gang does not use because they are outliers.
func (p *finder) avoided(e *entry) int {
	by, threshold := placementOf(p.Queue, e), p.opt.OutlierThreshold
	if threshold <= 0 {
		return 0
	}
	n := p.c.FreeOutliersFor(e.job.Gang, threshold)
	if bad := p.c.Outliers(e.job.Gang.Class, threshold); n == 0 || e.gpus > p.c.NumGPUs()-bad {
		return 0
	}
	if by.OutlierThreshold = threshold; p.needsOutliers(e, by) {
		return 0
	}
	return n
}

// fitsLater reports whether the gang would fit after all gangs that end have ended. GPUs that the
// pass keeps for other gangs count as free, too.
func (p *finder) fitsLater(g pal.Gang, policy pal.Policy) bool {
	defer p.unmark(slices.Concat(p.thoseThatEnd(), p.kept, p.hidden))()
	_, fits := pal.Find(p.c, g, policy)
	return fits
}

// thoseThatEnd lists the GPUs of gangs that end: see [finder.ends].
func (p *finder) thoseThatEnd() (gpus []int) {
	for _, es := range [][]*entry{p.running, p.started} {
		for _, e := range es {
			if p.ends(e) {
				gpus = append(gpus, e.placement.GPUs()...)
			}
		}
	}
	return gpus
}

// ends reports whether the gang ends at some time, or may be stopped. No gang waits for GPUs of
// services, which may never come free. The same holds for GPUs that outsiders have taken.
func (p *finder) ends(e *entry) bool { return !e.job.Endless || p.mayStop(e) }

// needsOutliers reports whether the gang would need outliers even after all gangs that end have
// ended. There may be enough other GPUs, but not where the gang could use them. It is computed once
// per kind of gang, until [Queue.Changed] or [Queue.Rebase].
func (p *finder) needsOutliers(e *entry, policy pal.Policy) bool {
	return p.kindOf(e).needsOutliers.of(func() bool { return !p.fitsLater(e.job.Gang, policy) })
}

// Trying is the job for which the Queue is looking for GPUs; "" for none. After a panic it names
// the job.
func (q *Queue) Trying() string { return q.trying }

// withoutRunning calls f while the GPUs of all running gangs and of decided starts are free, and
// those that the pass keeps.
func (p *finder) withoutRunning(f func()) { p.without(func(*entry) bool { return true }, f) }

// withoutEnding does the same, except that gangs that never end keep their GPUs.
func (p *finder) withoutEnding(f func()) { p.without(p.ends, f) }

func (p *finder) without(which func(*entry) bool, f func()) {
	for _, es := range [][]*entry{p.running, p.started} {
		for _, e := range es {
			if which(e) {
				defer p.vacate(e)()
			}
		}
	}
	defer p.unmark(slices.Concat(p.kept, p.hidden))()
	f()
}
