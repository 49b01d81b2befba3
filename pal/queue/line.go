// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

type state uint8

const (
	waiting  state = iota
	starting       // decided, not yet reported
	running
	stopping // to be preempted, not yet reported
	moving   // to be migrated, not yet reported
)

// entry is a job in the line.
type entry struct {
	job   Job
	of    *namespace
	gpus  int
	seq   int64
	state state

	bucket  *bucket   // while waiting
	sig     signature // of the bucket that it is or was in
	pos     int       // in bucket
	agePos  int       // in Line.ages or Line.overdue, while waiting
	namePos int       // in Line.named, while waiting
	key     key
	urgency urgency       // while waiting
	expect  time.Duration // to run on at cost 1, while waiting
	overdue bool          // it has waited longer than Options.MaxWait in all
	granted bool          // it runs, or is to, because it was overdue

	waitingSince time.Duration
	waited       time.Duration // before waitingSince, in all
	safeUntil    time.Duration // not stopped before
	startedAt    time.Duration
	booked       int           // GPUs that count as used since
	before       time.Duration // attained before startedAt
	doneBefore   time.Duration // work done before startedAt, at cost 1
	placement    pal.Placement // where it runs, or is about to
	target       pal.Placement // where it moves to
	expectedEnd  time.Duration // as foreseen when it started, or was to have ended
	stayed       uint64        // Line.version when no move paid
	runPos       int           // in Line.running
	foretold     []*foretold   // of when it starts, to be judged
	// Of Line.levels, if rated: where, and when that is to be looked at again.
	rated    bool
	level    *level
	levelDue time.Duration
	duePos   int
}

// attained is how long the gang has run in all.
func (e *entry) attained(now time.Duration) time.Duration {
	if e.state == waiting || e.state == starting {
		return e.before
	}
	return e.before + max(0, now-e.startedAt)
}

// work is how much it has done, in time at cost 1.
func (e *entry) work(now time.Duration) time.Duration {
	if e.state == waiting || e.state == starting {
		return e.doneBefore
	}
	return e.doneBefore + time.Duration(float64(max(0, now-e.startedAt))/e.placement.Cost())
}

// Line is the waiting line and what runs. It is not safe for concurrent use.
type Line struct {
	opt     Options
	entries map[string]*entry
	seq     int64
	buckets map[signature]*bucket
	live    []*bucket // those that hold gangs
	ages    heap      // waiting gangs that are not overdue, by how long they wait
	overdue heap      // waiting gangs that are, by submission
	turn    *turn     // of the overdue gang that GPUs are kept for
	account account   // of what the overdue get
	running []*entry  // in no order
	byEnd   []*entry  // the running ones by expected end
	levels  levels    // of the running ones that may be stopped
	claims  []*claim  // GPUs that preemption frees, and for whom
	pending []*entry  // starting or moving: decided, not reported
	tenancy
	windows windows
	dated   []*entry // waiting gangs with a deadline
	history map[string]*past
	lessons int64               // taken in so far
	learned map[string]struct{} // names whose gangs must be sorted anew
	named   map[string][]*entry // waiting gangs by name
	singles []string            // shapes by number of members
	chances []chance            // memory of outlook
	version uint64              // grows when GPUs may have come free
	passes  uint64              // calls of Decide
	trying  string              // see Trying
	starts  uint64              // decided
	// everFitting, needing (GPUs that are avoided) and leastCosts are by kind of gang,
	// until Changed.
	everFitting   map[signature]bool
	needing       map[signature]bool
	localityUntil time.Duration // when the first gang stops waiting for GPUs closer together
	leastCosts    map[signature]float64
	movesFrom     time.Duration // see NoMoves
	forecasts     forecasts     // of starts
}

// New makes an empty line.
func New(o Options) (*Line, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Line{opt: o, entries: map[string]*entry{}, buckets: map[signature]*bucket{}, tenancy: newTenancy(o.Tenants),
		history: map[string]*past{}, learned: map[string]struct{}{}, named: map[string][]*entry{}, everFitting: map[signature]bool{},
		needing: map[signature]bool{}, leastCosts: map[signature]float64{}, levels: newLevels(), version: 1,
		forecasts: forecasts{from: firstWider, until: firstWider}}
	l.ages.less = func(a, b *entry) bool {
		if a.waitingSince-a.waited != b.waitingSince-b.waited {
			return a.waitingSince-a.waited < b.waitingSince-b.waited
		}
		return a.seq < b.seq
	}
	l.ages.pos = func(e *entry) *int { return &e.agePos }
	l.overdue.less = func(a, b *entry) bool { return a.bySubmission(b) < 0 }
	l.overdue.pos = func(e *entry) *int { return &e.agePos }
	return l, nil
}

