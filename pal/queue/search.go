// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// finder finds GPUs for one gang, either now or after other gangs have ended. A finder also decides
// whether the gang should wait for better GPUs. A finder ignores other waiting gangs, and starts no
// gang.
type finder struct {
	*Queue
	whatIf
	now     time.Duration
	started []*entry // gangs whose start this pass has decided
	// slack is set after a search for a gang has failed. Another gang of the same signature may fit
	// if its run time at cost 1 is at most slack. 0 means that no gang of this signature fits,
	// however short it is.
	slack time.Duration
	// startsAt is the time when the gang would start; 0 means now.
	startsAt   time.Duration
	windowless bool               // see withoutWindows
	rooms      map[*fitKind]*room // on a cluster that is not exclusive
	alone      map[beside]bool    // see fitsAlone
}

// place returns the placement that find returns, without the details of the search.
func (p *finder) place(e *entry) (pal.Placement, bool) {
	f, ok := p.find(e)
	return f.Placement, ok
}

// search does the same as find, but ignores windows. If the gang does not fit without outliers and
// needs them, search tries again with outliers. There is no second try for gangs with their own
// bound on PM scores (within). Such a bound is set for elastic gangs that grow, and for gangs that
// can use an outlier now (anyGPU).
func (p *finder) search(e *entry) (pal.Found, bool) {
	p.trying = e.job.ID
	if e.within > 0 {
		policy := policyFor(p.Queue, e)
		policy.OutlierThreshold = float64(e.within)
		f, ok := pal.Find(p.c, e.job.Gang, policy)
		p.trying = ""
		return f, ok
	}
	f, _, ok := p.opt.avoiding(p.c, e.job.Gang, policyFor(p.Queue, e), func(policy pal.Policy) bool { return p.needsOutliers(e, policy) })
	p.trying = "" // not deferred: see Trying
	return f, ok
}

// policyFor returns the placement policy for a gang. Normally, the policy's RefuseBad keeps gangs
// off parts of shared GPUs where neighbours would slow each other too much. RefuseBad does not
// apply in three cases:
//
//   - The gang is overdue, and has its turn or a claim that it got in its turn.
//   - Other members of the gang already run. In this case, RoomFor has set anyNeighbour.
//   - The asker tests whether the gang does not fit because of RefuseBad. In this case, refused has
//     set anyNeighbour.
func policyFor(q *Queue, e *entry) pal.Policy {
	by := q.opt.Placement
	if e != nil && (e.anyNeighbour || q.hasTurn(e) || e.claim != nil && e.claim.granted) {
		by.RefuseBad = false
	}
	return by
}

// Look returns the placement that the Queue would find now for a gang on the cluster, and the
// policy that it used. ok is false if the gang does not fit. Look ignores waiting gangs and
// windows. Look avoids outliers, unless the gang could never run without outliers.
func (q *Queue) Look(c *pal.Cluster, g pal.Gang) (f pal.Found, by pal.Policy, ok bool) {
	p := q.at(0, c)
	return p.look(g)
}

// look does the same as [Queue.Look] in the what-if.
func (p *finder) look(g pal.Gang) (f pal.Found, by pal.Policy, ok bool) {
	e := p.entries[g.ID]
	return p.opt.avoiding(p.c, g, policyFor(p.Queue, e), func(by pal.Policy) bool { return !p.fitsLater(g, by) })
}

// avoiding returns a placement without outliers or, if there is none and the gang needs outliers, a
// placement on any GPUs. The policy that was used is returned, too; ok is false if the gang does
// not fit.
func (o *Options) avoiding(c *pal.Cluster, g pal.Gang, by pal.Policy, needs func(pal.Policy) bool) (f pal.Found, used pal.Policy, ok bool) {
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

// avoided returns the number of free GPUs that the gang does not use because they are outliers.
func (p *finder) avoided(e *entry) int {
	by, threshold := policyFor(p.Queue, e), p.opt.OutlierThreshold
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

// fitsLater reports whether the gang would fit if only gangs that never end kept their GPUs. GPUs
// that the what-if holds, for example for windows and reservations, count as free, too.
func (p *finder) fitsLater(g pal.Gang, policy pal.Policy) bool {
	defer p.unmark(slices.Concat(append(p.marked, p.thoseThatEnd())...))()
	_, fits := pal.Find(p.c, g, policy)
	return fits
}

// thoseThatEnd returns the GPUs of all gangs that end (see [finder.ends]).
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

// ends reports whether the gang ends at some time or can be stopped. It returns false for a service
// that must not be stopped: no gang waits for the GPUs of such a service.
func (p *finder) ends(e *entry) bool { return !e.job.Endless || p.mayStop(e) }

// needsOutliers reports whether the gang would need outliers even if only gangs that never end kept
// their GPUs. The answer is cached by kind of gang.
func (p *finder) needsOutliers(e *entry, policy pal.Policy) bool {
	return p.kindOf(e).needsOutliers.of(func() bool { return !p.fitsLater(e.job.Gang, policy) })
}

// Trying returns the ID of the job for which the Queue is looking for GPUs; "" for none. After a
// panic during a search, it returns the job that was searched for.
func (q *Queue) Trying() string { return q.trying }

// withoutRunning calls f. During the call, the GPUs of all running gangs are free, and also the
// GPUs of starts that this pass has decided, and the GPUs that it holds.
func (p *finder) withoutRunning(f func()) { p.without(func(*entry) bool { return true }, f) }

// withoutEnding does the same as withoutRunning, but gangs that never end (see ends) keep their
// GPUs.
func (p *finder) withoutEnding(f func()) { p.without(p.ends, f) }

// without calls f. During the call, the GPUs that the pass holds are free. The GPUs of gangs for
// which `which` returns true are free, too.
func (p *finder) without(which func(*entry) bool, f func()) {
	for _, es := range [][]*entry{p.running, p.started} {
		for _, e := range es {
			if which(e) {
				defer p.vacate(e)()
			}
		}
	}
	defer p.unmark(p.held)()
	f()
}
