// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// An elastic gang runs with as many members as fit: at least Job.Least, and at most all members of
// its Gang. The GPUs of members beyond Job.Least are lent to the gang, as in Volcano and KAI:
//
//   - An elastic gang starts with as many members as fit, and does not wait until more fit. It
//     starts with fewer members if it then ends sooner, because their GPUs are closer together or
//     include no outlier.
//   - An elastic gang grows on GPUs that no waiting gang can use, if growing saves more than twice
//     the cost of the restarts. Only what the gang saves within the average duration of recent
//     loans counts. Under load, other gangs soon need the GPUs, and then the members restart once
//     more.
//   - An elastic gang shrinks if a waiting gang of the same or a better level can then start. Its
//     last members end first. The Queue tries to shrink gangs before it stops any gang. If neither
//     shrinking nor stopping is enough alone, the Queue does both. If the waiting gang's tenant
//     would exceed its quota, the elastic gang gives back only GPUs by which its own tenant exceeds
//     its quota.
//
// After each start and each change of size, the gang keeps its size for twice the restart cost. A
// waiting elastic gang counts with all its members in the queue, but a pass also tries to start it
// with fewer members.

// elastic is the state that only elastic gangs have.
type elastic struct {
	full pal.Gang // the gang with all members; Job.Gang has the current size
	lent float64  // whole GPUs of a growth that is decided but not reported yet; they count towards limits
	at   int      // index in runners.elastics, while the gang runs
	// grownAt is when the gang grew for the first time since its start or since it last shrank. 0
	// means that it has not grown since then.
	grownAt time.Duration
}

// checkElastic returns an error if the gang is elastic and its sizes or its efficiency are invalid.
func (j Job) checkElastic() error {
	switch sets := j.Gang.MemberSets; {
	case j.Least == 0:
		return nil
	case len(sets) != 1:
		return fmt.Errorf("queue: job %q: an elastic gang has one set of members, not %d", j.ID, len(sets))
	case j.Least < 0 || j.Least > sets[0].Members:
		return fmt.Errorf("queue: job %q: the minimum of %d members is not between 1 and %d", j.ID, j.Least, sets[0].Members)
	case !(j.Efficiency >= 0 && j.Efficiency <= 1):
		return fmt.Errorf("queue: job %q: an efficiency of %v is not between 0 and 1", j.ID, j.Efficiency)
	}
	return nil
}

// Slower returns the run time with n members relative to the run time with all members. Each
// doubling of the members multiplies the gang's speed by 2×Efficiency. An Efficiency of 0 counts as
// 1.
func (j Job) Slower(n, all int) float64 {
	return math.Pow(float64(all)/float64(max(1, n)), 1+math.Log2(cmp.Or(j.Efficiency, 1)))
}

// whole returns the number of GPUs that the gang requests with all its members.
func (e *entry) whole() int {
	if e.elastic == nil {
		return e.gpus
	}
	return e.full.GPUs()
}

// least returns the smallest number of GPUs on which the gang can run.
func (e *entry) least() int {
	if e.elastic == nil {
		return e.gpus
	}
	return e.job.Least * e.full.MemberSets[0].GPUs
}

// most returns the largest number of GPUs that an elastic gang can use. For any other gang, it
// returns 0.
func (e *entry) most() int {
	if e.elastic == nil {
		return 0
	}
	return e.full.GPUs()
}

// sized returns a copy of the gang that has n members.
func (el *elastic) sized(n int) pal.Gang {
	g := el.full
	g.MemberSets = slices.Clone(g.MemberSets)
	g.MemberSets[0].Members = n
	return g
}

// resize sets the number of members of an elastic gang. Do not call resize between the call of
// countHeld that adds the gang's GPUs and the call that subtracts them.
func (q *Queue) resize(e *entry, n int) {
	if e.elastic == nil || n == e.job.Gang.MemberSets[0].Members {
		return
	}
	e.job.Gang = e.sized(n)
	e.gpus, e.slower = e.job.Gang.GPUs(), e.job.Slower(n, e.full.MemberSets[0].Members)
	q.sign(e)
}

// regang replaces the pal.Gang of an entry by the result of f. Both the argument and the result of
// f have all members of the gang.
func (e *entry) regang(f func(pal.Gang) pal.Gang) {
	if e.elastic == nil {
		e.job.Gang = f(e.job.Gang)
		return
	}
	e.full = f(e.full)
	e.job.Gang = e.sized(e.job.Gang.MemberSets[0].Members)
}

