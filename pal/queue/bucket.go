// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	container "container/heap"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// heap is a binary heap of entries. Each entry stores its position in the heap, so any entry can be
// removed in logarithmic time: *pos(es[i]) == i always holds.
type heap struct {
	less func(a, b *entry) bool
	pos  func(e *entry) *int
	es   []*entry
}

func (h *heap) push(e *entry)   { container.Push(h, e) }
func (h *heap) remove(e *entry) { container.Remove(h, *h.pos(e)) }

// fix moves an entry to its place after its key has changed.
func (h *heap) fix(e *entry) { container.Fix(h, *h.pos(e)) }

// Len, Less, Swap, Push and Pop implement container/heap's Interface.
func (h *heap) Len() int           { return len(h.es) }
func (h *heap) Less(i, j int) bool { return h.less(h.es[i], h.es[j]) }

func (h *heap) Swap(i, j int) {
	h.es[i], h.es[j] = h.es[j], h.es[i]
	*h.pos(h.es[i]), *h.pos(h.es[j]) = i, j
}

func (h *heap) Push(e any) {
	*h.pos(e.(*entry)) = len(h.es)
	h.es = append(h.es, e.(*entry))
}

func (h *heap) Pop() any {
	last := len(h.es) - 1
	e := h.es[last]
	h.es[last], h.es = nil, h.es[:last]
	return e
}

// book holds the waiting gangs.
type book struct {
	buckets map[signature]*bucket
	live    []*bucket // all buckets, in no order; none is empty
	ages    heap      // gangs that are not overdue, by the time when they become overdue
	overdue heap      // overdue gangs, by the time of submission
}

func newBook() book {
	pos := func(e *entry) *int { return &e.agePos }
	return book{
		buckets: map[signature]*bucket{},
		ages: heap{pos: pos, less: func(a, b *entry) bool { // the gang that is overdue first comes first; see age
			return cmp.Or(cmp.Compare(a.overdueFrom(), b.overdueFrom()), cmp.Compare(a.seq, b.seq)) < 0
		}},
		overdue: heap{pos: pos, less: func(a, b *entry) bool { return a.bySubmission(b) < 0 }},
	}
}

// signature contains everything that decides where a waiting gang fits. If one gang does not fit, a
// pass skips all other gangs with the same signature. Run time and priority are not in the
// signature, because they only sort the gangs of a bucket.
type signature struct {
	class      pal.AppClass
	maxTier    pal.Tier
	memberSets string
	tenant     string // "" if no tenant differs from another
	user       string // "" if users have no limits
	// Gangs that can be stopped or moved have other rules for backfill and for waiting.
	preemptible, migratable bool
	anywhere                bool
	admitted                string // windows whose GPUs the gang may use
	array                   string
	endless                 bool
	claimed                 bool // other gangs are being stopped for it
	least                   int  // set for an elastic gang, for which memberSets describes the current size
}

// bucket holds the waiting gangs of one signature, in a binary heap by their keys. A bucket is
// deleted when its last gang leaves.
type bucket struct {
	es          []place // es[i].e.pos == i always holds
	sig         signature
	gpus        int
	livePos     int
	failed      attempt       // the last failed attempt
	failedUntil time.Duration // a gang of the bucket that ends by this time may fit
	done        uint64        // number of the last pass in which no more gangs of the bucket are to be tried
	// from is the next gang that the current pass tries. The pass tries only gangs whose run time
	// at cost 1 is at most slack. Both fields are valid only in the pass whose number is `passes`.
	from   *entry
	passes uint64
	slack  time.Duration
}

// place is a gang in a bucket. A place copies the fields that decide when the gang is tried, so
// that the scan of a long bucket does not read every entry.
type place struct {
	key    key
	expect time.Duration
	e      *entry
}

func (b *bucket) push(e *entry)   { container.Push(b, e) }
func (b *bucket) remove(e *entry) { container.Remove(b, e.pos) }

// fix moves a gang to its place in the heap after its key or its expected run time has changed.
func (b *bucket) fix(e *entry) {
	p := &b.es[e.pos]
	if p.expect = e.expect; p.key != e.key {
		p.key = e.key
		container.Fix(b, e.pos)
	}
}

// Len, Less, Swap, Push and Pop implement container/heap's Interface.
func (b *bucket) Len() int           { return len(b.es) }
func (b *bucket) Less(i, j int) bool { return b.es[i].key.compare(b.es[j].key) < 0 }

func (b *bucket) Swap(i, j int) {
	b.es[i], b.es[j] = b.es[j], b.es[i]
	b.es[i].e.pos, b.es[j].e.pos = i, j
}

func (b *bucket) Push(a any) {
	e := a.(*entry)
	e.pos = len(b.es)
	b.es = append(b.es, place{e.key, e.expect, e})
}

func (b *bucket) Pop() any {
	last := len(b.es) - 1
	e := b.es[last].e
	b.es[last], b.es = place{}, b.es[:last]
	return e
}

// after returns the first gang behind the key k whose expected run time is at most `long`.
func (b *bucket) after(k key, long time.Duration) *entry {
	var first *place
	for i := range b.es {
		p := &b.es[i]
		if p.expect <= long && k.compare(p.key) < 0 && (first == nil || p.key.compare(first.key) < 0) {
			first = p
		}
	}
	if first == nil {
		return nil
	}
	return first.e
}

// attempt records the conditions under which a gang of a bucket did not fit. On an exclusive
// cluster ([Options.Exclusive]), the gang does not fit as long as these conditions last.
type attempt struct {
	version uint64 // Queue.version
	head    *entry
	// first is the gang that was tried. The field `starts` is the total number of starts before the
	// attempt. Both fields are zero if there was no head or window, because all gangs
	// of the bucket then fail in the same way. For gangs that share GPUs, `starts` is always set.
	first  *entry
	starts uint64
}

