// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// A job that says pal_after is not in the queue before those jobs have finished well.
// They need not have GPUs, so Nomad is asked for them: once, and again when an event tells
// that they have changed, or when everything is read again.

const (
	// dependencyPoll is after how long Nomad is asked again for a job that it did not show, and
	// by a snapshot, which hears no events; afterAtOnce is for how many with one cycle.
	dependencyPoll  = 5 * time.Second
	dependencyBatch = 256
	// Nomad forgets a job some hours after it has ended: that it had finished well lies
	// in Nomad as long as somebody waits for it, for afterKept jobs at most.
	maxFinishedKept = 4000
)

// What the placer does beside placing, of [trouble].
const (
	readingFinished   = "reading which jobs have finished that others come after"
	recordingFinished = "recording which jobs have finished that others come after"
)

// dependency is what is known of a job that others come after.
type dependency struct {
	// due is when Nomad is asked for it again: zero at once.
	due time.Time
	// finished is when it finished well; zero: it has not, and why says what it does.
	finished time.Time
	why      string
}

// dependencyCache are all of them.
type dependencyCache struct {
	loaded bool
	known  map[nomad.JobKey]dependency
	saved  []store.Finished
	// listens: events tell of changes.
	listens bool
}

// hear takes in an event, and says whether it tells of a job that others come after: it
// was registered, stopped or purged, or has ended.
func (f *dependencyCache) hear(e nomad.Event) bool {
	job := e.Payload.Job
	of, ok := f.known[e.About()]
	if !ok || job == nil || e.Progress() && (job.Status == nil || *job.Status != "dead") {
		return false
	}
	of.due = time.Time{}
	f.known[e.About()] = of
	return true
}

// doubt has Nomad asked for all of them again: events may have been missed.
func (f *dependencyCache) doubt() {
	f.listens = true
	for k, of := range f.known {
		of.due = time.Time{}
		f.known[k] = of
	}
}

// dependencies are the jobs that a waiting job comes after. One that ran already has waited
// for them.
func (t *tracked) dependencies() []nomad.JobKey {
	if t.Nomad != gang.Waiting || t.Refused != nil || len(t.Pins.Groups) > 0 {
		return nil
	}
	var keys []nomad.JobKey
	for _, id := range t.Request.Hints.Jobs() {
		keys = append(keys, nomad.JobKey{Namespace: t.Key.Namespace, ID: id})
	}
	return keys
}

// checkDependencies finds out who waits for jobs to finish, and since when others need not. It
// asks Nomad for so many jobs at most.
func (p *Placer) checkDependencies(ctx context.Context, now time.Time, atMost int) {
	wanted, waits := map[nomad.JobKey]bool{}, map[*tracked][]nomad.JobKey{}
	for _, t := range p.sorted() {
		t.after, t.eligible = "", time.Time{}
		if keys := t.dependencies(); len(keys) > 0 {
			waits[t] = keys
			for _, k := range keys {
				wanted[k] = true
			}
		}
	}
	f := &p.dependencies
	if len(wanted) == 0 && len(f.known) == 0 && len(f.saved) == 0 {
		return
	}
	p.readFinished(ctx, now)
	maps.DeleteFunc(f.known, func(k nomad.JobKey, _ dependency) bool { return !wanted[k] })
	p.queryDependencies(ctx, wanted, now, atMost)
	for t, keys := range waits {
		for _, k := range keys {
			of := f.known[k]
			if of.finished.IsZero() {
				t.after = cmp.Or(t.after, fmt.Sprintf("waits for job %s (pal_after): %s", k.ID, cmp.Or(of.why, "checking whether it has finished")))
			} else if of.finished.After(t.eligible) {
				t.eligible = of.finished
			}
		}
	}
}

// queryDependencies finds out how those stand that are due, longest due first. One that cannot be
// read keeps those waiting that come after it, and nobody else.
func (p *Placer) queryDependencies(ctx context.Context, wanted map[nomad.JobKey]bool, now time.Time, atMost int) {
	f := &p.dependencies
	var keys []nomad.JobKey
	for k := range wanted {
		if t := p.jobs[k]; t != nil {
			f.known[k] = dependency{why: ahead(t)}
		} else if !now.Before(f.known[k].due) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b nomad.JobKey) int {
		return cmp.Or(f.known[a].due.Compare(f.known[b].due), a.Compare(b))
	})
	p.again = p.again || len(keys) > atMost
	keys = keys[:min(len(keys), atMost)]
	found, errs := make([]dependency, len(keys)), make([]error, len(keys))
	var calls []call
	for i, k := range keys {
		calls = append(calls, call{k, func() { found[i], errs[i] = p.readDependency(ctx, k, f.known[k]) }})
	}
	inParallel(calls)
	for i, k := range keys {
		if errs[i] != nil {
			if ctx.Err() != nil {
				return
			}
			if found[i] = f.known[k]; found[i].finished.IsZero() {
				found[i].why = "Nomad does not show it: " + errs[i].Error()
			}
		}
		if found[i].due = now.Add(dependencyPoll); f.listens && errs[i] == nil {
			found[i].due = time.Unix(math.MaxInt32, 0) // unless something is heard of it
		}
		f.known[k] = found[i]
	}
}

