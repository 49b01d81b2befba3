// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// writes is the number of registrations and records that the placer writes at the same time. The
// number is above 1 because Nomad's raft log writes several entries to disk together.
const writes = 16

// inParallel starts the calls in order, and runs at most writes of them at the same time. If a call
// panics, inParallel waits until all calls have ended, and then panics with a *[callPanic].
func inParallel(calls []call) {
	var workers errgroup.Group
	workers.SetLimit(writes)
	panics := make([]*callPanic, len(calls))
	for i, c := range calls {
		workers.Go(func() error { panics[i] = c.runRecovered(); return nil })
	}
	_ = workers.Wait() // no call returns an error
	for _, panicked := range panics {
		if panicked != nil {
			panic(panicked)
		}
	}
}

// callsFor returns one [call] for each element of a list. The call passes the index and the element
// to the function do. job returns the job of an element. job is nil if the elements have no jobs.
func callsFor[T any](all []T, job func(T) cluster.JobKey, do func(int, T)) []call {
	calls := make([]call, len(all))
	for i, x := range all {
		calls[i].do = func() { do(i, x) }
		if job != nil {
			calls[i].job = job(x)
		}
	}
	return calls
}

// unsavedRecords holds the records that are not written yet, at most one for each job. The oldest
// record comes first. The zero value is empty.
type unsavedRecords struct {
	records list.List // of gang.Record
	of      map[cluster.JobKey]*list.Element
}

// put adds a record at the end, and removes an older record of the same job.
func (u *unsavedRecords) put(r gang.Record) {
	u.forget(keyOfRecord(r))
	u.keep(r, u.records.PushBack(r))
}

// putBack puts a record at the front, unless there is a newer record of the same job.
func (u *unsavedRecords) putBack(r gang.Record) {
	if u.of[keyOfRecord(r)] == nil {
		u.keep(r, u.records.PushFront(r))
	}
}

func (u *unsavedRecords) keep(r gang.Record, at *list.Element) {
	if u.of == nil {
		u.of = map[cluster.JobKey]*list.Element{}
	}
	u.of[keyOfRecord(r)] = at
}

func (u *unsavedRecords) forget(k cluster.JobKey) {
	at := u.of[k]
	if at != nil {
		u.records.Remove(at)
		delete(u.of, k)
	}
}

func (u *unsavedRecords) len() int { return len(u.of) }

// oldest returns the record that must be written next. There must be at least one record.
func (u *unsavedRecords) oldest() gang.Record { return u.records.Front().Value.(gang.Record) }

// take removes and returns the oldest record.
func (u *unsavedRecords) take() gang.Record {
	r := u.oldest()
	u.forget(keyOfRecord(r))
	return r
}

const (
	// burst is the minimum number of gangs in a burst: gangs that start within one second, or that
	// all wait until Nomad places their members. In a burst Nomad is busy, so the placer starts
	// more gangs before it records the gangs that it has started.
	burst = 16
	// recordWithin is the longest delay between a decision and its record. recordAfter is the
	// shortest delay. recordAfter gives Nomad's clients time to start the gang's tasks first.
	recordWithin = 10 * time.Second
	recordAfter  = 250 * time.Millisecond
	// unsavedMost is the maximum number of records that wait while Nomad accepts no writes. If more
	// records wait, the oldest records are lost.
	unsavedMost = 10_000
	// decisionsAtOnce is the maximum number of records in one batch.
	decisionsAtOnce = 2 * writes
)

// startedOne notes that a gang was started now.
func (p *journal) startedOne(now time.Time) {
	p.started = append(p.started[max(0, len(p.started)+1-burst):], now)
}

// inBurst reports whether many gangs are starting.
func (p *journal) inBurst(now time.Time) bool {
	if len(p.started) == burst && now.Sub(p.started[0]) < time.Second {
		return true
	}
	starting := 0
	for _, t := range p.m.Jobs {
		if t.Nomad == palapi.Starting {
			starting++
		}
	}
	return starting >= burst
}

// decisionsDue returns the number of records that must be written now. No record is due before
// recordAfter. In a burst, no record is due before recordWithin.
func (p *journal) decisionsDue(now time.Time) int {
	if p.unsaved.len() == 0 || p.backsOff(recordingDecisions, now) {
		return 0
	}
	waited := now.Sub(p.unsaved.oldest().Decided)
	switch {
	case waited < 0: // decided by another agent, whose clock is ahead
	case waited < recordAfter, waited < recordWithin && p.inBurst(now):
		return 0
	}
	return decisionsAtOnce
}

// decisionsDueAt returns the time at which the next records become due. ok is false if there are no
// records, or if they were already due in the previous cycle.
func (p *journal) decisionsDueAt() (at time.Time, ok bool) {
	if p.unsaved.len() == 0 {
		return time.Time{}, false
	}
	at = slices.MaxFunc([]time.Time{p.unsaved.oldest().Decided.Add(recordAfter), p.backoffs[recordingDecisions].retryAt}, time.Time.Compare)
	return at, at.After(p.lastCycle)
}

// recordsDue returns the write that stores the due records.
func (p *journal) recordsDue(now time.Time) *dueWrite { return p.records(p.decisionsDue(now)) }

