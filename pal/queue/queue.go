// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"
	"unique"

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

// entry is a job in the Queue: what was reported about it, what was decided and not reported yet, and
// a few memos. To convert time at cost 1 to clock time, multiply it by the cost of the gang's
// placement and by its slower.
type entry struct {
	job   Job
	full  pal.Gang // of an elastic gang: the gang with all members; job.Gang has the current size
	of    *namespace
	nth   int64 // number among the submissions of its name, from 1
	seq   int64 // order of arrival in this Queue; the last tie-breaker
	state state

	wait         waitState
	promised     *promised   // set while others are being stopped for it
	anyNeighbour bool        // Policy.RefuseBad does not apply to this gang; see policyFor
	within       pal.PMScore // highest PM score of GPUs that it may use; 0: that of the options; see search

	startedAt   time.Duration
	placement   pal.Placement // where it runs, or will start
	target      pal.Placement // placement after the decided move or change of size
	expectedEnd time.Duration // computed at its start, and after this time has passed
	stopsFor    string        // the gang for which it is being stopped; "": none
	settled     bool          // see Queue.Settled
	booked      float64       // GPUs counted as used since startedAt
	company     company
	earlier     earlierRuns
	judged      bool // see judgeStopped

	gpus int // of job.Gang: the number of GPUs that it holds, or would start with
	memo memo
}

// waitState describes the gang's wait.
type waitState struct {
	since    time.Duration // while waiting
	before   time.Duration // total wait before since
	declined time.Duration // while waiting: when it first declined GPUs; -1: not yet
	overdue  bool          // its total wait exceeds its patience
	granted  bool          // it started, or will start, in its turn
}

// earlierRuns sums up the gang's runs before startedAt.
type earlierRuns struct {
	ran   time.Duration // run time; see attained
	work  time.Duration // work done, at cost 1
	model string        // GPU model; see ran
	stops Stops         // see StopsOf
}

// memo is what follows from the other fields and from the history.
type memo struct {
	sig      unique.Handle[signature] // see sign
	kind     unique.Handle[signature] // sig without what does not matter on an empty cluster
	key      key                      // while waiting
	rank     float64                  // see foresight.rank; while waiting
	expect   time.Duration            // expected remaining run time at cost 1, while waiting
	patience time.Duration            // see foresight.patience; while waiting
	level    int                      // its level when it was last computed
	levelDue time.Duration            // when its level must be computed again
}

// attained returns the gang's total run time so far, in clock time. Time with only some of the
// members counts less: it is converted to the time in which all members would use the same number
// of GPU seconds.
func (e *entry) attained(now time.Duration) time.Duration {
	if e.state == waiting || e.state == starting {
		return e.earlier.ran
	}
	run := max(0, now-e.startedAt)
	if e.elastic() {
		run = time.Duration(float64(run) * float64(e.gpus) / float64(e.whole()))
	}
	return e.earlier.ran + run
}

// work returns how much work the gang has done so far, in time at cost 1. Runs of a name are
// compared by work, not by clock time, because the same job takes longer on slow GPUs.
func (e *entry) work(now time.Duration) time.Duration {
	if e.state == waiting || e.state == starting {
		return e.earlier.work
	}
	return e.earlier.work + time.Duration(float64(max(0, now-e.startedAt))/e.cost(e.placement))
}

// safeUntil returns the time before which a running gang is not stopped or moved.
func (e *entry) safeUntil() time.Duration { return e.startedAt + minRuns*e.job.RestartCost }

// Queue holds the waiting gangs, in order, and the running gangs. A Queue is not safe for
// concurrent use. Even two questions must not run at the same time: see the package comment.
type Queue struct {
	opt       *Options          // shared with foresight and tenancy
	entries   map[string]*entry // by the job's id
	all       []*entry          // in the order of arrival
	line      []*entry          // the waiting gangs, sorted by key
	seq       int64
	foresight // predicts run times
	tenancy
	turn          *reservation // of the overdue gang that is the head; nil: none
	account       account      // GPU time of overdue gangs
	windows       []Window
	passes        uint64        // number of calls of Decide
	trying        string        // see Trying
	localityUntil time.Duration // when the first wait for better GPUs ends; see holdsOut
	forecasts     forecasts     // predicts when waiting gangs start
	found         map[search]answer
	spare         []*pal.Cluster // memory for copies of the cluster
}

// New returns an empty queue.
func New(o Options) (*Queue, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Queue{opt: &o, entries: map[string]*entry{}, foresight: newForesight(&o), tenancy: newTenancy(&o), account: account{share: o.OverdueShare},
		forecasts: forecasts{low: -firstFactor, high: firstFactor}, found: map[search]answer{}}, nil
}