// during resizes a waiting elastic gang to n members for the rest of the pass. For other gangs,
// during does nothing.
func (p *finder) during(e *entry, n int) {
	if e.elastic == nil || e.state != waiting {
		return
	}
	p.resize(e, n)
	p.undo = append(p.undo, func() {
		if e.state == waiting {
			p.resize(e, e.full.MemberSets[0].Members)
		}
	})
}

// toLeast resizes a waiting elastic gang to its least size for the rest of the pass.
func (p *finder) toLeast(e *entry) { p.during(e, e.job.Least) }

// asManyAsFit searches for a placement of the gang with the function find. ok is false if there is
// none. An elastic gang gets as many members as fit. Fewer members are used if the gang would
// otherwise wait for closer GPUs, or would end later because of an outlier. If an elastic gang does
// not fit, it keeps its least size. The search first tries all members. Then it tries the number of
// members for which all free GPUs are enough, and the number for which the free GPUs without
// outliers are enough. After that, each search halves the size. Once a size fits, the search bisects
// between this size and the smallest size that does not fit.
func (p *finder) asManyAsFit(e *entry, find func(*entry) (pal.Found, bool)) (best pal.Found, ok bool) {
	if e.elastic == nil {
		return find(e)
	}
	set := e.full.MemberSets[0]
	free := p.c.FreeGPUs()
	room, inliers := free/set.GPUs, free/set.GPUs
	if p.opt.OutlierThreshold > 0 {
		inliers = (free - p.c.FreeOutliers(e.full.Class, p.opt.OutlierThreshold)) / set.GPUs
	}
	try := func(n int) (f pal.Found, fits bool) {
		if p.during(e, n); n <= room && e.limiting(e.gpus) == nil {
			return find(e)
		}
		return f, false
	}
	waits, ends, over := false, 0.0, set.Members+1
	for n := set.Members; ; {
		if f, fits := try(n); !fits {
			over = n
		} else {
			would, takes := p.holdsOut(e, f.Placement), e.cost(f.Placement)
			if !ok || !would && (waits || takes < ends) {
				best, waits, ends, ok = f, would, takes, true
			}
			if !would && !p.slowed(f.Placement) {
				break
			}
		}
		if n == e.job.Least {
			break
		}
		switch {
		case n > room:
			n = room
		case n > inliers && inliers > 0:
			n = inliers
		default:
			n /= 2
		}
		n = max(e.job.Least, n)
	}
	if !ok {
		return best, false
	}
	if !waits {
		best = p.closer(e, p.larger(e, best, over, try), find)
	}
	p.during(e, len(best.Members))
	return best, true
}

// larger returns a placement with more members than best, but fewer than `over`, on which the gang
// ends sooner. Otherwise it returns best. It bisects the sizes with the function try.
func (p *finder) larger(e *entry, best pal.Found, over int, try func(int) (pal.Found, bool)) pal.Found {
	ends := best.Cost() * e.job.Slower(len(best.Members), e.full.MemberSets[0].Members)
	for len(best.Members)+1 < over {
		n := (len(best.Members) + over) / 2
		f, fits := try(n)
		switch takes := e.cost(f.Placement); {
		case !fits || p.holdsOut(e, f.Placement):
			over = n
		case takes >= ends:
			return best
		default:
			best, ends = f, takes
		}
	}
	return best
}

// closer returns a placement with fewer members that are closer together, if the gang then ends
// sooner than on `best`. Otherwise it returns best. For each closer tier, it tries as many members
// as fit within one domain of the tier.
func (p *finder) closer(e *entry, best pal.Found, find func(*entry) (pal.Found, bool)) pal.Found {
	all := e.full.MemberSets[0].Members
	ends := best.Cost() * e.job.Slower(len(best.Members), all)
	for t := best.Tier - 1; t >= pal.TierNode; t-- {
		n := p.c.FreeWithin(e.full, p.opt.OutlierThreshold, t)
		if n < e.job.Least || n >= len(best.Members) || e.job.Slower(n, all) >= ends {
			continue
		}
		p.during(e, n)
		f, fits := find(e)
		if takes := e.cost(f.Placement); fits && takes < ends && !p.holdsOut(e, f.Placement) {
			best, ends = f, takes
		}
	}
	return best
}

// slowed reports whether the placement contains an outlier.
func (p *finder) slowed(pl pal.Placement) bool {
	return p.opt.OutlierThreshold > 0 && float64(pl.PMScore) > p.opt.OutlierThreshold
}

