// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"strconv"
	"time"
	"unique"

	"github.com/nomad-pal/nomad-pal/pal"
)

// signature contains everything that decides where a waiting gang fits. If one gang does not fit, a
// pass skips all other gangs with the same signature, except gangs that end soon enough. Run time and
// priority are not in the signature, because they only sort the gangs.
type signature struct {
	class      pal.AppClass
	maxTier    pal.Tier
	memberSets string
	endless    bool
	admitted   string // windows whose GPUs the gang may use
	tenant     string // "" if no tenant differs from another
	user       string // "" if users have no limits
	array      string
	least      int // set for an elastic gang, for which memberSets describes the current size
	// Gangs that can be stopped or moved have other rules for backfill and for waiting.
	preemptible, migratable bool
	anywhere                bool
}

// sign computes the gang's signature and its kind. Gangs are of one kind if they fit an empty cluster
// in the same way.
func (q *Queue) sign(e *entry) {
	s := signature{class: e.job.Gang.Class, maxTier: e.job.Gang.MaxTier, memberSets: memberSets(e.job.Gang), endless: e.job.Endless, admitted: q.admitted(e.job)}
	e.memo.kind = unique.Make(s)
	if q.opt.FairShare || len(q.opt.Tenants) > 0 {
		s.tenant = e.job.Tenant
	}
	if q.tree.users {
		s.user = e.job.User
	}
	s.array, s.least = e.job.array(), e.job.Least
	s.preemptible, s.migratable = e.job.Preemptible, e.job.Migratable
	s.anywhere = e.job.Anywhere
	e.memo.sig = unique.Make(s)
}

// memberSets returns [pal.Gang.Demand], with a fast path for the common gang of one-GPU members.
func memberSets(g pal.Gang) string {
	if len(g.MemberSets) == 1 && g.MemberSets[0].Eligible == nil && g.MemberSets[0].Prefer == nil && g.MemberSets[0].Need == (pal.Resources{}) && g.MemberSets[0].GPUs == 1 && len(g.Speeds) == 0 {
		return strconv.Itoa(g.MemberSets[0].Members)
	}
	return g.Demand()
}

// byKey compares waiting gangs by their keys.
func byKey(a, b *entry) int { return a.memo.key.compare(b.memo.key) }

// enqueue adds a gang to the line. While the gang waits, its expected run time and key change only
// because of new history (see resort). An elastic gang waits with its full size.
func (q *Queue) enqueue(e *entry) {
	e.state, e.settled = waiting, false
	e.wait.declined = -1
	if e.elastic() {
		q.resize(e, e.full.MemberSets[0].Members)
	}
	q.sign(e)
	judgeRunTime(q, e)
	i, _ := slices.BinarySearchFunc(q.line, e, byKey)
	q.line = slices.Insert(q.line, i, e)
}

// judgeRunTime computes what follows from the expected run time of a waiting gang.
func judgeRunTime(q *Queue, e *entry) {
	e.memo.expect, e.memo.patience = q.remaining(e, e.wait.since), q.patience(e.job)
	e.memo.key = q.keyOf(e)
}

// dequeue removes a gang from the line.
func (q *Queue) dequeue(e *entry) {
	if i, ok := slices.BinarySearchFunc(q.line, e, byKey); ok {
		q.line = slices.Delete(q.line, i, i+1)
	}
}

// sortLine computes the keys of some waiting gangs again, and sorts the line.
func (q *Queue) sortLine(some func(*entry) bool) {
	for _, e := range q.line {
		if some(e) {
			judgeRunTime(q, e)
		}
	}
	slices.SortFunc(q.line, byKey)
}

// resort moves waiting gangs whose names have new history to their new places in the queue.
func (q *Queue) resort() {
	if len(q.learned) == 0 {
		return
	}
	_, every := q.learned[everyName]
	q.sortLine(func(e *entry) bool {
		_, ok := q.learned[e.toldBy()]
		return every || ok
	})
	clear(q.learned)
}

// toldBy returns the name whose history predicts the gang's run time. If the user gave an estimate,
// toldBy returns the name of the tenant's estimates (estimatesOf). Otherwise, toldBy returns the
// gang's own name. See [foresight.remainingRunTime].
func (e *entry) toldBy() string {
	if e.job.Estimate > 0 {
		return estimatesOf(e.job.Tenant)
	}
	return e.job.Name
}

// leastPatience is the shortest wait after which a gang with an estimate or a limit is overdue.
// Without this minimum, short gangs would be overdue after a few minutes.
const leastPatience = time.Hour

// patience returns the total wait after which a gang is overdue: see [Options.Patience] and
// [Options.MaxWait].
func (fs *foresight) patience(j Job) time.Duration {
	run := fs.Estimate(j)
	if j.Limit > 0 && (run == 0 || j.Limit < run) {
		run = j.Limit
	}
	if run == 0 || fs.opt.Patience == 0 {
		return fs.opt.MaxWait
	}
	return max(leastPatience, stretched(run, fs.opt.Patience))
}

// overdueFrom returns the time at which the gang's total wait reaches its patience.
func (e *entry) overdueFrom() time.Duration { return e.wait.since - e.wait.before + e.memo.patience }

// age marks the gangs that have become overdue. An overdue gang that runs, is stopped and waits
// again is still overdue.
func (q *Queue) age(now time.Duration) {
	for _, e := range q.line {
		e.wait.overdue = e.wait.overdue || e.overdueFrom() <= now
	}
}
