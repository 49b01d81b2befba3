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

// An elastic gang runs with as many members as there is room for, from Job.Least to all
// of its Gang. It is entitled to the least; the others are lent, as by Volcano and KAI:
//
//   - It starts with as many as fit, and does not wait for the rest; or with fewer if it ends
//     sooner closer together or without an outlier.
//   - It grows on GPUs that nobody who waits can use, if that saves more than twice what
//     the restarts cost, in the time that such GPUs were lent for lately: under load they
//     are soon wanted back, and then its members restart again.
//   - It shrinks, its last members first, when that lets a waiting gang start that is as
//     important: of its level or a better one. That comes before stopping anybody; where neither
//     is enough alone, gangs are stopped beside it. For a tenant
//     that would borrow it gives back what its own borrows, and no more.
//
// After each start and each change it stays as it is for twice its restart cost. While it
// waits it counts as one of all its members; a pass tries it with fewer.

// elastic is what is different about the size of an elastic gang.
type elastic struct {
	full pal.Gang // with all members; Job.Gang is of the size that it has now
	lent int      // GPUs on which it is about to grow
	at   int      // in runners.elastics, while it runs
	// grownAt is since when it has members that it grew by; 0: it has none.
	grownAt time.Duration
}

// checkElastic says what is wrong with the sizes of a gang.
func (j Job) checkElastic() error {
	if j.Least == 0 {
		return nil
	}
	if len(j.Gang.MemberSets) != 1 {
		return fmt.Errorf("queue: job %q: an elastic gang has one set of members, not %d", j.ID, len(j.Gang.MemberSets))
	}
	if most := j.Gang.MemberSets[0].Members; j.Least < 0 || j.Least > most {
		return fmt.Errorf("queue: job %q: a least of %d members is not between 1 and %d", j.ID, j.Least, most)
	}
	if !(j.Efficiency >= 0 && j.Efficiency <= 1) {
		return fmt.Errorf("queue: job %q: an efficiency of %v is not between 0 and 1", j.ID, j.Efficiency)
	}
	return nil
}

// Slower is how many times as long n members take for what all members of the gang do:
// each doubling of them keeps the part Efficiency of a linear speed-up, so that their
// speed is 2×Efficiency times that before.
func (j Job) Slower(n, all int) float64 {
	return math.Pow(float64(all)/float64(max(1, n)), 1+math.Log2(cmp.Or(j.Efficiency, 1)))
}

// whole is how many GPUs the gang has with all its members.
func (e *entry) whole() int {
	if e.elastic == nil {
		return e.gpus
	}
	return e.full.GPUs()
}

// least is how many GPUs it needs at least.
func (e *entry) least() int {
	if e.elastic == nil {
		return e.gpus
	}
	return e.job.Least * e.full.MemberSets[0].GPUs
}

// most is how many GPUs an elastic gang could use; 0 of another one.
func (e *entry) most() int {
	if e.elastic == nil {
		return 0
	}
	return e.full.GPUs()
}

// sized is an elastic gang with so many members.
func (el *elastic) sized(n int) pal.Gang {
	g := el.full
	g.MemberSets = slices.Clone(g.MemberSets)
	g.MemberSets[0].Members = n
	return g
}

// resize makes an elastic gang one of so many members. It must not be counted as holding
// GPUs (see countHeld): what is counted off later must be what was counted.
func (q *Queue) resize(e *entry, n int) {
	if e.elastic == nil || n == e.job.Gang.MemberSets[0].Members {
		return
	}
	e.job.Gang = e.sized(n)
	e.gpus, e.slower = e.job.Gang.GPUs(), e.job.Slower(n, e.full.MemberSets[0].Members)
	q.sign(e)
}

// regang gives an entry its gang, with all members, again.
func (e *entry) regang(f func(pal.Gang) pal.Gang) {
	if e.elastic == nil {
		e.job.Gang = f(e.job.Gang)
		return
	}
	e.full = f(e.full)
	e.job.Gang = e.sized(e.job.Gang.MemberSets[0].Members)
}