// byArea compares gangs by area, which is roughly the GPU time that a gang is still expected to
// use.
func (p *planner) byArea(a, b *entry) int {
	return cmp.Or(cmp.Compare(p.area(a, p.now), p.area(b, p.now)), cmp.Compare(a.seq, b.seq))
}

// hasLent reports whether the gang is elastic, runs, and could give back members.
func (e *entry) hasLent() bool {
	return e.elastic != nil && e.state == running && !e.settled && len(e.placement.Members) > e.job.Least
}

// lends reports whether the running gang v would give back a member for the waiting gang e of the
// given level. In a turn (the level is math.MinInt), v always gives back members.
func (p *planner) lends(v, e *entry, level int, freed freedGPUs) bool {
	if !v.hasLent() {
		return false
	}
	return level == math.MinInt || p.outranks(p.levelFor(e, v, p.level(v, p.now)) >= level, v, e, freed)
}

// MayGive returns how many GPUs an elastic gang (id) would give back if a waiting gang (to) could
// then start. Only GPUs for which ofUse returns true count. The result `from` is the earliest time
// at which the gang gives back GPUs, since the caller's epoch.
func (q *Queue) MayGive(now time.Duration, id, to string, ofUse func(gpu int) bool) (gpus int, from time.Duration) {
	v, e := q.entries[id], q.entries[to]
	p := q.at(now, nil)
	if v == nil || e == nil || e.state != waiting {
		return 0, 0
	}
	keeps, level, freed := len(v.placement.Members), p.level(e, now), freedGPUs{}
	for ; keeps > v.job.Least && p.lends(v, e, level, freed); keeps-- {
		freed.add(v, v.amount(v.full.MemberSets[0].GPUs))
	}
	for _, m := range v.placement.Members[keeps:] {
		for _, u := range m.GPUs {
			if ofUse(u) {
				gpus++
			}
		}
	}
	return gpus, v.safeUntil
}

// with returns a copy of the gang that has only the members from…to-1.
func (e *entry) with(from, to int) *entry {
	some := *e
	some.placement.Members = e.placement.Members[from:to]
	return &some
}

// grow gives free GPUs to elastic gangs. Growing is the last step of a pass, so only GPUs that no
// waiting gang can use are left. The gangs with the least expected remaining GPU time grow first.
// No gang grows in a pass that has reached its limit of actions, because waiting gangs may be left.
func (p *pass) grow() {
	p.wanted = len(p.live) > 0 && (p.lentFor == 0 || p.isWanted()) // isWanted is expensive, and its result is not needed while lentFor is unknown
	if p.wanted {
		p.wantedAt = p.now
	}
	if len(p.elastics) == 0 || p.c.FreeGPUs() == 0 || p.full() {
		return
	}
	var es []*entry
	for _, e := range p.elastics {
		if e.state == running && !e.settled && len(e.placement.Members) < e.full.MemberSets[0].Members && p.ranLongEnough(e) {
			es = append(es, e)
		}
	}
	slices.SortFunc(es, p.byArea)
	for _, e := range es {
		if to, ok := p.larger(e); ok {
			p.growTo(e, to)
		}
	}
}

// isWanted reports whether a waiting gang may need GPUs that are lent now, because at least one
// waiting gang could start at some time.
func (p *pass) isWanted() bool {
	for e := range p.all() {
		if e.tooLarge() == nil && p.awaits(e) {
			return true
		}
	}
	return false
}

// larger adds members to a running gang, and returns the placement on which the gang ends soonest.
// ok is false if the gang gains too little, or if growing would delay the head of the queue. An
// outlier is added only if it is no slower than the gang's slowest GPU.
func (p *pass) larger(e *entry) (best pal.Placement, ok bool) {
	now, set := len(e.placement.Members), e.full.MemberSets[0]
	left := float64(p.remaining(e, p.now))
	was := left * e.cost(e.placement)
	ends := was
	more := *e
	more.within = max(pal.PMScore(p.opt.OutlierThreshold), e.placement.PMScore)
	for n := min(set.Members-now, p.c.FreeGPUs()/set.GPUs); n > 0; n /= 2 {
		more.job.Gang = e.sized(n)
		if more.gpus = more.job.Gang.GPUs(); more.limiting(more.gpus) != nil {
			continue
		}
		to, fits := p.enlarged(e, &more)
		takes := left * to.Cost() * e.job.Slower(now+n, set.Members)
		if fits && p.head != nil {
			if r := p.headReserve(); r.known && later(p.now+atMostLongest(takes), e.job.RestartCost) > r.at {
				_, free := p.hold(r.placement.GPUs())
				to, fits = p.enlarged(e, &more)
				free()
				takes = left * to.Cost() * e.job.Slower(now+n, set.Members)
			}
		}
		if fits && takes < ends && p.pays(e, was, takes) {
			best, ends, ok = to, takes, true
		}
	}
	return best, ok
}

