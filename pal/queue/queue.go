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

// state is the state of a gang between submission and end. A gang holds GPUs on the cluster in the
// state running and in all states after it in this list. The code relies on this order.
type state uint8

const (
	waiting  state = iota
	starting       // its start is decided, but not reported yet
	running
	stopping // it is being stopped or shrunk
	moving   // its migration or growth is decided, but not reported yet
)

// entry is a job in the Queue. To convert time at cost 1 to clock time, multiply it by the cost of
// the gang's placement and by the field `slower`.
type entry struct {
	job     Job
	of      *namespace
	gpus    int     // of job.Gang: the number of GPUs that it holds, or would start with
	counted float64 // GPUs added to its tenants' counts; see countHeld
	nth     int64   // number among the submissions of its name, from 1
	seq     int64   // order of arrival in this Queue; the last tie-breaker
	state   state

	bucket  *bucket   // while waiting
	sig     signature // see sign
	kind    *fitKind  // see kindOf
	pos     int       // in bucket
	agePos  int       // in book.ages or book.overdue, while waiting
	namePos int       // in foresight.named, while waiting
	key     key
	rank    float64       // see foresight.rank; while waiting
	expect  time.Duration // expected remaining run time at cost 1, while waiting
	overdue bool          // its total wait exceeds its patience
	granted bool          // it started, or will start, in its turn
	served  float64       // GPUs charged to it in Queue.account

	patience     time.Duration // see foresight.patience; while waiting
	waitingSince time.Duration // while waiting
	waited       time.Duration // total wait before waitingSince
	declined     time.Duration // while waiting: when it first declined GPUs; -1: not yet
	safeUntil    time.Duration // it is not stopped or moved before this time
	sums         Stops         // see StopsOf
	judged       bool          // see judgeStopped
	startedAt    time.Duration
	booked       float64       // GPUs counted as used since startedAt, weighted by worth
	before       time.Duration // run time before startedAt; see attained
	doneBefore   time.Duration // work done before startedAt, at cost 1
	ranOn        string        // GPU model of the runs before startedAt; see ran
	slower       float64       // see Job.Slower; 1 for a gang with all its members
	claim        *claim        // set while others are being stopped for it
	stopsFor     *claim        // the claim for which it is being stopped; nil: none
	freeing      float64       // GPUs that its tenants count as being freed, see countFreeing
	within       pal.PMScore   // highest PM score of GPUs that it may use; 0: that of the options; see search
	anyNeighbour bool          // Policy.RefuseBad does not apply to this gang; see policyFor
	placement    pal.Placement // where it runs, or will start
	target       pal.Placement // placement after the decided move or change of size
	expectedEnd  time.Duration // computed at its start, and after this time has passed
	stayed       uint64        // Queue.version when it was last considered for a move
	runPos       int           // in runners.running
	settled      bool          // see Queue.Settled
	rated        bool          // it is in Queue.levels, and the next three fields are valid
	level        *level        // nil: not computed yet
	levelDue     time.Duration // when its level must be computed again
	duePos       int           // in levels.due
	company      company
	copied       int // see Clone
	*elastic         // nil unless the gang is elastic
}

// attained returns the gang's total run time so far, in clock time. Time with only some of the
// members counts less: it is converted to the time in which all members would use the same number
// of GPU seconds.
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

// work returns how much work the gang has done so far, in time at cost 1. Runs of a name are
// compared by work, not by clock time, because the same job takes longer on slow GPUs.
func (e *entry) work(now time.Duration) time.Duration {
	if e.state == waiting || e.state == starting {
		return e.doneBefore
	}
	return e.doneBefore + time.Duration(float64(max(0, now-e.startedAt))/e.cost(e.placement))
}

// Queue holds the waiting gangs, in order, and the running gangs. A Queue is not safe for
// concurrent use. Even two questions must not run at the same time: see the package comment.
type Queue struct {
	opt       *Options // shared with the parts below
	entries   map[string]*entry
	seq       int64
	foresight              // predicts run times
	book                   // the waiting gangs
	turn      *reservation // of the overdue gang that is the head; nil: none
	account   account      // GPU time of overdue gangs
	runners
	levels  levels   // running gangs that can be stopped, by level
	claims  []*claim // one for each gang for which others are being stopped
	pending []*entry // gangs that are starting or moving
	tenancy
	gangKinds
	windows       windows
	version       uint64        // grows whenever a GPU may have come free
	passes        uint64        // number of calls of Decide
	trying        string        // see Trying
	starts        uint64        // number of starts that Decide has decided so far
	localityUntil time.Duration // when the first wait for better GPUs ends; see holdsOut
	forecasts     forecasts     // predicts when waiting gangs start
}