// during makes a waiting elastic gang one of so many members for the rest of the pass.
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

// toLeast makes it one of as few members as it needs, for the rest of the pass.
func (p *finder) toLeast(e *entry) { p.during(e, e.job.Least) }

// asManyAsFit looks for a placement of the gang, of an elastic one with as many members
// as there is room for: rather fewer than such that it would wait for closer GPUs, or, as it
// runs at the pace of its slowest, that it would end later than without outliers. One
// that does not fit is left at its least size. It is tried with all members, with as many as
// there are free GPUs for, and with as many as there are without outliers. Then sizes are halved,
// not lowered one by one: that bounds the searches by the logarithm of the members, and a gang
// that starts smaller than it could grows later.
func (p *finder) asManyAsFit(e *entry, find func(*entry) (pal.Found, bool)) (best pal.Found, ok bool) {
	if e.elastic == nil {
		return find(e)
	}
	set := e.full.MemberSets[0]
	free := p.c.FreeGPUs() + len(p.hidden)
	room, inliers := free/set.GPUs, free/set.GPUs
	if p.opt.OutlierThreshold > 0 {
		inliers = (free - p.c.FreeOutliers(e.full.Class, p.opt.OutlierThreshold)) / set.GPUs
	}
	waits, ends := false, 0.0
	for n := set.Members; ; {
		p.during(e, n)
		if n <= room && e.limiting(e.gpus) == nil {
			if f, fits := find(e); fits {
				would, takes := p.holdsOut(e, f.Placement), f.Cost()*e.slower
				if !ok || !would && (waits || takes < ends) {
					best, waits, ends, ok = f, would, takes, true
				}
				if !would && !p.slowed(f.Placement) {
					break
				}
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
		best = p.closer(e, best, find)
	}
	p.during(e, len(best.Members))
	return best, true
}

// closer is the placement with fewer members that lie closer together, if an elastic gang ends
// sooner there than on the one that was found: as many as one place of a closer tier has room for.
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
		if takes := f.Cost() * e.slower; fits && takes < ends && !p.holdsOut(e, f.Placement) {
			best, ends = f, takes
		}
	}
	return best
}

// slowed reports whether the placement has an outlier.
func (p *finder) slowed(pl pal.Placement) bool {
	return p.opt.OutlierThreshold > 0 && float64(pl.PMScore) > p.opt.OutlierThreshold
}

// shrinkFor takes lent members from elastic gangs of that level or worse so that a
// waiting gang can start, if that is enough: from those that are expected to hold their
// GPUs for longest first, and no more of them than it takes. Where the GPUs that come free
// are too scattered, each further search takes twice as many members from a gang.
func (p *pass) shrinkFor(e *entry, level int) bool {
	if len(p.elastics) == 0 || p.barring(e) != nil {
		return false
	}
	from, lent := p.lenders(e, level)
	back := p.vacateLeaving(e)
	defer func() { undoAll(back) }()
	if p.c.FreeGPUs()+lent < e.gpus {
		return false
	}
	p.longestFirst(from)
	p.foreseeHead(e)
	freed := freedGPUs{}
	for i, v := range from {
		per, tries, keeps := v.full.MemberSets[0].GPUs, 1, p.keeps(v, e, level, freed)
		for n := len(v.placement.Members); n > keeps; tries *= 2 {
			few := max(tries, (e.gpus-p.c.FreeGPUs()+per-1)/per)
			less := max(keeps, n-few)
			back = append(back, p.vacateMembers(v, less, n))
			if n = less; p.c.FreeGPUs() < e.gpus {
				continue
			}
			f, ok := p.backfill(e)
			if !ok {
				continue
			}
			undoAll(back)
			back = nil
			return p.claimLent(e, f.Placement, from[:i+1])
		}
	}
	return false
}

// lenders are the elastic gangs that may give members back for a waiting gang of the level, and how many
// GPUs at most.
func (p *planner) lenders(e *entry, level int) (from []*entry, lent int) {
	for _, v := range p.elastics {
		if p.ranLongEnough(v) && p.lends(v, e, level, nil) {
			from = append(from, v)
			lent += v.gpus - v.least()
		}
	}
	return from, lent
}

