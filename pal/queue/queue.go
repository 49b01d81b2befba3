// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// state is the state of a gang between submission and end. In running and all later states the gang
// holds GPUs on the cluster. The code relies on this order.
type state uint8

const (
	waiting  state = iota
	starting       // decided, not yet reported
	running
	stopping // it stops or shrinks; the end of that is not yet reported
	moving   // Decide migrates it or lets it grow; not yet reported
)

// entry is a job in the queue. Placement cost × slower converts time at cost 1 to clock time.
type entry struct {
	job     Job
	of      *namespace
	gpus    int     // in job.Gang: GPUs that it holds, or would start with
	counted float64 // GPUs added to its tenants' counts; see countHeld
	nth     int64   // number among the submissions of its name, from 1
	seq     int64   // order of arrival in this Queue; the last tie-breaker
	state   state

	bucket  *bucket   // while waiting
	sig     signature // see sign
	kind    *fitKind  // see kindOf
	pos     int       // in bucket
	agePos  int       // in Queue.ages or Queue.overdue, while waiting
	namePos int       // in Queue.named, while waiting
	key     key
	rank    float64       // see Queue.rank, while waiting
	urgency urgency       // while waiting
	expect  time.Duration // expected remaining run time at cost 1, while waiting
	overdue bool          // its total wait exceeds its patience
	granted bool          // it runs, or will start, because it was overdue
	served  float64       // GPUs charged to it in Queue.account

	patience     time.Duration // while waiting: see Queue.patience
	waitingSince time.Duration // while waiting
	offered      time.Duration // while waiting: when it first declined GPUs; -1: not yet; see offeredFrom
	waited       time.Duration // total wait before waitingSince
	safeUntil    time.Duration // it is not stopped before this time
	stops        int           // how often it was stopped for others, or moved
	sums         Stops         // see StopsOf
	judged       bool          // see judgeStopped
	startedAt    time.Duration
	booked       float64       // GPUs counted as used since startedAt, weighted by worth
	saved        float64       // discount for GPUs that cost less than price 1
	before       time.Duration // attained before startedAt
	doneBefore   time.Duration // work done before startedAt, at cost 1
	ranOn        string        // GPU model of that work; see ran
	slower       float64       // see Job.Slower; 1 for a gang with all its members
	claim        *claim        // set while others are being stopped for it
	stopsFor     *claim        // the claim for which it is being stopped; nil: none
	freeing      float64       // GPUs that its tenants count as being freed, see countFreeing
	within       pal.PMScore   // highest PM score of GPUs that it may use; 0: no bound of its own, see search
	anyNeighbour bool          // lifts Policy.RefuseBad for this gang; see placementOf
	placement    pal.Placement // where it runs, or will start
	target       pal.Placement // placement after a decided move, or after a decided change of size
	expectedEnd  time.Duration // computed at its start; again if it outlasts this, or after a report
	stayed       uint64        // Queue.version when it was last considered for a move
	runPos       int           // in runners.running
	settled      bool          // see Queue.Settled
	reports      reports       // see Queue.Reported
	predictions  []*prediction // forecasts of its start, to be checked
	rated        bool          // it is in Queue.levels; the next three fields are then valid
	level        *level        // nil: not computed yet
	levelDue     time.Duration // when its level must be computed again
	duePos       int           // in levels.due
	company      company
	copied       int // see Clone
	*elastic         // nil unless the gang is elastic
}

// attained returns the gang's total run time so far, in clock time. Time with fewer members is
// scaled down: it counts as the time in which all members would use the same GPU seconds.
func (e *entry) attained(now time.Duration) time.Duration {
	if e.state == waiting || e.state == starting {
		return e.before
	}
	run := max(0, now-e.startedAt)
	if e.elastic != nil {
		run = time.Duration(float64(run) * float64(e.gpus) / float64(e.whole()))
	}
	return e.before + run
}

// work returns how much the gang has done, in time at cost 1. Runs of a name are compared by work,
// not by clock time, because the same job takes longer on slow GPUs.
func (e *entry) work(now time.Duration) time.Duration {
	if e.state == waiting || e.state == starting {
		return e.doneBefore
	}
	return e.doneBefore + time.Duration(float64(max(0, now-e.startedAt))/e.cost(e.placement))
}