// ahead is what one of our jobs does that others come after: it has not finished.
func ahead(t *tracked) string {
	switch {
	case t.GaveUp() != nil:
		return "it has failed; run it again"
	case t.Refused != nil:
		return "it cannot be served itself"
	case t.Nomad == gang.Running || t.Nomad == gang.Starting:
		return "it runs"
	}
	return "it has not started"
}

// readDependency finds out how a job stands that others come after; had is what was known.
func (p *Placer) readDependency(ctx context.Context, k nomad.JobKey, had dependency) (dependency, error) {
	job, err := p.nomad.Job(ctx, k)
	switch {
	case err != nil:
		return had, err
	case job == nil && !had.finished.IsZero():
		return had, nil // Nomad has forgotten it since
	case job == nil:
		return dependency{why: "Nomad does not have it: it was purged, or forgotten, or is yet to come"}, nil
	case nomad.Template(job):
		return dependency{why: "it is parameterized or periodic, and never ends; name its children"}, nil
	case *job.Type != api.JobTypeBatch:
		return dependency{why: "it is a " + *job.Type + " job, and those do not finish"}, nil
	case job.Status == nil || *job.Status != "dead":
		return dependency{why: "it has not ended"}, nil
	}
	as, err := p.nomad.JobAllocs(ctx, k)
	if err != nil {
		return had, err
	}
	if at, ok := gang.FinishedWell(job, as); ok {
		return dependency{finished: at}, nil
	}
	if job.Stop != nil && *job.Stop {
		versions, err := p.nomad.Versions(ctx, k)
		if err != nil {
			return had, err
		}
		if at, ok := gang.FinishedEarlier(job, as, versions); ok {
			return dependency{finished: at}, nil
		}
		return dependency{why: "it was stopped before it had finished; run it again"}, nil
	}
	return dependency{why: "it has failed; run it again"}, nil
}

// readFinished reads what earlier placers knew, once. Without it Nomad is asked: what it
// has forgotten counts as not there until this can be read.
func (p *Placer) readFinished(ctx context.Context, now time.Time) {
	f := &p.dependencies
	if f.known == nil {
		f.known = map[nomad.JobKey]dependency{}
	}
	if f.loaded || !p.mayTry(readingFinished, now) {
		return
	}
	kept, err := store.In(p.nomad).Finished().Read(ctx)
	if store.Unreadable(err) {
		p.log.Warn("cannot read which jobs with followers (pal_after) have finished; asking Nomad instead", "error", err)
		err = nil
	}
	if p.trouble(readingFinished, err); err != nil {
		return
	}
	for _, j := range kept {
		f.known[nomad.JobKey{Namespace: j.Namespace, ID: j.Job}] = dependency{finished: j.At}
	}
	f.loaded, f.saved = true, kept
}

// snapshotDependencies is checkDependencies for commands: who may not read what earlier placers knew goes
// without. last is the snapshot before, which a first one does not have.
func (p *Placer) snapshotDependencies(ctx context.Context, now time.Time, last *Placer) {
	atMost := math.MaxInt
	if p.dependencies = last.dependencies; p.dependencies.known != nil {
		p.dependencies.known, atMost = maps.Clone(p.dependencies.known), dependencyBatch
	}
	p.checkDependencies(ctx, now, atMost)
	delete(p.troubles, readingFinished)
}

// finishedDue writes which jobs have finished that somebody waits for, when that changes.
func (p *Placer) finishedDue(now time.Time) *entry {
	f := &p.dependencies
	if !f.loaded || !p.mayTry(recordingFinished, now) {
		return nil
	}
	var list []store.Finished
	for _, k := range slices.SortedFunc(maps.Keys(f.known), nomad.JobKey.Compare) {
		if at := f.known[k].finished; !at.IsZero() && len(list) < maxFinishedKept {
			list = append(list, store.Finished{Namespace: k.Namespace, Job: k.ID, At: at})
		}
	}
	if slices.EqualFunc(list, f.saved, func(a, b store.Finished) bool {
		return a.Namespace == b.Namespace && a.Job == b.Job && a.At.Equal(b.At)
	}) {
		return nil
	}
	return &entry{
		what:  recordingFinished,
		write: func(ctx context.Context) error { return store.In(p.nomad).Finished().Write(ctx, list) },
		then: func(err error) {
			if err == nil {
				f.saved = list
			}
		},
	}
}