// longestFirst sorts gangs by how long they are expected to hold their GPUs.
func (p *planner) longestFirst(es []*entry) {
	slices.SortFunc(es, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(p.area(b, p.now), p.area(a, p.now)), cmp.Compare(b.seq, a.seq))
	})
}

// hasLent reports whether a running gang has members that it could give back.
func (e *entry) hasLent() bool {
	return e.elastic != nil && e.state == running && !e.settled && len(e.placement.Members) > e.job.Least
}

// lends reports whether a running gang has a member that it would give back for a waiting one of the
// level. A turn outranks levels and quotas. Else two of these must hold: the level of the running one is
// no better, the waiting one's tenant stays within its quota, and the other's is above its own.
func (p *planner) lends(v, e *entry, level int, freed freedGPUs) bool {
	if !v.hasLent() {
		return false
	}
	return level == math.MinInt || p.outranks(p.levelFor(e, v, p.level(v, p.now)) >= level, v, e, freed)
}

// keeps is with how many members the gang would go on; freed then counts what it gives back.
func (p *planner) keeps(v, e *entry, level int, freed freedGPUs) (members int) {
	members = len(v.placement.Members)
	for ; members > v.job.Least && p.lends(v, e, level, freed); members-- {
		freed.add(v, v.full.MemberSets[0].GPUs)
	}
	return members
}

// MayGive is how many GPUs, of those that are of use, a running elastic gang would give back for
// a waiting one, if that then starts, and from when on, since the caller's epoch; 0 GPUs: none.
func (q *Queue) MayGive(now time.Duration, id, to string, ofUse func(gpu int) bool) (gpus int, from time.Duration) {
	v, e := q.entries[id], q.entries[to]
	p := q.at(now, nil)
	if v == nil || e == nil || e.state != waiting {
		return 0, 0
	}
	for _, m := range v.placement.Members[p.keeps(v, e, p.level(e, now), freedGPUs{}):] {
		for _, u := range m.GPUs {
			if ofUse(u) {
				gpus++
			}
		}
	}
	return gpus, v.safeUntil
}

// with is the gang with those of its members only, from one to before another.
func (e *entry) with(from, to int) *entry {
	some := *e
	some.placement.Members = e.placement.Members[from:to]
	return &some
}

// vacateMembers frees the GPUs of the members from one to before another in the what-if;
// it returns what takes them again.
func (p *whatIf) vacateMembers(v *entry, from, to int) (back func()) {
	return p.vacate(v.with(from, to))
}

// claimLent decides that the gangs give the members back whose GPUs are wanted, with
// those that came after them: Nomad ends the last first.
func (p *pass) claimLent(e *entry, pl pal.Placement, from []*entry) bool {
	return p.takeFrom(&claim{by: e, placement: pl}, from, p.giveBack)
}

// giveBack ends the members from the first on that has a GPU that is wanted; ok is false if none has.
func (p *pass) giveBack(v *entry, wanted map[int]bool) (a Action, ok bool) {
	n := firstOn(v.placement, wanted)
	if n < 0 {
		return a, false
	}
	p.learnLent(p.now, v)
	v.target = pal.Predict(p.c, v.sized(n), v.placement.Members[:n:n])
	return Action{Kind: Resize, Found: pal.Found{Placement: v.target}}, true
}

// grow gives free GPUs that nobody who waits can use to elastic gangs: to those that are
// expected to hold GPUs for the shortest time first, as most jobs are done soonest that
// way. It comes last in a pass, so what is free then nobody else has wanted; not in one that
// may start no more, as it has not tried all who wait.
func (p *pass) grow() {
	p.wanted = len(p.live) > 0 && (p.lentFor == 0 || p.isWanted()) // who waits does not matter before that is known
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
	slices.SortFunc(es, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(p.area(a, p.now), p.area(b, p.now)), cmp.Compare(a.seq, b.seq))
	})
	for _, e := range es {
		if to, ok := p.larger(e); ok {
			p.growTo(e, to)
		}
	}
}

