// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Reasons lists all reasons for which a gang can wait in the Queue.
var Reasons = []reason.Kind{reason.Starting, reason.Stopping, reason.Shrinking, reason.TooLarge, reason.Limit, reason.Quota, reason.Array,
	reason.GPUs, reason.Scattered, reason.Refused, reason.Services, reason.Reserved, reason.Order, reason.InWindow, reason.Locality, reason.Next}

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
	// spares is set for a service that waits until Ahead has run. In this case, the gang Ahead can
	// be behind the service in the queue.
	spares bool
	// unusable is set for reason.Scattered: why the gang cannot use the free GPUs, if the cause is
	// known (see [pal.Unusable]).
	unusable reason.Reason
}

// barredBy sets Until and Begins from the window that keeps the gang from starting.
func (w *Wait) barredBy(window *Window, now time.Duration) {
	if w.Until = window.To; window.From > now {
		w.Begins = window.From
	}
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
	case reason.Reserved, reason.Order:
		r.Ahead = w.Ahead
		if w.spares {
			r.Kind = reason.Spared
		}
	case reason.InWindow:
		if w.Begins > 0 {
			r.Kind = reason.WindowBegins
		}
	case reason.Array:
		r.Have, r.Limit = w.Running, w.Limit
	case reason.TooLarge, reason.Services:
		r.Needs = w.GPUs
	case reason.Quota:
		r.Needs, r.Counts, r.Tenant, r.User, r.Held, r.Limit = w.GPUs, w.Counts, w.Tenant, w.User, w.Held, w.Limit
		if w.LimitsJobs {
			r.Needs, r.Counts = 0, 0
		}
	case reason.Limit:
		r.Needs, r.Counts, r.User, r.Limit = w.GPUs, w.Counts, w.User, w.Limit
	case reason.GPUs:
		r.Needs, r.Free, r.FreeOthers = w.GPUs, w.Free-w.Outliers, w.FreeOthers
	case reason.Scattered, reason.Refused:
		r.Needs, r.Free = w.GPUs, w.Free-w.Outliers
		r = r.Over(w.unusable)
	}
	if w.Outliers > 0 {
		r.Used = &reason.Used{Outliers: w.Outliers}
	}
	return r
}

// Waiting returns one Wait for each waiting gang, in the order of the queue. Waiting leaves the
// Queue's decisions and the cluster unchanged.
func (q *Queue) Waiting(now time.Duration, c *pal.Cluster) []Wait {
	p := asking(q, now, c)
	defer p.putBack()
	queue := p.holdThenOrder()
	ws := p.whys(queue)
	p.expect(queue, ws)
	return ws
}

// WaitingAt returns some elements of the result of Waiting. The parameter `parts` contains places
// in the queue, as fractions of the queue's length from 0 to below 1. Gangs that are starting do
// not count in the length. WaitingAt is cheaper than Waiting, because it does not predict the
// starts of gangs behind the last selected gang.
func (q *Queue) WaitingAt(now time.Duration, c *pal.Cluster, parts []float64) (ws []Wait) {
	p := asking(q, now, c)
	defer p.putBack()
	queue := p.holdThenOrder()
	all := p.whys(queue)
	first := 0
	for first < len(all) && all[first].Reason == reason.Starting { // starting gangs come before all others
		first++
	}
	var selected []int
	last, n := 0, len(all)-first
	for _, part := range parts[:min(len(parts), n)] {
		at := first + int(part*float64(n))
		selected, last = append(selected, at), max(last, at+1)
	}
	p.expect(queue[:last], all[:last])
	for _, at := range selected {
		ws = append(ws, all[at])
	}
	return ws
}

// asker answers questions about the Queue, for example why a gang waits. It decides nothing.
type asker struct {
	planner
	found map[signature]foundNow
}

// asking returns an asker for questions about the Queue and the cluster at the time now.
func asking(q *Queue, now time.Duration, c *pal.Cluster) *asker {
	return &asker{q.at(now, c), map[signature]foundNow{}}
}

// holdThenOrder calls holdPromised, and returns the result of inOrder.
func (p *asker) holdThenOrder() []*entry {
	p.holdPromised()
	return p.inOrder()
}