// Queue holds the waiting gangs, in order, and the running ones. It is not safe for concurrent use,
// not even by two questions: see the package comment.
type Queue struct {
	opt       *Options // shared with the parts below
	entries   map[string]*entry
	seq       int64
	foresight         // predicts run times
	book              // the waiting gangs
	turn      *turn   // the overdue gang for which GPUs are kept; nil: none
	account   account // GPU time of overdue gangs
	runners
	levels  levels   // running gangs that may be stopped, by level
	claims  []*claim // gangs for which others are being stopped
	leaving []*entry // gangs that are being stopped or shrunk, but not, or no longer, for another gang
	pending []*entry // starting or moving gangs: decided, not yet reported
	tenancy
	gangKinds
	lending
	windows       windows
	version       uint64        // grows when GPUs may have come free
	passes        uint64        // number of calls of Decide
	trying        string        // see Trying
	starts        uint64        // number of starts decided so far
	localityUntil time.Duration // when the first gang stops waiting for GPUs closer together
	movesFrom     time.Duration // see NoMovesBefore
	forecasts     forecasts     // predicted starts
	drained       [][]pal.Gang  // see SetDrainedMembers
}

// New returns an empty queue.
func New(o Options) (*Queue, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Queue{opt: &o, entries: map[string]*entry{}, foresight: newForesight(&o), book: newBook(), tenancy: newTenancy(&o),
		gangKinds: gangKinds{opt: &o, kinds: map[signature]*fitKind{}}, levels: newLevels(), account: account{share: o.OverdueShare},
		forecasts: forecasts{from: firstWider, until: firstWider}, version: 1}, nil
}

// Submit adds a job to the queue; now is the time when it began to wait. A job that never ran has
// waited since its submission, even if the placer has restarted since.
func (q *Queue) Submit(now time.Duration, j Job) error {
	e, err := q.newEntry(j)
	if err != nil {
		return err
	}
	e.waitingSince = now
	if j.Attained == 0 {
		e.waitingSince = min(now, j.Submitted)
	}
	q.enqueue(e)
	return nil
}

// Restore adds a gang that has been running on the placement since the time started.
func (q *Queue) Restore(j Job, p pal.Placement, started time.Duration) error {
	e, err := q.newEntry(j)
	if err != nil {
		return err
	}
	q.run(e, p, started)
	return nil
}

// Stopping reports that a running gang is being stopped, but not by a decision of this Queue.
// Waiting gangs may then plan with its GPUs. Report its end with [Queue.Stopped].
func (q *Queue) Stopping(id string) {
	if e := q.entries[id]; e != nil && e.state == running {
		e.state = stopping
		e.countFreeing()
		q.leaving = append(q.leaving, e)
	}
}

// newEntry checks a job and creates its entry; the caller enqueues or runs it.
func (q *Queue) newEntry(j Job) (*entry, error) {
	e := &entry{job: j, of: q.namespace(j.Tenant), gpus: j.Gang.GPUs(), slower: 1, seq: q.seq, before: j.Attained, doneBefore: j.Done, waited: j.Waited}
	if j.Least > 0 {
		e.elastic = &elastic{full: j.Gang}
	}
	if j.Done == 0 {
		e.doneBefore = j.Attained
	}
	if e.doneBefore > 0 {
		e.ranOn = severalModels
	}
	switch {
	case q.entries[j.ID] != nil:
		return nil, fmt.Errorf("queue: job %q is already in the queue", j.ID)
	case e.gpus <= 0:
		return nil, fmt.Errorf("queue: job %q requests no GPU", j.ID)
	case j.Gang.Class.Index() < 0:
		return nil, fmt.Errorf("queue: job %q: application class %q is unknown", j.ID, j.Gang.Class)
	}
	if err := j.checkElastic(); err != nil {
		return nil, err
	}
	q.seq++
	q.submitted(e)
	q.price(j.Gang)
	q.rate(j.Name, j.Gang.Speeds)
	q.entries[j.ID] = e
	q.sign(e)
	return e, nil
}

// Started reports that a gang runs on the placement. Decide started, migrated or resized it, or
// something else started it while it waited.
func (q *Queue) Started(now time.Duration, id string, p pal.Placement) {
	e := q.entries[id]
	if e == nil {
		return
	}
	granted := e.granted && e.state != waiting
	q.leave(now, e)
	e.granted = granted
	q.run(e, p, now)
}

// SetPlacement reports the GPUs of a gang that runs or is being stopped. They may change without
// the Queue: members end one by one, or Nomad places one elsewhere. The caller owns the ledger of
// GPUs; the Queue never derives a placement itself. Reporting the same placement again changes
// nothing, so the caller need not compare. A gang that is being stopped stays in that state until
// its last member has ended ([Queue.Stopped]); one that shrinks, until few enough members are left.
func (q *Queue) SetPlacement(now time.Duration, id string, p pal.Placement) {
	e := q.entries[id]
	if e == nil || e.state < running || e.isOn(p) {
		return
	}
	shrunk := e.state == stopping && len(e.target.Members) > 0 && len(p.Members) <= len(e.target.Members)
	if e.state == running || shrunk {
		q.Started(now, id, p)
		return
	}
	done := e.work(now)
	q.countHeld(e, -1)
	e.placement = p
	q.countHeld(e, 1)
	e.doneBefore += done - e.work(now) // that work was done on the previous GPUs
}