// New returns an empty queue.
func New(o Options) (*Queue, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Queue{opt: &o, entries: map[string]*entry{}, foresight: newForesight(&o), book: newBook(), tenancy: newTenancy(&o),
		gangKinds: gangKinds{opt: &o, kinds: map[signature]*fitKind{}}, levels: newLevels(), account: account{share: o.OverdueShare},
		forecasts: forecasts{low: -firstFactor, high: firstFactor}, version: 1}, nil
}

// Submit adds a waiting job to the Queue. The job's wait begins now or, if the job has never run,
// at its submission.
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

// Restore adds a job that has been running on the placement since the time started.
func (q *Queue) Restore(j Job, p pal.Placement, started time.Duration) error {
	e, err := q.newEntry(j)
	if err != nil {
		return err
	}
	q.run(e, p, started)
	return nil
}

// Stopping reports that a running gang is being stopped, although this Queue did not decide to stop
// it. When the gang has stopped, report that with
// [Queue.Stopped].
func (q *Queue) Stopping(id string) {
	if e := q.entries[id]; e != nil && e.state == running {
		e.state = stopping
		e.countFreeing()
	}
}

// newEntry checks a job, and returns a new entry for it.
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
	q.rate(j.Name, j.Gang.Speeds)
	q.entries[j.ID] = e
	q.sign(e)
	return e, nil
}

// Started reports that a gang now runs on the placement, because the caller has carried out a
// start, migration or resize that Decide returned. Started also works for a waiting gang that
// something else has started.
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

// PlacedOn reports whether a gang that runs or is being stopped holds exactly these GPUs, which must
// be in ascending order. PlacedOn is quicker than [Queue.SetPlacement] with the same GPUs. PlacedOn
// returns false for elastic gangs, for which the order of the members matters too.
func (q *Queue) PlacedOn(id string, gpus []int) bool {
	e := q.entries[id]
	if e == nil || e.state < running || e.elastic != nil {
		return false
	}
	on := e.placement.GPUs()
	slices.Sort(on)
	return slices.Equal(on, gpus)
}

// SetPlacement reports the GPUs of a gang that runs or is being stopped. Call SetPlacement, for
// example, when a member has ended or when Nomad has moved a member. Reporting the same placement
// again changes nothing. A gang that is being stopped stays in that state until [Queue.Stopped].
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
	e.doneBefore += done - e.work(now) // the work so far was done on the previous GPUs
}

// isOn reports whether the gang's placement has the same GPUs as p. For an elastic gang, the
// members must also be in the same order, because the last members end first.
func (e *entry) isOn(p pal.Placement) bool {
	if e.elastic == nil {
		return e.placement.SameGPUs(p)
	}
	return slices.Equal(e.placement.GPUs(), p.GPUs())
}

// run records that an entry has been running on the placement since the given time. The entry must
// be in no list.
func (q *Queue) run(e *entry, p pal.Placement, at time.Duration) {
	q.resize(e, max(1, len(p.Members)))
	if e.granted {
		e.served = e.amount(e.gpus)
		q.account.grant(at, e.served)
	}
	e.safeUntil = at + e.safeFor()
	e.state, e.placement, e.target, e.startedAt = running, p, pal.Placement{}, at
	e.expectedEnd = at + stretched(q.remaining(e, at), e.cost(p))
	q.countHeld(e, 1)
	e.booked = e.counted
	q.bookUsage(e, max(at, e.job.Booked), e.booked)
	if q.join(e); e.job.Endless {
		q.Changed() // its GPUs will not come free, so drop cached answers that count on them
	}
	if q.mayStop(e) && !e.granted { // a gang that started in its turn is not stopped
		q.levels.add(e, at)
	}
}

// Requeue reports that a start that Decide returned has failed. The gang waits again, in its old
// place in the queue.
func (q *Queue) Requeue(now time.Duration, id string) {
	if e := q.entries[id]; e != nil && e.state == starting {
		q.leave(now, e)
		q.enqueue(e)
	}
}