// Submit puts a job at its place in the line; now is when it began to wait. One
// that never ran has waited since it was submitted, also where the placer
// started anew in between.
func (l *Line) Submit(now time.Duration, j Job) error {
	e, err := l.newEntry(j)
	if err != nil {
		return err
	}
	e.waitingSince = now
	if j.Attained == 0 {
		e.waitingSince = min(now, j.Submitted)
	}
	l.enqueue(e)
	return nil
}

// Restore tells of a gang that already runs since started on the placement.
func (l *Line) Restore(j Job, p pal.Placement, started time.Duration) error {
	e, err := l.newEntry(j)
	if err != nil {
		return err
	}
	l.run(e, p, started)
	return nil
}

func (l *Line) newEntry(j Job) (*entry, error) {
	e := &entry{job: j, of: l.namespace(j.Tenant), gpus: j.Gang.GPUs(), seq: l.seq, before: j.Attained, doneBefore: j.Done, waited: j.Waited}
	if j.Done == 0 {
		e.doneBefore = j.Attained
	}
	switch {
	case l.entries[j.ID] != nil:
		return nil, fmt.Errorf("queue: job %q is there already", j.ID)
	case e.gpus <= 0:
		return nil, fmt.Errorf("queue: job %q asks for no GPU", j.ID)
	case j.Gang.Class.Index() < 0:
		return nil, fmt.Errorf("queue: job %q: application class %q is unknown", j.ID, j.Gang.Class)
	}
	l.seq++
	l.entries[j.ID] = e
	l.sign(e)
	return e, nil
}

// Started reports that a gang runs on the placement: one that Decide started
// or migrated, or a waiting one that somebody else started.
func (l *Line) Started(now time.Duration, id string, p pal.Placement) {
	e := l.entries[id]
	if e == nil {
		return
	}
	granted := e.granted && e.state != waiting
	l.leave(now, e)
	e.granted = granted
	l.run(e, p, now)
}

func (l *Line) run(e *entry, p pal.Placement, at time.Duration) {
	if e.granted {
		l.grant(at, e.gpus)
	}
	e.safeUntil = at + minRuns*e.job.RestartCost
	e.state, e.placement, e.startedAt = running, p, at
	e.expectedEnd = at + time.Duration(float64(l.remaining(e, at))*p.Cost())
	l.hold(e, 1)
	e.booked = e.gpus
	l.work(e, at, e.booked)
	e.runPos = len(l.running)
	l.running = append(l.running, e)
	i, _ := slices.BinarySearchFunc(l.byEnd, e, byEnd)
	l.byEnd = slices.Insert(l.byEnd, i, e)
	l.rate(e, at)
}

// Requeue reports that a decided start did not come about: the gang waits on,
// at its place.
func (l *Line) Requeue(now time.Duration, id string) {
	if e := l.entries[id]; e != nil && e.state == starting {
		l.leave(now, e)
		l.enqueue(e)
	}
}

// Stopped reports that a running gang was stopped, its GPUs are free, and it is
// to start again: it waits.
func (l *Line) Stopped(now time.Duration, id string) {
	if e := l.entries[id]; e != nil && e.state >= running {
		l.leave(now, e)
		e.waitingSince = now
		l.enqueue(e)
	}
}

// Kept reports that a gang to be preempted or migrated runs on as it was.
func (l *Line) Kept(id string) {
	e := l.entries[id]
	if e == nil || e.state != stopping && e.state != moving {
		return
	}
	l.forget(e)
	e.state = running
	l.dropClaims(func(c *claim) bool { return slices.Contains(c.victims, e) })
}

// NoMoves says that nothing is moved before a time: the caller moves so many gangs
// within an hour and no more. To look for moves that it would not make is dear.
func (l *Line) NoMoves(until time.Duration) { l.movesFrom = until }

// Finished reports that a job has ended by itself.
func (l *Line) Finished(now time.Duration, id string) {
	if e := l.entries[id]; e != nil {
		l.learn(e.job.Tenant, e.job.Name, sample{e.work(now), e.gpus})
		l.judge(e, now)
		l.Removed(now, id)
	}
}