// enlarged returns the placement of the running gang e with the additional members of `more`. If
// these members do not fit, or if all members together would be too far apart, enlarged returns
// false.
func (p *pass) enlarged(e, more *entry) (pal.Placement, bool) {
	f, ok := p.find(more)
	if !ok {
		return pal.Placement{}, false
	}
	members := slices.Concat(e.placement.Members, f.Members)
	to := pal.Predict(p.c, e.sized(len(members)), members)
	return to, e.full.MaxTier == 0 || to.Tier <= e.full.MaxTier
}

// pays reports whether growing pays for a gang. The parameters `was` and `takes` are the gang's
// remaining run times without and with the growth. Growing pays if it saves more than twice the
// cost of the restarts while the GPUs are lent. If the gang is expected to give the GPUs back
// before it ends, it must restart twice.
func (p *pass) pays(e *entry, was, takes float64) bool {
	lasts, restarts := takes, 1.0
	if l := float64(max(p.lentFor, p.now-p.wantedAt)); p.lentFor > 0 && l < takes {
		lasts, restarts = l, 2
	}
	return lasts*(was/takes-1) > 2*restarts*float64(e.job.RestartCost)
}

// lending records for how long GPUs can be lent to elastic gangs.
type lending struct {
	lentFor  time.Duration // average duration of recent loans; 0: unknown
	wantedAt time.Duration // time of the last pass with wanted set
	wanted   bool          // gangs that may need lent GPUs waited after the last pass; see grow
}

// learnLent records how long a gang has kept the GPUs that it got by growing. The field lentFor is
// updated: an average over about the last sixteen loans.
func (l *lending) learnLent(now time.Duration, e *entry) {
	if e.elastic == nil || e.grownAt == 0 {
		return
	}
	lasted := now - e.grownAt
	if e.grownAt = 0; l.lentFor == 0 {
		l.lentFor = lasted
	}
	l.lentFor += (lasted - l.lentFor) / 16
}

// growTo decides that the gang grows to the placement.
func (p *pass) growTo(e *entry, to pal.Placement) {
	e.grownAt = cmp.Or(e.grownAt, p.now)
	e.lent = e.amount(len(to.Members)*e.full.MemberSets[0].GPUs - e.gpus)
	e.of.tenant.count(e.job.User, e.lent)
	p.moveTo(e, Resize, to)
}

// Settled reports that some of a gang's members have finished their work. From now until its next
// start, the gang is not moved or resized.
func (q *Queue) Settled(id string) {
	if e := q.entries[id]; e != nil {
		e.settled = true
	}
}

// resizesFrom calls `soon` with each time at which an elastic gang may begin to shrink or grow. The
// parameter `waiting` reports whether gangs wait.
func (l *lending) resizesFrom(elastics []*entry, waiting bool, now time.Duration, soon func(time.Duration)) {
	for _, e := range elastics {
		n := len(e.placement.Members)
		if n < e.full.MemberSets[0].Members || n > e.job.Least && waiting {
			soon(e.safeUntil)
		}
		if n < e.full.MemberSets[0].Members && (!waiting || !l.wanted) && l.lentFor > 0 {
			soon(now + max(minRuns*e.job.RestartCost, now-l.wantedAt)) // from then on growing may pay: see pays
		}
	}
}

// Size is the number of members of an elastic gang, with its bounds.
type Size struct {
	Members int `json:"members"` // current members; 0 while the gang waits
	Least   int `json:"least"`   // minimum number of members
	Most    int `json:"most"`    // maximum number of members
	// Settled means that the gang keeps its size, because some of its members have finished.
	Settled bool `json:"settled,omitempty"`
}

// SizeOf returns the size of a gang that runs or waits; ok is false if it is not elastic.
func (q *Queue) SizeOf(id string) (s Size, ok bool) {
	e := q.entries[id]
	if e == nil || e.elastic == nil {
		return s, false
	}
	s = Size{Least: e.job.Least, Most: e.full.MemberSets[0].Members, Settled: e.settled}
	if e.state >= running {
		s.Members = len(e.placement.Members)
	}
	return s, true
}