// Submit adds a waiting job to the Queue. The job's wait begins now or, if the job has never run,
// at its submission.
func (q *Queue) Submit(now time.Duration, j Job) error {
	e, err := q.newEntry(j)
	if err != nil {
		return err
	}
	e.wait.since = now
	if j.Attained == 0 {
		e.wait.since = min(now, j.Submitted)
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
	e := q.entries[id]
	if e != nil && e.state == running {
		e.state = stopping
	}
}

// newEntry checks a job, and returns a new entry for it.
func (q *Queue) newEntry(j Job) (*entry, error) {
	e := &entry{job: j, of: q.namespace(j.Tenant), gpus: j.Gang.GPUs(), seq: q.seq, earlier: earlierRuns{ran: j.Attained, work: cmp.Or(j.Done, j.Attained)}, wait: waitState{before: j.Waited}}
	if j.Least > 0 {
		e.full = j.Gang
	}
	if e.earlier.work > 0 {
		e.earlier.model = severalModels
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
	q.all = append(q.all, e)
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
	granted := e.wait.granted && e.state != waiting
	q.leave(now, e)
	e.wait.granted = granted
	q.run(e, p, now)
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
	e.placement = p
	e.earlier.work += done - e.work(now) // the work so far was done on the previous GPUs
}

// isOn reports whether the gang's placement has the same GPUs as p. For an elastic gang, the
// members must also be in the same order, because the last members end first.
func (e *entry) isOn(p pal.Placement) bool {
	if !e.elastic() {
		return e.placement.SameGPUs(p)
	}
	return slices.Equal(e.placement.GPUs(), p.GPUs())
}

// run records that an entry has been running on the placement since the given time.
func (q *Queue) run(e *entry, p pal.Placement, at time.Duration) {
	q.resize(e, max(1, len(p.Members)))
	e.state, e.startedAt = running, at
	e.placement, e.target = p, pal.Placement{}
	e.memo.levelDue = at
	e.expectedEnd = at + stretched(q.remaining(e, at), e.cost(p))
	e.booked = e.held()
	q.bookUsage(e, max(at, e.job.Booked), e.booked)
}

// Requeue reports that a start that Decide returned has failed. The gang waits again, in its old
// place in the queue.
func (q *Queue) Requeue(now time.Duration, id string) {
	e := q.entries[id]
	if e != nil && e.state == starting {
		q.leave(now, e)
		q.enqueue(e)
	}
}

// Stopped reports that a running gang has stopped, but not finished. The gang's GPUs are free, and
// the gang waits again.
func (q *Queue) Stopped(now time.Duration, id string) {
	e := q.entries[id]
	if e != nil && e.state >= running {
		countStop(q, e, now)
		q.judgeStopped(e, now)
		q.leave(now, e)
		e.wait.since = now
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
	by := q.entries[e.stopsFor]
	if by != nil {
		q.breakPromise(by)
	}
	e.state, e.stopsFor = running, ""
	e.target = pal.Placement{}
}

// Finished reports that a job has ended by itself, and removes it. Only finished runs enter the
// run-time history, because the length of a run that was stopped or failed is not known.
func (q *Queue) Finished(now time.Duration, id string) {
	e := q.entries[id]
	if e != nil {
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
	i, _ := slices.BinarySearchFunc(q.all, e, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
	q.all = slices.Delete(q.all, i, i+1)
}

// leave ends the gang's wait, its decided start or its run. The caller then enqueues, runs or drops
// the entry.
func (q *Queue) leave(now time.Duration, e *entry) {
	switch {
	case e.state == waiting:
		q.dequeue(e)
		q.breakPromise(e)
		if q.hasTurn(e) {
			q.turn = nil
		}
		e.wait.before += max(0, now-e.wait.since)
		return
	case e.state >= running:
		e.company.meet(now, nobodyKnows)
		e.earlier.ran, e.earlier.work = e.attained(now), e.work(now)
		e.earlier.model = ran(e.earlier.model, e.placement.Model)
		q.bookUsage(e, now, -e.booked)
	}
	e.state, e.stopsFor = waiting, ""
	e.wait.granted = false
}

// Running returns the IDs and placements of the running gangs, including those that are being
// stopped or moved, in the order in which they came to the Queue.
func (q *Queue) Running() iter.Seq2[string, pal.Placement] {
	return func(yield func(string, pal.Placement) bool) {
		for _, e := range q.all {
			if e.state >= running && !yield(e.job.ID, e.placement) {
				return
			}
		}
	}
}

// Rebase converts all gangs and placements after the caller has built a new cluster. For each job,
// Rebase passes the gang (with all its members) and its placement to f. The function f returns both
// with the GPU and group numbers of the new cluster. For a waiting gang, f can return any
// placement. Running gangs keep running.
func (q *Queue) Rebase(f func(id string, g pal.Gang, p pal.Placement) (pal.Gang, pal.Placement)) {
	for _, e := range q.all {
		g, p := f(e.job.ID, e.allMembers(), e.placement)
		e.placement = p
		q.regang(e, g)
		// Targets contain GPU numbers of the old cluster, so they must be replaced. The target of a
		// gang that shrinks becomes its first members. The target of a gang that moves or grows
		// becomes its current members, so the Queue holds no new GPUs for it.
		e.target.Members = e.placement.Members[:min(len(e.target.Members), len(e.placement.Members))]
		if e.promised != nil { // a promise keeps only its victims
			e.promised.placement = pal.Placement{}
		}
	}
	q.turn = nil // the turn also contains GPU numbers of the old cluster; the next pass decides again
	clear(q.found)
	q.sortLine(func(*entry) bool { return true })
}

// Reconsider replaces all gangs after the set of nodes that they can use has changed. For each job,
// Reconsider passes the gang, with all its members, to f. The function f returns the new gang,
// which must have the same number of members.
func (q *Queue) Reconsider(f func(id string, g pal.Gang) pal.Gang) {
	for _, e := range q.all {
		q.regang(e, f(e.job.ID, e.allMembers()))
	}
	q.sortLine(func(*entry) bool { return true })
}

// regang replaces the gang of an entry. Both the old and the new gang have all members.
func (q *Queue) regang(e *entry, all pal.Gang) {
	if e.elastic() {
		n := e.job.Gang.MemberSets[0].Members
		e.full = all
		all = e.sized(n)
	}
	e.job.Gang = all
	e.gpus = e.job.Gang.GPUs()
	q.rate(e.job.Name, all.Speeds)
	q.sign(e)
}