// records returns the write that stores the oldest unsaved records. most is the maximum number of
// records. The oldest records come first. If a record cannot be written, it becomes unsaved again.
// records drops records of jobs that are gone.
func (p *journal) records(most int) *dueWrite {
	for p.unsaved.len() > unsavedMost {
		p.unsaved.take()
	}
	var records []gang.Record
	for len(records) < most && p.unsaved.len() > 0 {
		r := p.unsaved.take()
		if p.m.State == nil || p.m.State.Jobs[keyOfRecord(r)] != nil {
			records = append(records, r)
		}
	}
	if len(records) == 0 {
		return nil
	}
	errs := make([]error, len(records))
	e := &dueWrite{what: recordingDecisions, write: func(ctx context.Context) error {
		inParallel(callsFor(records, keyOfRecord, func(i int, r gang.Record) { errs[i] = p.writeRecord(ctx, r) }))
		return errors.Join(slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, store.ErrNotStorable) })...)
	}}
	for _, r := range records {
		e.paths = append(e.paths, store.DecisionPath(keyOfRecord(r)))
	}
	e.then = func(error) {
		for i, r := range slices.Backward(records) {
			switch {
			case errors.Is(errs[i], store.ErrNotStorable):
				p.log.Error("cannot record a decision; leaving it out", "job", r.Job, "namespace", r.Namespace, "error", errs[i])
			case errs[i] != nil:
				p.unsaved.putBack(r)
			}
		}
	}
	return e
}

func keyOfRecord(r gang.Record) cluster.JobKey {
	return cluster.JobKey{Namespace: r.Namespace, ID: r.Job}
}

// writeRecord records a decision.
func (p *journal) writeRecord(ctx context.Context, r gang.Record) error {
	return store.In(p.nomad).Decision(keyOfRecord(r)).Write(ctx, r)
}

// saveAll writes the remaining data when the placer ends. saveAll takes at most two seconds,
// because the system kills an agent that does not stop soon. If a record is not written, only an
// explanation is lost, because the jobs themselves contain the decisions.
func (p *Placer) saveAll() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := p.checkLast(ctx); err != nil {
		p.log.Warn("cannot check the last registrations", "error", err)
	}
	for _, t := range p.m.Sorted() {
		if t.Unsaved && t.Record != nil {
			p.unsaved.put(*t.Record)
		}
	}
	if err := writeNow(ctx, p.records(p.unsaved.len())); err != nil {
		p.log.Warn("some decisions are not recorded", "error", err)
	}
	if err := writeNow(ctx, p.runTimes(p.tick())); err != nil {
		p.log.Warn("the run times learned in the last minute are lost", "error", err)
	}
	if err := writeNow(ctx, p.usageNow(p.m.Time)); err != nil {
		p.log.Warn("the GPU time that namespaces have used since the last write may be lost", "error", err)
	}
}

// The placer deletes the record of a job when Nomad no longer has the job. A full read finds the
// records of jobs that went unseen. The placer deletes pruneAtOnce records at a time.
// The number of records to delete is not limited: there can be a record of every job that was ever
// purged.
const (
	pruneAtOnce = 4 * writes
	pruneWithin = 2 * time.Second
)

// kept returns the paths of the records whose jobs exist.
func (p *journal) kept() map[string]bool {
	keep := map[string]bool{}
	for k := range p.m.State.Jobs {
		keep[store.DecisionPath(k)] = true
	}
	for k := range p.m.State.Unread {
		keep[store.DecisionPath(k)] = true
	}
	return keep
}

// lookForStale finds the paths of the records whose jobs are gone.
func (p *journal) lookForStale(ctx context.Context) error {
	paths, err := store.In(p.nomad).Decisions().Paths(ctx)
	if err != nil {
		return err
	}
	keep := p.kept()
	p.stale = slices.DeleteFunc(paths, func(path string) bool { return keep[path] })
	return nil
}

// staleDue returns the write that deletes the next batch of stale records.
func (p *journal) staleDue(now time.Time) *dueWrite {
	if len(p.stale) == 0 || p.backsOff(pruningRecords, now) {
		return nil
	}
	keep := p.kept() // a purged job may have been registered again
	some := slices.Clone(p.stale[:min(len(p.stale), pruneAtOnce)])
	p.stale = p.stale[len(some):] // the next full read finds records that could not be removed
	some = slices.DeleteFunc(some, func(path string) bool { return keep[path] })
	return &dueWrite{what: pruningRecords, paths: some, then: func(error) {}, write: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pruneWithin)
		defer cancel()
		errs := make([]error, len(some))
		inParallel(callsFor(some, nil, func(i int, path string) { errs[i] = p.deleteStale(ctx, path) }))
		return cmp.Or(errs...)
	}}
}

// deleteStale deletes a record if Nomad confirms that its job is gone. Nomad's lists omit jobs that
// the token may not read. So if the token loses the right to read a namespace, the jobs of this
// namespace look as if they were purged.
func (p *journal) deleteStale(ctx context.Context, path string) error {
	records := store.In(p.nomad).Decisions()
	r, err := records.At(path).Read(ctx)
	switch {
	case store.Unreadable(err), err == nil && r.Of.Job == "":
		return records.Delete(ctx, path)
	case err != nil:
		return err
	}
	switch job, err := p.nomad.Job(ctx, cluster.JobKey{Namespace: r.Of.Namespace, ID: r.Of.Job}); {
	case nomad.Refused(err):
		return nil
	case err != nil || job != nil:
		return err
	}
	return records.Delete(ctx, path)
}