// holdPromised holds the GPUs that Decide holds before its walk, except the GPUs that are kept for
// a turn.
func (p *asker) holdPromised() {
	p.holdPending()
	for _, cl := range p.Queue.claims {
		p.holdToEnd(cl.placement)
	}
}

// waitOf returns the Wait of one waiting gang, without predictions for the gangs behind it.
func (p *asker) waitOf(e *entry) Wait {
	defer p.putBack()
	queue := p.holdThenOrder()
	at := slices.Index(queue, e)
	for _, behind := range queue[at+1:] {
		p.toLeast(behind)
	}
	ws := p.whys(queue[:at+1])
	p.expect(queue[:at+1], ws)
	return ws[at]
}

// whys returns the Wait of each gang of the queue, without the expected starts.
func (p *asker) whys(queue []*entry) []Wait {
	ws := make([]Wait, 0, len(queue))
	var head *entry
	ahead, aheadGPUs, free := "", 0.0, oncePerKind(p.Queue, func(e *entry) int { return pal.FreeFor(p.c, e.job.Gang) })
	slow := oncePerKind(p.Queue, p.avoided)
	unusable := oncePerKind(p.Queue, func(e *entry) reason.Reason { return pal.Unusable(p.c, e.job.Gang) })
	for i, e := range queue {
		p.toLeast(e)
		w := Wait{Job: e.job.ID, Position: i + 1, GPUs: e.gpus, Most: e.most(), Free: free(e), Overdue: e.overdue,
			Ahead: ahead, AheadGPUs: reason.Rounded(aheadGPUs)}
		w.count(e, e.gpus)
		w.FreeOthers = p.c.FreeGPUs() - w.Free
		var spares *entry
		if e.claim != nil {
			w.Reason, w.Stopping, w.Shrinking = e.claim.reason()
		} else {
			w.Reason, spares = p.reason(e, head, w.Free)
		}
		if w.Reason == reason.Locality {
			pl, _ := p.placeNow(e)
			w.Until, _ = p.waitsForBetterGPUs(e, pl)
		}
		if w.Reason == reason.InWindow {
			w.barredBy(p.barring(e), p.now)
		}
		if w.Reason == reason.Limit {
			w.say(w.Reason, p.tree, e.tooLarge())
		}
		if w.Reason == reason.Quota {
			w.say(w.Reason, p.tree, cmp.Or(e.overJobs(), e.limiting(e.least())))
		}
		if w.Reason == reason.Scattered || w.Reason == reason.GPUs {
			w.Outliers = min(w.Free, slow(e))
		}
		if w.Reason == reason.Scattered {
			w.unusable = unusable(e)
		}
		if w.Reason == reason.Array {
			w.Limit, w.Running = e.job.ArrayParallel, p.arrays[e.job.Array]
		}
		if w.spares = spares != nil; w.spares {
			w.Ahead = spares.job.ID
		} else if e.state == waiting && holdsUp(w.Reason) {
			if head == nil {
				head, ahead = e, e.job.ID
			}
			aheadGPUs += e.amount(e.gpus)
		}
		ws = append(ws, w)
	}
	return ws
}

// say sets the reason to r, and sets the fields that describe the limit b.
func (w *Wait) say(r reason.Kind, t tree, b *brokenLimit) {
	w.Reason, w.Limit, w.User, w.LimitsJobs = r, b.most, b.user, b.jobs
	if r == reason.Quota {
		w.Tenant, w.Held = t.shown(b.tenant.name), reason.Rounded(b.held)
	}
}

// count sets Counts if the gang requests parts of shared GPUs.
func (w *Wait) count(e *entry, gpus int) {
	if n := e.amount(gpus); n != float64(gpus) {
		w.Counts = reason.Rounded(n)
	}
}

// holdsUp reports whether a gang that waits for the reason r delays the gangs behind it.
func holdsUp(r reason.Kind) bool {
	return forGPUs(r) && r != reason.Locality && r != reason.Stopping && r != reason.Shrinking
}

// forGPUs reports whether a gang that waits for the reason r needs nothing but free GPUs.
func forGPUs(r reason.Kind) bool {
	switch r {
	case reason.TooLarge, reason.Limit, reason.Quota, reason.Array, reason.InWindow, reason.Services:
		return false
	}
	return true
}

