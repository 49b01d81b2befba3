// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unique"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Reasons lists all reasons for which a gang can wait in the Queue.
var Reasons = []reason.Kind{reason.Starting, reason.Stopping, reason.Shrinking, reason.TooLarge, reason.Limit, reason.Quota, reason.Array,
	reason.GPUs, reason.Scattered, reason.Refused, reason.Services, reason.Reserved, reason.Spared, reason.Order, reason.InWindow, reason.Locality, reason.Next}

// Wait describes a waiting gang and why it waits.
type Wait struct {
	Job      string `json:"job"`      // the job, as namespace/id
	Position int    `json:"position"` // the gang's position in the queue, from 1
	// Reason is one of the following. "starting": the gang is about to start. "stopping": other
	// gangs are being stopped for the gang. "shrinking": elastic gangs give members back for the
	// gang. "too-large": the gang could not run even on an empty cluster. "limit": the gang alone
	// exceeds a limit of its tenant or user. "quota": the gang would now exceed a limit of its
	// tenant or user. "array": the array already runs its maximum number of jobs. "gpus": too few
	// GPUs are free. "scattered": enough GPUs are free, but not where the gang can use them.
	// "refused": the free GPUs are parts of shared GPUs, on which the gang and its neighbours would
	// slow each other too much. "services": services hold too many GPUs and do not end. "reserved":
	// the free GPUs are reserved for another gang. "window": the free GPUs are kept for maintenance
	// or for other jobs. "order": under strict order, the gang cannot start before the gang ahead.
	// "locality": the gang waits for GPUs that are faster or closer together. "next-round": the gang starts in the next round.
	Reason  reason.Kind `json:"reason"`
	Overdue bool        `json:"overdue,omitempty"` // the gang's total wait exceeds twice its estimate or limit (at least an hour), or max_wait if the gang has neither
	GPUs    int         `json:"gpus"`              // GPUs that the gang requests; for an elastic gang, the minimum
	// Counts is the number of whole GPUs that count towards limits, if the gang requests parts of
	// shared GPUs.
	Counts float64 `json:"counts,omitempty"`
	Most   int     `json:"most,omitempty"` // GPUs that an elastic gang could use
	Free   int     `json:"free"`           // GPUs that are free now and that the gang can use
	// FreeOthers is the number of free GPUs that the gang cannot use.
	FreeOthers int `json:"free_others,omitempty"`
	// Outliers is the number of free GPUs that are too slow for the gang. It is set if Reason is
	// "gpus" or "scattered".
	Outliers int `json:"outliers,omitempty"`
	// If Reason is "limit" or "quota", Limit is the maximum number of GPUs of the gang's tenant.
	// For "quota", Tenant is the name of this tenant, and Held the number of GPUs that it holds. If
	// User is set, Limit and Held are about this user's GPUs in the tenant. If LimitsJobs is set,
	// Limit and Held are about the running jobs of User. If Reason is "array", Limit is the maximum
	// number of running jobs of the array, and Running is the current number.
	Limit   int     `json:"limit,omitempty"`
	Running int     `json:"running,omitempty"`
	Tenant  string  `json:"tenant,omitempty"`
	Held    float64 `json:"held,omitempty"`
	User    string  `json:"user,omitempty"`
	// LimitsJobs is set if Limit is a number of running jobs of User, not of GPUs.
	LimitsJobs bool   `json:"limits_jobs,omitempty"`
	Ahead      string `json:"ahead,omitempty"` // the first gang ahead that waits for GPUs; "" for none
	// AheadGPUs is the number of GPUs that the gangs ahead in the queue request. Only gangs that
	// wait for nothing but GPUs count.
	AheadGPUs float64  `json:"ahead_gpus,omitempty"`
	Stopping  []string `json:"stopping,omitempty"`  // gangs that are being stopped for this one
	Shrinking []string `json:"shrinking,omitempty"` // elastic gangs that give members back for this one
	// From and To are the range in which the gang is expected to start, since the caller's epoch.
	// Eight of ten gangs should start in their range. Both are 0 if the range is unknown, for example
	// because the run time of a gang ahead is unknown and few gangs have started so far.
	From, To time.Duration `json:"-"`
	// Until is set for reason.Locality and reason.InWindow. For reason.Locality, Until is the time
	// at which the gang stops waiting for better GPUs. For reason.InWindow, Until is the end of the
	// window.
	Until time.Duration `json:"-"`
	// Begins is the time when the window begins. It is set for reason.InWindow if the window has
	// not begun yet.
	Begins time.Duration `json:"-"`
	// unusable is set for reason.Scattered: why the gang cannot use the free GPUs, if the cause is
	// known (see [pal.Unusable]).
	unusable reason.Reason
}