// Removed reports that a job is gone for another reason.
func (l *Line) Removed(now time.Duration, id string) {
	e := l.entries[id]
	if e == nil {
		return
	}
	l.leave(now, e)
	l.forecasts.forget(e)
	delete(l.entries, id)
	l.dropClaims(func(c *claim) bool { return c.by == e })
}

// leave takes the entry out of wherever it is: afterwards it is waiting, in no
// bucket, with what it attained up to now.
func (l *Line) leave(now time.Duration, e *entry) {
	switch e.state {
	case waiting:
		l.dequeue(e)
		e.waited += max(0, now-e.waitingSince)
		return
	case starting:
		l.forget(e)
		l.version++
	default:
		e.before, e.doneBefore = e.attained(now), e.work(now)
		l.forget(e)
		l.stop(now, e)
	}
	e.state, e.granted = waiting, false
}

// stop takes a running entry off the running list.
func (l *Line) stop(now time.Duration, e *entry) {
	l.version++
	if e.granted {
		l.grant(now, -e.gpus)
	}
	l.hold(e, -1)
	l.work(e, now, -e.booked)
	l.unrate(e)
	last := l.running[len(l.running)-1]
	l.running[e.runPos], last.runPos = last, e.runPos
	l.running = l.running[:len(l.running)-1]
	if i, ok := slices.BinarySearchFunc(l.byEnd, e, byEnd); ok {
		l.byEnd = slices.Delete(l.byEnd, i, i+1)
	}
	for _, c := range l.claims {
		if i := slices.Index(c.victims, e); i >= 0 {
			c.victims = slices.Delete(c.victims, i, i+1)
		}
	}
}

// forget drops the entry from the actions not yet reported.
func (l *Line) forget(e *entry) {
	if e.state != starting && e.state != moving {
		return
	}
	if e.state == starting {
		l.hold(e, -1)
	}
	if i := slices.Index(l.pending, e); i >= 0 {
		l.pending = slices.Delete(l.pending, i, i+1)
	}
}

// Rebase is called after the cluster was built anew: f gives every job its gang
// and, if it runs, its placement in the numbers of the new cluster.
func (l *Line) Rebase(f func(id string, g pal.Gang, p pal.Placement) (pal.Gang, pal.Placement)) {
	var queued []*entry
	for _, e := range l.sorted() {
		if e.state == waiting {
			l.dequeue(e)
			queued = append(queued, e)
		}
		e.job.Gang, e.placement = f(e.job.ID, e.job.Gang, e.placement)
		if e.state != waiting {
			l.hold(e, -1)
		}
		if e.gpus = e.job.Gang.GPUs(); e.state != waiting {
			l.hold(e, 1)
		}
		l.sign(e)
	}
	for _, e := range queued {
		l.enqueue(e)
	}
	l.claims, l.turn = nil, nil // of the old numbers; what they were for is decided anew
	clear(l.everFitting)
	clear(l.leastCosts)
	clear(l.needing)
	l.version++
}

// Reconsider is called when other nodes than before may serve gangs: f gives
// every job its gang, of the size that it had, anew.
func (l *Line) Reconsider(f func(id string, g pal.Gang) pal.Gang) {
	var queued []*entry
	for _, e := range l.sorted() {
		if e.state == waiting {
			l.dequeue(e)
			queued = append(queued, e)
		}
		e.job.Gang = f(e.job.ID, e.job.Gang)
		l.sign(e)
	}
	for _, e := range queued {
		l.enqueue(e)
	}
	l.Changed()
}

// Running are the gangs that run, those that are being stopped included, and where, in
// no order.
func (l *Line) Running() iter.Seq2[string, pal.Placement] {
	return func(yield func(string, pal.Placement) bool) {
		for _, e := range l.running {
			if !yield(e.job.ID, e.placement) {
				return
			}
		}
	}
}

// sorted lists all entries in order of submission to the line.
func (l *Line) sorted() []*entry {
	all := make([]*entry, 0, len(l.entries))
	for _, e := range l.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return int(a.seq - b.seq) })
	return all
}

// Changed tells an exclusive Line that GPUs came or went in another way: one
// failed or was repaired, a node joined.
func (l *Line) Changed() {
	l.version++
	clear(l.everFitting)
	clear(l.leastCosts)
	clear(l.needing)
}
