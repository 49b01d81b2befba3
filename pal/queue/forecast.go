// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
	"unique"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// The Queue estimates the start of a waiting gang from the ends that the gang needs: gangs start one
// after the other, in the order of the queue, as soon as enough GPUs are free. The range of the
// expected start extends from one multiple of the estimated wait to another, but it never begins
// before the first end that the gang needs. The two factors are learned from the starts of gangs on
// this cluster: every few passes, the Queue predicts the start of one waiting gang. If the gang
// starts before or after the predicted range, the factor at this end changes by more than it changes
// the other way if the gang starts in the range (adaptive conformal inference, Gibbs and Candès
// 2021). In the long run, eight of ten gangs start in their range.
const (
	// rangeMisses is the fraction of ranges that may be missed at the lower end, and also the
	// fraction that may be missed at the upper end.
	rangeMisses = 0.1
	// rangeStep is the step by which the factors change, as a natural logarithm.
	rangeStep = 0.15
	// mostFactor is the largest factor, as a natural logarithm.
	mostFactor = 7
	// In every checkEvery-th pass (less often if the queue is long), the start of one gang is
	// predicted, and the prediction is checked later. The constant maxOpen is the maximum number of
	// predictions to be checked.
	checkEvery, maxOpen = 4, 1024
	// enoughStarts is the number of checks after which starts are also predicted from run times that
	// are only guessed.
	enoughStarts = 20
	// leastRange is the shortest range.
	leastRange = 30 * time.Second
	// firstFactor is the factor at the upper end before anything has been learned, as a natural
	// logarithm; that at the lower end is the reciprocal.
	firstFactor = 1
)

// prediction is a range in which a gang is predicted to start, since the caller's epoch.
type prediction struct {
	job      string
	from, to time.Duration
	started  time.Duration // 0: not yet
	checked  bool          // the lower end has been checked
}

// forecasts contains what the Queue has learned about its predictions.
type forecasts struct {
	low, high float64      // natural logarithms of the factors at the ends of a range
	checks    int          // number of predictions that have been checked
	open      []prediction // predictions that have not been checked, oldest first
}

// rangeOf returns the range of a start, given the estimate and the first end that the gang needs.
func (f *forecasts) rangeOf(now, estimate, first time.Duration) prediction {
	wait := (estimate - now).Seconds()
	r := prediction{from: max(first, now+seconds(wait*math.Exp(f.low)))}
	r.to = max(r.from+leastRange, now+seconds(wait*math.Exp(f.high)))
	return r
}

// adapt returns the natural logarithm of a factor after a range was missed at this end or not. The
// parameter `by` is the change that makes the range wider.
func adapt(factor float64, missed bool, by float64) float64 {
	if missed {
		factor += by * (1 - rangeMisses)
	} else {
		factor -= by * rangeMisses
	}
	return min(max(factor, -mostFactor), mostFactor)
}

// learnWait records that a gang starts now.
func (f *forecasts) learnWait(now time.Duration, e *entry) {
	for i := range f.open {
		r := &f.open[i]
		if r.job == e.job.ID && r.started == 0 {
			r.started = now
		}
	}
}

// forget deletes the predictions for a gang that leaves the Queue before it started, because its
// full wait is unknown.
func (f *forecasts) forget(e *entry) {
	f.open = slices.DeleteFunc(f.open, func(r prediction) bool { return r.job == e.job.ID && r.started == 0 })
}

// check changes the factors for later ranges. It checks each end of a range when this end has passed.
// If it checked a range as soon as the gang has started, short waits would count before long ones.
func (f *forecasts) check(now time.Duration) {
	for i := range f.open {
		r := &f.open[i]
		if now > r.from && !r.checked {
			f.low, r.checked = adapt(f.low, r.started > 0 && r.started < r.from, -rangeStep), true
		}
	}
	f.open = slices.DeleteFunc(f.open, func(r prediction) bool {
		if now <= r.to {
			return false
		}
		f.high = adapt(f.high, r.started == 0 || r.started > r.to, rangeStep)
		f.checks++
		return true
	})
}