// String returns position, job and reason as one line for people.
func (w Wait) String() string {
	return fmt.Sprintf("#%d %s: %s", w.Position, w.Job, w.Why())
}

// Why returns what the gang waits for. Why omits the times of a window, because only the caller can
// convert times since the caller's epoch.
func (w Wait) Why() reason.Reason {
	r := reason.Reason{Kind: w.Reason}
	switch w.Reason {
	case reason.Stopping, reason.Shrinking:
		r.Jobs, r.Shrinking = w.Stopping, w.Shrinking
	case reason.Reserved, reason.Order, reason.Spared:
		r.Ahead = w.Ahead
	case reason.InWindow:
		if w.Begins > 0 {
			r.Kind = reason.WindowBegins
		}
	case reason.Array:
		r.Have, r.Limit = w.Running, w.Limit
	case reason.TooLarge, reason.Services:
		r.Needs = w.GPUs
	case reason.Quota:
		r.Tenant, r.Held = w.Tenant, w.Held
		r.User, r.Limit = w.User, w.Limit
		if !w.LimitsJobs {
			r.Needs, r.Counts = w.GPUs, w.Counts
		}
	case reason.Limit:
		r.Needs, r.Counts = w.GPUs, w.Counts
		r.User, r.Limit = w.User, w.Limit
	case reason.GPUs:
		r.Needs, r.Free = w.GPUs, w.Free-w.Outliers
		r.FreeOthers = w.FreeOthers
	case reason.Scattered, reason.Refused:
		r.Needs, r.Free = w.GPUs, w.Free-w.Outliers
		r = r.Over(w.unusable)
	}
	if w.Outliers > 0 {
		r.Used = &reason.Used{Outliers: w.Outliers}
	}
	return r
}

// Waiting returns one Wait for each waiting gang, in the order of the queue: why a pass on a copy of
// the Queue does not start it now.
func (q *Queue) Waiting(now time.Duration, c *pal.Cluster) []Wait {
	p, queue := q.Clone().asked(now, c)
	return p.waits(queue, len(queue))
}

// WaitingAt returns some elements of the result of Waiting. The parameter `parts` contains places
// in the queue, as fractions of the queue's length from 0 to below 1. Gangs that are starting do
// not count in the length. WaitingAt is cheaper than Waiting, because it does not predict the
// starts of gangs behind the last selected gang.
func (q *Queue) WaitingAt(now time.Duration, c *pal.Cluster, parts []float64) (ws []Wait) {
	p, queue := q.Clone().asked(now, c)
	first := len(queue) - len(q.line) // starting gangs come before all others
	var selected []int
	last, n := 0, len(q.line)
	for _, part := range parts[:min(len(parts), n)] {
		at := first + int(part*float64(n))
		selected, last = append(selected, at), max(last, at+1)
	}
	all := p.waits(queue, last)
	for _, at := range selected {
		ws = append(ws, all[at])
	}
	return ws
}

// asked returns a pass on this copy of a Queue that has decided and knows why gangs wait, and the
// gangs of the queue, in order.
func (q *Queue) asked(now time.Duration, c *pal.Cluster) (p *pass, queue []*entry) {
	q.opt.Starts = 0
	q.age(now)
	q.resort()
	q.count(now)
	queue = q.inOrder()
	p = q.newPass(now, c)
	p.verdicts = map[*entry]*Wait{}
	p.decide()
	return p, queue
}

// inOrder returns three groups of gangs: the starting gangs, the overdue gang whose turn it is, and
// the other waiting gangs in the order of the queue. When it chooses the next gang, it counts the
// gangs already chosen as running. Count again afterwards.
func (q *Queue) inOrder() (es []*entry) {
	for _, e := range q.all {
		if e.state == starting {
			es = append(es, e)
		}
	}
	if q.turn != nil {
		es = append(es, q.turn.head)
	}
	next := q.inTurns(func(e *entry) bool { return !q.hasTurn(e) })
	for e := next(); e != nil; e = next() {
		es = append(es, e)
		q.countHeld(e, 1)
		if e.promised != nil {
			q.promise(e, -1)
		}
	}
	return es
}

// waits returns the Wait of each gang of the queue. The first `predicted` of them get an expected
// start.
func (p *pass) waits(queue []*entry, predicted int) []Wait {
	ws := make([]Wait, 0, len(queue))
	ahead, aheadGPUs := "", 0.0
	for i, e := range queue {
		w := p.waitOf(e)
		w.Job, w.Position = e.job.ID, i+1
		w.GPUs, w.Overdue = e.least(), e.wait.overdue
		w.AheadGPUs = reason.Rounded(aheadGPUs)
		if e.elastic() {
			w.Most = e.whole()
		}
		n := e.amount(w.GPUs)
		if n != float64(w.GPUs) {
			w.Counts = reason.Rounded(n)
		}
		if w.Reason != reason.Spared {
			w.Ahead = ahead
			if holdsUp(w.Reason) {
				ahead = cmp.Or(ahead, e.job.ID)
				aheadGPUs += e.amount(w.GPUs)
			}
		}
		ws = append(ws, w)
	}
	p.expect(queue[:predicted], ws[:predicted])
	return ws
}