// inOrder returns three groups of gangs: the starting gangs, the overdue gang whose turn it is, and
// the other waiting gangs in the order of the queue.
func (p *asker) inOrder() []*entry {
	var es []*entry
	for _, e := range p.pending {
		if e.state == starting {
			es = append(es, e)
		}
	}
	first := len(es)
	es = slices.AppendSeq(es, p.all())
	slices.SortFunc(es[first:], func(a, b *entry) int {
		if p.hasTurn(a) != p.hasTurn(b) {
			if p.hasTurn(a) {
				return -1
			}
			return 1
		}
		return a.key.compare(b.key)
	})
	if first < len(es) && p.hasTurn(es[first]) {
		first++
	}
	p.inTurns(p.now, es[first:])
	return es
}

// reason returns the first reason to wait that applies to a gang without a claim. The parameter
// `free` is the number of free GPUs that the gang can use. The parameter `head` is the first gang
// ahead that waits for GPUs, or nil. If the gang is a service that must wait until another gang has
// run, `spares` is this other gang.
func (p *asker) reason(e, head *entry, free int) (r reason.Kind, spares *entry) {
	if e.state == starting {
		return reason.Starting, nil
	}
	switch {
	case !p.possible(e):
		return reason.TooLarge, nil
	case e.tooLarge() != nil:
		return reason.Limit, nil
	case p.overArray(e):
		return reason.Array, nil
	case p.overQuota(e):
		return reason.Quota, nil
	case p.barring(e) != nil:
		return reason.InWindow, nil
	case e.gpus > free:
		return p.unless(e, reason.GPUs), nil
	}
	pl, ok := p.placeNow(e)
	switch {
	case !ok && p.refused(e):
		return reason.Refused, nil
	case !ok:
		return p.unless(e, reason.Scattered), nil
	case head != nil && p.opt.Backfill == BackfillNone:
		return reason.Order, nil
	case head != nil && pal.Compete(p.c, head.job.Gang, e.job.Gang):
		return reason.Reserved, nil
	}
	if _, waits := p.waitsForBetterGPUs(e, pl); waits {
		return reason.Locality, nil
	}
	if p.ends(e) {
		return reason.Next, nil
	}
	if f, ok := p.find(e); ok {
		if _, by := p.sparing(e, f); by != nil {
			return reason.Reserved, by
		}
	}
	return reason.Next, nil
}

// refused reports whether the gang would fit if it accepted any neighbours on shared GPUs.
func (p *asker) refused(e *entry) bool {
	if !policyFor(p.Queue, e).RefuseBad || e.job.Gang.Sharing == nil {
		return false
	}
	e.anyNeighbour = true
	defer func() { e.anyNeighbour = false }()
	_, ok := p.place(e)
	return ok
}

// unless returns reason.Services if the gang would fit only after services have ended. Otherwise,
// it returns r.
func (p *asker) unless(e *entry, r reason.Kind) reason.Kind {
	if !p.awaits(e) {
		return reason.Services
	}
	return r
}

// foundNow is a cached result of place for one signature.
type foundNow struct {
	pl pal.Placement
	ok bool
}

// placeNow does the same as place, but caches the results by signature. If there are windows, the
// cache is not used, because the result then depends on the gang's run time.
func (p *asker) placeNow(e *entry) (pal.Placement, bool) {
	if p.hasTurn(e) { // in its turn, a gang accepts all neighbours, unlike others of its signature
		return p.place(e)
	}
	if f, known := p.found[e.sig]; known && len(p.windows.list) == 0 {
		return f.pl, f.ok
	}
	pl, ok := p.place(e)
	p.found[e.sig] = foundNow{pl, ok}
	return pl, ok
}

// fitsWithout reports whether the gang would fit after some running gangs have left. The function
// `without` calls its argument while the GPUs of these gangs are free.
func (p *finder) fitsWithout(e *entry, without func(func())) (fits bool) {
	defer p.withoutWindows()()
	if e.gpus <= p.c.FreeGPUs() {
		if _, ok := p.place(e); ok {
			return true
		}
	}
	without(func() { _, fits = p.place(e) })
	return fits
}