// isOn reports whether the gang is on the GPUs of a placement. For an elastic gang the order of
// members counts, as the last ones end first.
func (e *entry) isOn(p pal.Placement) bool {
	if e.elastic == nil {
		return e.placement.SameGPUs(p)
	}
	return slices.Equal(e.placement.GPUs(), p.GPUs())
}

// run records that an entry has been running on the placement since the time at. The entry must be
// in no list. run sets the size first, because all counts depend on it. It adds the gang to levels
// last, because levels.add reads when the gang may be stopped.
func (q *Queue) run(e *entry, p pal.Placement, at time.Duration) {
	q.resize(e, max(1, len(p.Members)))
	if e.granted {
		e.served = e.amount(e.gpus)
		q.account.grant(at, e.served)
	}
	e.safeUntil = at + e.safeFor(q.opt.FreeStops)
	e.state, e.placement, e.target, e.startedAt = running, p, pal.Placement{}, at
	e.expectedEnd = at + stretched(q.remaining(e, at), e.cost(p))
	q.countHeld(e, 1)
	e.booked = e.counted * q.worth(p)
	q.bookUsage(e, max(at, e.job.Booked), e.booked)
	if q.join(e); e.job.Endless {
		q.Changed() // its GPUs will not come free: forget the plans that count on them
	}
	if q.mayStop(e) && !e.granted { // an overdue gang has had its turn
		q.levels.add(e, at)
	}
}

// Requeue reports that a decided start failed: the gang keeps waiting, in its place.
func (q *Queue) Requeue(now time.Duration, id string) {
	if e := q.entries[id]; e != nil && e.state == starting {
		q.leave(now, e)
		q.enqueue(e)
	}
}

// Stopped reports that a running gang has stopped and will start again: its GPUs are free, and it
// waits.
func (q *Queue) Stopped(now time.Duration, id string) {
	if e := q.entries[id]; e != nil && e.state >= running {
		e.countStop(now)
		q.learnLent(now, e)
		q.judgeStopped(e, now)
		q.leave(now, e)
		e.waitingSince = now
		q.enqueue(e)
	}
}

// NotStopped reports that a gang keeps running unchanged, although the Queue decided to preempt,
// migrate or resize it.
func (q *Queue) NotStopped(id string) {
	e := q.entries[id]
	if e == nil || e.state != stopping && e.state != moving {
		return
	}
	q.forget(e)
	q.leaving = without(q.leaving, e)
	if e.state, e.target = running, (pal.Placement{}); e.elastic != nil {
		e.grownAt = 0
	}
	e.countFreeing()
	if e.stopsFor != nil {
		q.drop(e.stopsFor)
	}
}

// SetDrainedMembers sets the members of running gangs that are about to be moved off drained nodes.
// The alternatives for each member are gangs of one member, best first. The Queue keeps the GPUs
// that these members need until the next call, or until Rebase.
func (q *Queue) SetDrainedMembers(members [][]pal.Gang) { q.drained = members }

// NoMovesBefore forbids moves before the given time. So a caller that limits moves per hour avoids
// searches for moves that it would not make.
func (q *Queue) NoMovesBefore(until time.Duration) { q.movesFrom = until }

// Finished reports that a job has ended by itself. Only such runs enter the run-time history,
// because a run that was stopped or failed has no known length.
func (q *Queue) Finished(now time.Duration, id string) {
	if e := q.entries[id]; e != nil {
		q.learn(e.job.Tenant, e.job.Name, e.sampleOf(now))
		q.judge(e, now)
		q.learnSilent(e, now)
		q.learnLent(now, e)
		q.Removed(now, id)
	}
}

// Removed reports that a job is gone for another reason.
func (q *Queue) Removed(now time.Duration, id string) {
	e := q.entries[id]
	if e == nil {
		return
	}
	q.leave(now, e)
	q.forecasts.forget(e)
	q.gone(e)
	delete(q.entries, id)
}