// checkForecast predicts the start of one waiting gang, to learn from the outcome. The number of the
// pass selects the gang, so that all parts of the queue are selected equally often.
func (p *pass) checkForecast() {
	n := len(p.line)
	every := uint64(checkEvery + (n+len(p.running))/50)
	if n == 0 || p.passes%every != 0 {
		return
	}
	// The fractional parts of the first n multiples of the golden ratio are spread evenly over 0…1,
	// for every n.
	_, part := math.Modf(float64(p.passes/every) * math.Phi)
	e := p.line[int(part*float64(n))]
	p.forecasts.check(p.now)
	l := p.newOutlook(true)
	for _, ahead := range p.line {
		if ahead == e {
			break
		}
		l.start(ahead)
	}
	first, estimate, ok := l.start(e)
	if ok {
		r := p.forecasts.rangeOf(p.now, estimate, first)
		r.job = e.job.ID
		p.forecasts.open = append(p.forecasts.open[max(0, len(p.forecasts.open)-maxOpen+1):], r)
	}
}

// expect sets From and To of ws: the range in which each gang of the queue is expected to start. Some
// gangs have no expected start: those that could start only after a service or a running gang of
// unknown run time has ended, and those behind a gang of unknown run time. Run times count as known
// once the Queue has learned enough from starts. A gang for which other gangs are being stopped or
// shrunk has no expected start either: it starts once their members have ended, which takes little
// time.
func (p *pass) expect(queue []*entry, ws []Wait) {
	l := p.newOutlook(p.forecasts.checks >= enoughStarts)
	for i, e := range queue {
		w := &ws[i]
		if slices.Contains(p.started, e) {
			w.From, w.To = p.now, p.now+leastRange
		}
		first, estimate, ok := l.start(e)
		if ok && w.Reason != reason.Services && w.Reason != reason.Spared {
			if w.Reason == reason.InWindow {
				first, estimate = max(first, w.Until), max(estimate, w.Until)
			}
			r := p.forecasts.rangeOf(p.now, estimate, first)
			w.From, w.To = r.from, r.to
		}
	}
}

// outlook estimates when waiting gangs start, one after the other.
type outlook struct {
	p           *pass
	guess       bool // whether run times may be guessed
	early, ends []ending
	ofKind      map[unique.Handle[signature]]*supply // GPUs, if running gangs end early, for gangs of a kind
	inOrder     map[string]*supply                   // GPUs, by the GPUs that gangs can use
	underLimit  map[limit]*supply
	openings    map[opening]time.Duration
	unknown     bool       // the run time of a gang ahead is unknown
	last        prediction // under strict order: the first end that the gang ahead needs, and its estimate
}

// limit is a limit, and whether the running gangs end early.
type limit struct {
	ceiling
	early bool
}