// Stopped reports that a running gang has stopped, but not finished. The gang's GPUs are free, and
// the gang waits again.
func (q *Queue) Stopped(now time.Duration, id string) {
	if e := q.entries[id]; e != nil && e.state >= running {
		e.countStop(now)
		q.judgeStopped(e, now)
		q.leave(now, e)
		e.waitingSince = now
		q.enqueue(e)
	}
}

// NotStopped reports that a preemption, migration or resize that Decide returned has failed, and
// that the gang keeps running unchanged.
func (q *Queue) NotStopped(id string) {
	e := q.entries[id]
	if e == nil || e.state != stopping && e.state != moving {
		return
	}
	q.forget(e)
	e.state, e.target = running, pal.Placement{}
	e.countFreeing()
	if e.stopsFor != nil {
		q.drop(e.stopsFor)
	}
}

// Finished reports that a job has ended by itself, and removes it. Only finished runs enter the
// run-time history, because the length of a run that was stopped or failed is not known.
func (q *Queue) Finished(now time.Duration, id string) {
	if e := q.entries[id]; e != nil {
		q.learn(e.job.Tenant, e.job.Name, e.sampleOf(now))
		q.judge(e, now)
		q.learnSilent(e, now)
		q.Removed(now, id)
	}
}

// Removed reports that a job is gone for another reason, and removes it from the Queue.
func (q *Queue) Removed(now time.Duration, id string) {
	e := q.entries[id]
	if e == nil {
		return
	}
	q.leave(now, e)
	q.forecasts.forget(e)
	delete(q.entries, id)
}

// leave removes the entry from all lists of waiting, starting or running gangs. Afterwards, the
// entry's state is waiting, but the entry is in no bucket. The caller then enqueues, runs or drops
// the entry.
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
		e.before, e.doneBefore, e.ranOn = e.attained(now), e.work(now), ran(e.ranOn, e.placement.Model)
		q.forget(e)
		q.stop(now, e)
	}
	e.state, e.granted = waiting, false
	e.countFreeing()
}

// stop removes a stopped entry from the lists to which run added it, and from the victims of its claim. The fields of the entry must not have changed since run, because
// sorted lists find the entry by these fields.
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
}

// forget drops a start, move or growth of the entry that is decided but not reported yet. If there
// is none, it does nothing.
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

// Rebase converts all gangs and placements after the caller has built a new cluster. For each job,
// Rebase passes the gang (with all its members) and its placement to f. The function f returns both
// with the GPU and group numbers of the new cluster. For a waiting gang, f can return any
// placement. Running gangs keep running.
func (q *Queue) Rebase(f func(id string, g pal.Gang, p pal.Placement) (pal.Gang, pal.Placement)) {
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
		// Targets contain GPU numbers of the old cluster, so they must be replaced. The target of a
		// gang that shrinks becomes its first members. The target of a gang that moves or grows
		// becomes its current members, so the Queue holds no new GPUs for it.
		e.target.Members = e.placement.Members[:min(len(e.target.Members), len(e.placement.Members))]
		e.countFreeing()
	})
	// The turn also contains GPU numbers of the old cluster, so it is dropped. The next pass decides
	// again. A claim keeps only its victims.
	q.turn = nil
	for _, c := range q.claims {
		c.placement = pal.Placement{}
	}
}

// Reconsider replaces all gangs after the set of nodes that they can use has changed. For each job,
// Reconsider passes the gang, with all its members, to f. The function f returns the new gang,
// which must have the same number of members.
func (q *Queue) Reconsider(f func(id string, g pal.Gang) pal.Gang) {
	q.changeEach(func(e *entry) {
		e.regang(func(g pal.Gang) pal.Gang { return f(e.job.ID, g) })
	})
}

// changeEach calls `change` for every entry, and then calls Changed. When `change` is called for a
// waiting entry, the entry is in no bucket.
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

// sorted returns all entries in the order in which they came to the Queue. Without sorting,
// decisions could depend on the order of the map.
func sorted(entries map[string]*entry) []*entry {
	return slices.SortedFunc(maps.Values(entries), func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
}

// Changed reports that the set of usable GPUs has changed for a reason that no other call reports.
// For example, a GPU failed or was repaired, a node joined, or other jobs took or freed GPUs.
func (q *Queue) Changed() {
	q.version++
	q.changes++
	clear(q.kinds)
	clear(q.windows.alone)
}