// isWanted reports whether a gang waits that could ever have GPUs which are lent now.
func (p *pass) isWanted() bool {
	for _, b := range p.live {
		for i := range b.es {
			if e := b.es[i].e; e.tooLargeFor(0) == nil && p.awaits(e) {
				return true
			}
		}
	}
	return false
}

// larger is the placement of a running gang with so many further members that it ends
// soonest, if they pay. Their GPUs are no outliers, or no slower than its slowest, which sets the pace; and the head
// is not delayed. Numbers of members are tried by halves.
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
			if r := p.reserved(); r.known && p.now+time.Duration(takes)+e.job.RestartCost > r.at {
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

// enlarged is the placement of a running gang with further members beside those that it
// has.
func (p *pass) enlarged(e, more *entry) (pal.Placement, bool) {
	f, ok := p.find(more)
	if !ok {
		return pal.Placement{}, false
	}
	members := slices.Concat(e.placement.Members, f.Members)
	to := pal.Predict(p.c, e.sized(len(members)), members)
	return to, e.full.MaxTier == 0 || to.Tier <= e.full.MaxTier
}

// pays reports whether it pays a gang to grow that would take less time for what is left of
// its work: what it saves for as long as GPUs are lent must be more than twice what its
// restarts cost, a second one if it is to give the GPUs back before it ends. GPUs are lent
// for as long as they were lately, or as nobody has waited by now.
func (p *pass) pays(e *entry, was, takes float64) bool {
	lasts, restarts := takes, 1.0
	if l := float64(max(p.lentFor, p.now-p.wantedAt)); p.lentFor > 0 && l < takes {
		lasts, restarts = l, 2
	}
	return lasts*(was/takes-1) > 2*restarts*float64(e.job.RestartCost)
}

// lending is for how long GPUs can be lent to elastic gangs.
type lending struct {
	lentFor  time.Duration // how long growths last; 0: not known
	wantedAt time.Duration // when a gang waited last that could have GPUs some time, after a pass
	wanted   bool          // such a gang waited after the last pass
}

// learnLent notes for how long a gang had what it grew by: lentFor is an average in
// which the last sixteen or so count.
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

// growTo decides the growth.
func (p *pass) growTo(e *entry, to pal.Placement) {
	e.grownAt = cmp.Or(e.grownAt, p.now)
	e.lent = len(to.Members)*e.full.MemberSets[0].GPUs - e.gpus
	e.of.tenant.count(e.job.User, e.lent)
	p.moveTo(e, Resize, to)
}

// Settled reports that some of a gang's members have done their work: it is not moved, as they
// would do it again, and an elastic one keeps its size, until it starts again.
func (q *Queue) Settled(id string) {
	if e := q.entries[id]; e != nil {
		e.settled = true
	}
}

// resizesFrom calls soon with each time from which an elastic gang may change its size
// that may not now.
func (l *lending) resizesFrom(elastics []*entry, waiting bool, now time.Duration, soon func(time.Duration)) {
	for _, e := range elastics {
		n := len(e.placement.Members)
		if n < e.full.MemberSets[0].Members || n > e.job.Least && waiting {
			soon(e.safeUntil)
		}
		if n < e.full.MemberSets[0].Members && (!waiting || !l.wanted) && l.lentFor > 0 {
			soon(now + max(minRuns*e.job.RestartCost, now-l.wantedAt)) // it may pay then, see pays
		}
	}
}

// Size is how many members an elastic gang runs with, and between how many.
type Size struct {
	Members int `json:"members"` // that it has, 0 while it waits
	Least   int `json:"least"`   // that it needs
	Most    int `json:"most"`    // that it may have
	// Settled: it stays as it is, because some of its members have done their work.
	Settled bool `json:"settled,omitempty"`
}

// SizeOf is the size of a gang that runs or waits; ok is false where it is not elastic.
// Members is 0 where it waits.
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
