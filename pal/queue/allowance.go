// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// ceiling identifies one of these limits: the GPUs of a tenant, the GPUs or jobs of one user of a
// tenant, or the jobs of an array that run at a time.
type ceiling struct {
	tenant *tenant // nil for an array
	user   string  // "": the limit of the tenant itself
	jobs   bool    // the limit counts jobs, not GPUs
	array  string
}

// ceilings returns the limits that a gang counts towards, and the unused part of each limit. The
// unused part is negative if the limit is exceeded.
func (ts *tenancy) ceilings(e *entry) map[ceiling]float64 {
	left, user := map[ceiling]float64{}, ShownUser(e.job.User)
	for t := e.of.tenant; t != nil; t = t.parent {
		if most, ok := t.limit(); ok {
			left[ceiling{tenant: t}] = float64(most) - t.gpus - t.promised
		}
		if most := t.MaxGPUsPerUser; most > 0 {
			left[ceiling{tenant: t, user: user}] = float64(most) - t.users[user].GPUs
		}
		if most := t.MaxJobsPerUser; most > 0 {
			left[ceiling{tenant: t, user: user, jobs: true}] = float64(most - t.users[user].Jobs)
		}
	}
	if a := e.job.array(); a != "" {
		left[ceiling{array: a}] = float64(e.job.ArrayParallel - ts.arrays[a])
	}
	return left
}

// counts returns the amount by which a gang with this many GPUs counts towards the limit: the
// number of GPUs or, for a limit of jobs, 1.
func (b ceiling) counts(gpus float64) float64 {
	if b.tenant == nil || b.jobs {
		return 1
	}
	return gpus
}

// allowance is the unused part of a limit, and a list of the parts that gangs are expected to free
// when they end.
type allowance struct {
	left float64
	now  time.Duration // latest time that opens has returned, or the start of the last gang
	ends []comeback    // soonest first
}

// comeback is the part of a limit that a gang frees when it ends.
type comeback struct {
	at   time.Duration
	much float64
}

// back adds a part that a gang will free.
func (a *allowance) back(c comeback) {
	i, _ := slices.BinarySearchFunc(a.ends, c, comeback.compare)
	a.ends = slices.Insert(a.ends, i, c)
}

func (c comeback) compare(o comeback) int {
	return cmp.Or(cmp.Compare(c.at, o.at), cmp.Compare(c.much, o.much))
}

// opens returns the first time at which the unused part of the limit is at least `much`. ok is
// false if that time is unknown. Callers must call opens in the order of the queue.
func (a *allowance) opens(much float64) (at time.Duration, ok bool) {
	const rounding = 1e-9 // more than the rounding errors of sums of parts of GPUs
	for len(a.ends) > 0 && (a.ends[0].at <= a.now || a.left+rounding < much) {
		a.now = max(a.now, a.ends[0].at)
		a.left += a.ends[0].much
		a.ends = a.ends[1:]
	}
	return a.now, a.left+rounding >= much
}

// allowances predicts when limits let gangs start. Each gang is assumed to end at the start of the
// range predicted for its end or, if `late` is set, at the end of this range. A gang without a
// predicted end never frees its part of a limit.
type allowances struct {
	p    *asker
	late bool
	of   map[ceiling]*allowance
}

// allowances returns the allowances of all limits towards which running gangs count now.
func (p *asker) allowances(late bool) *allowances {
	as := &allowances{p, late, map[ceiling]*allowance{}}
	for _, v := range p.entries {
		if v.state == waiting {
			continue
		}
		if ends, ok := as.ends(v, p.now); ok {
			for b, left := range p.ceilings(v) {
				a := as.allowance(b, left)
				a.ends = append(a.ends, comeback{ends, b.counts(v.counted)})
			}
		}
	}
	for _, a := range as.of {
		slices.SortFunc(a.ends, comeback.compare)
	}
	return as
}

// allowance returns the allowance of a limit whose unused part is `left`.
func (as *allowances) allowance(b ceiling, left float64) *allowance {
	a := as.of[b]
	if a == nil {
		a = &allowance{left: left, now: as.p.now}
		as.of[b] = a
	}
	return a
}

// ends returns the predicted end of a gang. If the gang waits, it is assumed to start at the time
// `starts`.
func (as *allowances) ends(v *entry, starts time.Duration) (at time.Duration, ok bool) {
	if v.state == stopping {
		return as.p.now, true
	}
	least, most, ok := as.p.remainingRange(v)
	if !ok || v.job.Endless {
		return 0, false
	}
	if as.late {
		least = most
	}
	if v.state == waiting { // its placement is not known yet
		return later(starts, v.bounded(as.p.now, least)), true
	}
	return v.endsAt(as.p.now, least), true
}

// start returns when all limits of a waiting gang let it start, and counts the gang towards these
// limits from that time. ok is false if the time is unknown.
func (as *allowances) start(e *entry) (at time.Duration, ok bool) {
	at, ok = as.p.now, true
	needs, ceilings := e.amount(e.least()), as.p.ceilings(e)
	for b, left := range ceilings {
		opens, is := as.allowance(b, left).opens(b.counts(needs))
		at, ok = max(at, opens), ok && is
	}
	if !ok {
		return 0, false
	}
	ends, known := as.ends(e, at)
	for b := range ceilings {
		a, much := as.of[b], b.counts(needs)
		a.now, a.left = at, a.left-much
		if known {
			a.back(comeback{ends, much})
		}
	}
	return at, true
}

// span is a predicted range of time. `to` is 0 if the range is unknown.
type span struct{ from, to time.Duration }

// underLimits returns, for each gang that waits for a limit, the range in which its limits are
// expected to let it start. Other reasons to wait are ignored. The map's keys are positions in the
// queue. Gangs without a prediction are not in the map.
func (p *asker) underLimits(queue []*entry, ws []Wait) map[int]span {
	spans := map[int]span{}
	var early, late *allowances
	for i, e := range queue {
		if e.state != waiting || !forLimit(ws[i].Reason) {
			continue
		}
		if early == nil {
			early, late = p.allowances(false), p.allowances(true)
		}
		from, ok := early.start(e)
		to, okLate := late.start(e)
		if ok && okLate {
			spans[i] = span{from, max(from, to)}
		}
	}
	return spans
}

// forLimit reports whether this reason means that a gang waits for a limit.
func forLimit(r reason.Kind) bool { return r == reason.Quota || r == reason.Array }