// leave takes the entry out of all lists. Afterwards its state is waiting but it is in no bucket,
// and its attained and waited times are up to date. The caller enqueues, runs or drops it.
func (q *Queue) leave(now time.Duration, e *entry) {
	switch e.state {
	case waiting:
		q.leaveQueue(e)
		e.waited += max(0, now-e.waitingSince)
		return
	case starting:
		q.forget(e)
		q.version++
	default:
		e.company.meet(now, nobodyKnows)
		e.reports = e.again(now)
		e.before, e.doneBefore, e.ranOn = e.attained(now), e.work(now), ran(e.ranOn, e.placement.Model)
		q.forget(e)
		q.stop(now, e)
	}
	e.state, e.granted = waiting, false
	e.countFreeing()
}

// stop removes an entry that has stopped from the lists that run added it to, from the victims of
// claims and from leaving. Its fields must be as run left them, because sorted lists find the entry
// by them.
func (q *Queue) stop(now time.Duration, e *entry) {
	q.version++
	if e.granted {
		q.account.grant(now, -e.served)
	}
	q.countHeld(e, -1)
	q.bookUsage(e, now, -e.booked)
	q.levels.remove(e)
	if q.part(e); e.job.Endless {
		q.Changed()
	}
	if c := e.stopsFor; c != nil {
		c.victims = without(c.victims, e)
		e.stopsFor = nil
	}
	q.leaving = without(q.leaving, e)
}

// forget drops a decided start, move or growth of the entry that is not reported yet.
func (q *Queue) forget(e *entry) {
	if e.state != starting && e.state != moving {
		return
	}
	if e.state == starting {
		q.countHeld(e, -1)
	}
	if e.elastic != nil {
		e.of.tenant.count(e.job.User, -e.lent)
		e.lent = 0
	}
	q.pending = without(q.pending, e)
}

// Rebase converts all placements after the cluster was rebuilt. f gets each job's gang, with all
// its members, and its placement. f returns both with the GPU and group numbers of the new cluster.
// The placement of a waiting gang does not matter. Running gangs keep running.
func (q *Queue) Rebase(f func(id string, g pal.Gang, p pal.Placement) (pal.Gang, pal.Placement)) {
	q.drained = nil // in numbers of the old cluster
	q.changeEach(func(e *entry) {
		e.regang(func(g pal.Gang) (out pal.Gang) {
			out, e.placement = f(e.job.ID, g, e.placement)
			return out
		})
		if e.state != waiting {
			q.countHeld(e, -1)
		}
		was := e.gpus
		if e.gpus = e.job.Gang.GPUs(); e.state != waiting {
			q.countHeld(e, 1)
		}
		if e.level != nil {
			e.level.gpus += e.gpus - was
		}
		if e.granted && e.state >= running {
			q.account.used += e.amount(e.gpus) - e.served
			e.served = e.amount(e.gpus)
		}
		// Targets have old GPU numbers. The target of a gang that shrinks is its first members.
		// That of a gang that moves or grows becomes the members that it has now, so the Queue
		// holds no new GPUs for it.
		e.target.Members = e.placement.Members[:min(len(e.target.Members), len(e.placement.Members))]
		e.countFreeing()
	})
	// These have old GPU numbers, too. The next pass decides again.
	q.turn = nil
	for _, c := range slices.Clone(q.claims) {
		q.drop(c)
	}
}

// Reconsider replaces all gangs after the set of nodes that may serve them has changed. f gets each
// job's gang, with all its members, and returns it with the same number of members.
func (q *Queue) Reconsider(f func(id string, g pal.Gang) pal.Gang) {
	q.changeEach(func(e *entry) {
		e.regang(func(g pal.Gang) pal.Gang { return f(e.job.ID, g) })
	})
}

// changeEach calls change for every entry. Meanwhile waiting entries are in no bucket.
func (q *Queue) changeEach(change func(*entry)) {
	var queued []*entry
	for _, e := range sorted(q.entries) {
		if e.state == waiting {
			q.dequeue(e)
			queued = append(queued, e)
		}
		change(e)
		q.rate(e.job.Name, e.job.Gang.Speeds)
		q.sign(e)
	}
	for _, e := range queued {
		q.enqueue(e)
	}
	q.Changed()
}

// sorted lists all entries in order of submission to the queue. Maps have no order, and decisions
// must not depend on one.
func sorted(entries map[string]*entry) []*entry {
	return slices.SortedFunc(maps.Values(entries), func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
}

// Changed reports that the set of usable GPUs changed without another call to this Queue. For
// example, a GPU failed or was repaired, a node joined, or other jobs took or freed GPUs. The Queue
// then forgets what it has cached about the cluster.
func (q *Queue) Changed() {
	q.version++
	q.changes++
	clear(q.kinds)
	clear(q.windows.alone)
}