// opening is a gang's kind, and whether the running gangs end early.
type opening struct {
	kind  unique.Handle[signature]
	early bool
}

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
		most := t.MaxGPUsPerUser
		if most > 0 {
			left[ceiling{tenant: t, user: user}] = float64(most) - t.users[user].GPUs
		}
		most = t.MaxJobsPerUser
		if most > 0 {
			left[ceiling{tenant: t, user: user, jobs: true}] = float64(most - t.users[user].Jobs)
		}
	}
	a := e.job.array()
	if a != "" {
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

// supply is what is free of the GPUs or of a limit, and the parts that gangs are expected to free
// when they end.
type supply struct {
	left float64
	now  time.Duration // latest time that opens has returned, or the start of the last gang
	ends []comeback    // soonest first
}

// comeback is the part that a gang frees when it ends.
type comeback struct {
	at   time.Duration
	much float64
}

// back adds a part that a gang will free.
func (s *supply) back(c comeback) {
	i, _ := slices.BinarySearchFunc(s.ends, c, comeback.compare)
	s.ends = slices.Insert(s.ends, i, c)
}

func (c comeback) compare(o comeback) int {
	return cmp.Or(cmp.Compare(c.at, o.at), cmp.Compare(c.much, o.much))
}

// opens returns the first time at which at least `much` is free. ok is false if that time is
// unknown. Callers must call opens in the order of the queue.
func (s *supply) opens(much float64) (at time.Duration, ok bool) {
	const rounding = 1e-9 // more than the rounding errors of sums of parts of GPUs
	for len(s.ends) > 0 && (s.ends[0].at <= s.now || s.left+rounding < much) {
		s.now = max(s.now, s.ends[0].at)
		s.left += s.ends[0].much
		s.ends = s.ends[1:]
	}
	return s.now, s.left+rounding >= much
}

func (p *pass) newOutlook(guess bool) *outlook {
	return &outlook{p: p, guess: guess, early: p.expectedEnds(true, guess), ends: p.expectedEnds(false, guess),
		ofKind: map[unique.Handle[signature]]*supply{}, inOrder: map[string]*supply{}, underLimit: map[limit]*supply{}, openings: map[opening]time.Duration{}}
}

// start estimates when a waiting gang starts, and returns the first end that the gang needs. ok is
// false if the start is unknown. Callers must call start in the order of the queue.
func (l *outlook) start(e *entry) (first, estimate time.Duration, ok bool) {
	p := l.p
	if e.state != waiting || e.promised != nil || e.tooLarge() != nil || !p.possible(e) {
		return 0, 0, false
	}
	least, known := p.least(e, p.now)
	if p.overQuota(e) {
		first, ok = l.book(l.limits(e, true), p.now, least)
		estimate, okLate := l.book(l.limits(e, false), p.now, e.memo.expect)
		return first, estimate, ok && okLate
	}
	if l.unknown {
		return 0, 0, false
	}
	l.unknown = !l.guess && !known && !e.job.Endless
	opens, fits := l.opening(e, true)
	opensLate, fitsLate := l.opening(e, false)
	if !fits || !fitsLate {
		l.unknown = !l.guess
		return 0, 0, false
	}
	if p.barring(e) != nil || e.job.Gang.Sharing != nil || e.job.Endless {
		return opens, opensLate, true
	}
	// A gang needs the ends of the gangs ahead of its kind, but it may pass others.
	kind := e.memo.kind
	if l.ofKind[kind] == nil {
		l.ofKind[kind] = l.gpus(e, l.early)
	}
	lane := ""
	if picky(e) {
		lane = usableBy(e.job.Gang)
	}
	if l.inOrder[lane] == nil {
		l.inOrder[lane] = l.gpus(e, l.ends)
	}
	needs := float64(e.gpus)
	first, ok = l.book(map[*supply]float64{l.ofKind[kind]: needs}, opens, least)
	estimate, okLate := l.book(map[*supply]float64{l.inOrder[lane]: needs}, opensLate, e.memo.expect)
	if p.opt.Backfill == BackfillNone {
		first, estimate = max(first, l.last.from), max(estimate, l.last.to)
		l.last = prediction{from: first, to: estimate}
	}
	return first, estimate, ok && okLate
}

// book finds the first time from `at` on when all that the gang needs is free, and reserves it for
// the gang's run time. ok is false if there is no such time.
func (l *outlook) book(needs map[*supply]float64, at, run time.Duration) (_ time.Duration, ok bool) {
	ok = true
	for s, much := range needs {
		opens, is := s.opens(much)
		at, ok = max(at, opens), ok && is
	}
	if !ok {
		return 0, false
	}
	for s, much := range needs {
		s.now, s.left = at, s.left-much
		s.back(comeback{later(at, run), much})
	}
	return at, true
}

// usableBy names the GPUs that a gang can use.
func usableBy(g pal.Gang) string {
	g.MemberSets = slices.Clone(g.MemberSets)
	for i := range g.MemberSets {
		s := &g.MemberSets[i]
		s.Members, s.GPUs = 1, 1
		s.Need = pal.Resources{}
	}
	return memberSets(g)
}

// gpus returns the supply of GPUs that the gang can use.
func (l *outlook) gpus(e *entry, ends []ending) *supply {
	p := l.p
	s := &supply{left: float64(p.c.FreeGPUs()), now: p.now}
	if picky(e) {
		s.left = float64(pal.FreeFor(p.c, e.job.Gang))
	}
	for _, v := range ends {
		s.ends = append(s.ends, comeback{v.at, float64(usable(e, v))})
	}
	return s
}

// limits returns the supplies of the limits that a gang counts towards, and how much the gang needs
// of each.
func (l *outlook) limits(e *entry, early bool) map[*supply]float64 {
	needs := map[*supply]float64{}
	ends := l.ends
	if early {
		ends = l.early
	}
	for b, left := range l.p.ceilings(e) {
		k := limit{b, early}
		if l.underLimit[k] == nil {
			s := &supply{left: left, now: l.p.now}
			for _, v := range ends {
				_, counts := l.p.ceilings(v.entry)[b]
				if counts {
					s.ends = append(s.ends, comeback{v.at, b.counts(v.held())})
				}
			}
			l.underLimit[k] = s
		}
		needs[l.underLimit[k]] = b.counts(e.amount(e.least()))
	}
	return needs
}

// opening returns when the gang fits if no other waiting gang starts. With `early`, the running gangs
// end as early as they can.
func (l *outlook) opening(e *entry, early bool) (at time.Duration, ok bool) {
	k := opening{e.memo.kind, early}
	at, ok = l.openings[k]
	if !ok {
		ends := l.ends
		if early {
			ends = l.early
		}
		at = math.MaxInt64
		n, fits := l.p.fitsAfter(e, ends)
		if fits {
			at = l.p.now
			if n > 0 {
				at = ends[n-1].at
			}
		}
		l.openings[k] = at
	}
	return at, at < math.MaxInt64
}

// fitsAfter returns the smallest number n for which the gang fits after the first n of the given
// ends, whatever the windows. ok is false if the gang does not fit even after all ends.
func (p *pass) fitsAfter(e *entry, ends []ending) (n int, ok bool) {
	fits := func(from, to int) (fits bool) { // after the ends from…to-1 are gone, too
		p.whatIf(func() {
			for _, end := range ends[from:to] {
				p.leave(end)
			}
			_, fits = p.search(e)
		})
		return fits
	}
	if fits(0, 0) {
		return 0, true
	}
	p.whatIf(func() {
		low, high := 0, 1 // it does not fit after the first `low` ends, which are gone
		for high < len(ends) && !fits(low, high) {
			for ; low < high; low++ {
				p.leave(ends[low])
			}
			high *= 2
		}
		high = min(high, len(ends))
		if low == high || !fits(low, high) {
			return
		}
		for low+1 < high {
			mid := (low + high) / 2
			if fits(low, mid) {
				high = mid
				continue
			}
			for ; low < mid; low++ {
				p.leave(ends[low])
			}
		}
		n, ok = high, true
	})
	return n, ok
}

// picky reports whether the gang needs certain GPUs, and not only enough free GPUs. A gang is picky
// if it shares GPUs, or cannot use every GPU of the cluster.
func picky(e *entry) bool {
	return e.job.Gang.Sharing != nil || slices.ContainsFunc(e.job.Gang.MemberSets, func(s pal.MemberSet) bool { return slices.Contains(s.Eligible, false) })
}

// usable returns how many of the GPUs that become free the gang can use.
func usable(e *entry, v ending) (n int) {
	if v.marked != nil || !picky(e) {
		return len(v.frees())
	}
	for _, m := range v.placement.Members[v.from:v.to] {
		if e.job.Gang.MayUse(m.Group) {
			n += len(m.GPUs)
		}
	}
	return n
}

// expectedEnds returns the expected ends of the running gangs, and of the gangs with claims, the
// earliest first. With `early`, gangs end at the start of the range predicted for their ends, gangs
// that can be stopped end now, and elastic gangs give back members. Services are omitted, and unless
// `guess` is set, also gangs whose run time is unknown. Members that are being stopped end now.
func (p *pass) expectedEnds(early, guess bool) (ends []ending) {
	run := func(e *entry) (left time.Duration, ok bool) {
		left, ok = p.least(e, p.now)
		if !early {
			left = p.remaining(e, p.now)
		}
		return left, (guess || ok) && !e.job.Endless
	}
	promised := map[int]bool{}
	for _, e := range p.claims {
		gpus := e.promised.placement.GPUs()
		maps.Copy(promised, setOf(gpus))
		if left, ok := run(e); ok && len(gpus) > 0 {
			ends = append(ends, ending{entry: e, at: later(p.now, left), marked: gpus})
		}
	}
	for _, e := range p.pending {
		if left, ok := run(e); ok && e.state == starting {
			ends = append(ends, endingOf(e, later(p.now, left)))
		}
	}
	for _, e := range p.running {
		n := len(e.placement.Members)
		stays, at := n, p.now
		switch {
		case e.state == stopping:
			stays = len(e.target.Members)
		case early && p.stoppable(e):
			stays = 0
		case e.hasLent():
			stays, at = e.job.Least, max(p.now, e.safeUntil())
		}
		if stays < n {
			leaving := ending{entry: e, at: at, from: stays, to: n}
			leaving.marked = slices.DeleteFunc(leaving.frees(), func(u int) bool { return promised[u] })
			ends = append(ends, leaving)
		}
		if left, ok := run(e); ok && stays > 0 {
			ends = append(ends, ending{entry: e, at: e.endsAt(p.now, left), to: stays})
		}
	}
	sortEndings(ends)
	return ends
}