// waitOf returns what the pass found out about a gang.
func (p *pass) waitOf(e *entry) Wait {
	w := p.verdicts[e]
	switch {
	case w != nil:
		return *w
	case slices.Contains(p.started, e):
		return p.why(e, reason.Next)
	case e.state == starting:
		return p.why(e, reason.Starting)
	case e.promised != nil:
		w := p.why(e, reason.Shrinking)
		for _, v := range p.victimsOf(e) {
			if len(v.target.Members) > 0 {
				w.Shrinking = append(w.Shrinking, v.job.ID)
			} else {
				w.Stopping = append(w.Stopping, v.job.ID)
			}
		}
		if len(w.Stopping) > 0 || len(w.Shrinking) == 0 {
			w.Reason = reason.Stopping
		}
		return w
	}
	return p.why(e, reason.Order) // behind the head, where nobody may pass it
}

// passOver notes why the gang waits, also for the other gangs with its signature, which are not tried.
func (p *pass) passOver(e *entry, sig unique.Handle[signature], why reason.Kind) {
	if p.verdicts == nil {
		return
	}
	w := p.why(e, why)
	p.verdicts[e] = &w
	for _, o := range p.line {
		if o.memo.sig == sig && o.promised == nil {
			p.verdicts[o] = &w
		}
	}
}

// why returns why the gang waits, and the details. The pass has found `why`; reason.GPUs stands for
// all reasons for which it finds no GPUs.
func (p *pass) why(e *entry, why reason.Kind) (w Wait) {
	w.Reason, w.Free = why, pal.FreeFor(p.c, e.job.Gang)
	w.FreeOthers = p.c.FreeGPUs() - w.Free
	if e.state == starting || e.promised != nil {
		return w
	}
	window := p.barring(e)
	pl, fits := p.place(e)
	switch {
	case !p.possible(e):
		w.Reason = reason.TooLarge
	case e.tooLarge() != nil:
		w.say(reason.Limit, p.tree, e.tooLarge())
	case p.overArray(e):
		w.Reason = reason.Array
		w.Limit, w.Running = e.job.ArrayParallel, p.arrays[e.job.Array]
	case p.overQuota(e):
		w.say(reason.Quota, p.tree, cmp.Or(e.overJobs(), e.limiting(e.least())))
	case window != nil:
		w.Reason, w.Until = reason.InWindow, window.To
		if window.From > p.now {
			w.Begins = window.From
		}
	case why == reason.Spared:
		_, by := p.sparing(e, pal.Found{Placement: pl})
		w.Ahead = by.job.ID
	case why == reason.Locality:
		w.Until, _ = p.waitsForBetterGPUs(e, pl)
	case fits && why != reason.GPUs:
	case !p.awaits(e):
		w.Reason = reason.Services
	case e.least() > w.Free:
		w.Reason, w.Outliers = reason.GPUs, min(w.Free, p.avoided(e))
	case p.refused(e):
		w.Reason = reason.Refused
	default:
		w.Reason, w.Outliers = reason.Scattered, min(w.Free, p.avoided(e))
		w.unusable = pal.Unusable(p.c, e.job.Gang)
	}
	return w
}

// say sets the reason to r, and sets the fields that describe the limit b.
func (w *Wait) say(r reason.Kind, t tree, b *brokenLimit) {
	w.Reason, w.Limit = r, b.most
	w.User, w.LimitsJobs = b.user, b.jobs
	if r == reason.Quota {
		w.Tenant, w.Held = t.shown(b.tenant.name), reason.Rounded(b.held)
	}
}

// holdsUp reports whether a gang that waits for the reason r delays the gangs behind it.
func holdsUp(r reason.Kind) bool {
	switch r {
	case reason.GPUs, reason.Scattered, reason.Refused, reason.Reserved, reason.Order, reason.Next:
		return true
	}
	return false
}

// refused reports whether the gang would fit if it accepted any neighbours on shared GPUs.
func (p *finder) refused(e *entry) bool {
	if !policyFor(p.Queue, e).RefuseBad || e.job.Gang.Sharing == nil {
		return false
	}
	e.anyNeighbour = true
	defer func() { e.anyNeighbour = false }()
	_, ok := p.place(e)
	return ok
}