// sign sets the gang's signature.
func (q *Queue) sign(e *entry) {
	e.sig = signature{class: e.job.Gang.Class, maxTier: e.job.Gang.MaxTier, memberSets: memberSets(e.job.Gang), anywhere: e.job.Anywhere,
		preemptible: e.job.Preemptible, migratable: e.job.Migratable, admitted: q.windows.admitted(e.job), array: e.job.array(), endless: e.job.Endless, claimed: e.claim != nil, least: e.job.Least}
	if q.opt.FairShare || len(q.opt.Tenants) > 0 {
		e.sig.tenant = e.job.Tenant
	}
	if q.tree.users {
		e.sig.user = e.job.User
	}
	e.kind = nil
}

// enqueue adds a gang to its bucket and to the lists of waiting gangs. While the gang waits, its
// expected run time and key change only because of new history (see resort). An elastic gang waits
// with its full size.
func (q *Queue) enqueue(e *entry) {
	e.state, e.settled, e.declined = waiting, false, -1
	if e.elastic != nil {
		q.resize(e, e.full.MemberSets[0].Members)
	}
	q.sign(e)
	e.expect, e.patience = q.remaining(e, e.waitingSince), q.patience(e.job)
	e.key = q.keyOf(e)
	q.putInto(e, e.sig)
	q.indexByName(e)
	if e.overdue {
		q.overdue.push(e)
	} else {
		q.ages.push(e)
	}
}

// putInto puts a waiting gang into the bucket of the signature, and creates the bucket if
// necessary.
func (bk *book) putInto(e *entry, sig signature) {
	b := bk.buckets[sig]
	if b == nil {
		b = &bucket{sig: sig, gpus: e.whole(), livePos: len(bk.live)}
		bk.buckets[sig] = b
		bk.live = append(bk.live, b)
	}
	e.bucket = b
	b.push(e)
}

// rebucket moves a waiting gang to another bucket after the gang got or lost a claim.
func (bk *book) rebucket(e *entry) {
	e.sig.claimed = e.claim != nil
	if e.bucket != nil {
		sig := e.bucket.sig
		sig.claimed = e.sig.claimed
		bk.takeOut(e)
		bk.putInto(e, sig)
	}
}

// memberSets returns [pal.Gang.Demand], with a fast path for the common gang of one-GPU members.
func memberSets(g pal.Gang) string {
	if len(g.MemberSets) == 1 && g.MemberSets[0].Eligible == nil && g.MemberSets[0].Prefer == nil && g.MemberSets[0].Need == (pal.Resources{}) && g.MemberSets[0].GPUs == 1 && len(g.Speeds) == 0 {
		return strconv.Itoa(g.MemberSets[0].Members)
	}
	return g.Demand()
}

// all lists the waiting gangs, in no particular order.
func (bk *book) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, b := range bk.live {
			for i := range b.es {
				if !yield(b.es[i].e) {
					return
				}
			}
		}
	}
}

// leaveQueue removes a gang that no longer waits, and its claim.
func (q *Queue) leaveQueue(e *entry) {
	q.dequeue(e)
	if e.claim != nil {
		q.drop(e.claim)
	}
}

// dequeue removes a waiting gang from its bucket and from the lists of waiting gangs.
func (q *Queue) dequeue(e *entry) {
	q.takeOut(e)
	q.unindexByName(e)
	if e.overdue {
		q.overdue.remove(e)
	} else {
		q.ages.remove(e)
	}
}

// takeOut removes a waiting gang from its bucket, and deletes the bucket if it is then empty.
func (bk *book) takeOut(e *entry) {
	b := e.bucket
	b.remove(e)
	e.bucket = nil
	if len(b.es) == 0 {
		last := bk.live[len(bk.live)-1]
		bk.live[b.livePos], last.livePos = last, b.livePos
		bk.live = bk.live[:len(bk.live)-1]
		delete(bk.buckets, b.sig)
	}
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
func (e *entry) overdueFrom() time.Duration { return e.waitingSince - e.waited + e.patience }

// age marks the gangs that have become overdue. An overdue gang that runs, is stopped and waits
// again is still overdue.
func (bk *book) age(now time.Duration) {
	for len(bk.ages.es) > 0 && bk.ages.es[0].overdueFrom() <= now {
		e := bk.ages.es[0]
		bk.ages.remove(e)
		e.overdue = true
		bk.overdue.push(e)
	}
}

// resort moves waiting gangs whose names have new history to their new places in the queue. Names
// are visited in sorted order, because decisions must not depend on the order of a map.
func (q *Queue) resort() {
	if len(q.learned) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(q.learned)) {
		for _, e := range q.named[name] {
			e.expect = q.remaining(e, e.waitingSince)
			e.key = q.keyOf(e)
			e.bucket.fix(e)
			if patience := q.patience(e.job); patience != e.patience && !e.overdue {
				e.patience = patience
				q.ages.fix(e)
			}
		}
	}
	clear(q.learned)
}

// indexByName adds a waiting gang to the index of waiting gangs. The key of the index is the name
// whose history predicts a gang's run time.
func (fs *foresight) indexByName(e *entry) {
	by := e.toldBy()
	e.namePos = len(fs.named[by])
	fs.named[by] = append(fs.named[by], e)
}

func (fs *foresight) unindexByName(e *entry) {
	by := e.toldBy()
	es := fs.named[by]
	last := es[len(es)-1]
	es[e.namePos], last.namePos = last, e.namePos
	es[len(es)-1] = nil
	fs.named[by] = es[:len(es)-1]
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
