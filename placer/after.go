// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// A job that says pal_after is not in the queue before those jobs have finished well.
// They need not have GPUs, so Nomad is asked for them, now and then.

const (
	// afterEvery is how often Nomad is asked for a job that others wait for, and
	// afterAtOnce for how many with one cycle.
	afterEvery  = 5 * time.Second
	afterAtOnce = 32
	// Nomad forgets a job some hours after it has ended: that it had finished well lies
	// in Nomad as long as somebody waits for it, for afterKept jobs at most.
	afterKept = 300
)

// What the placer does beside placing, of [trouble].
const (
	readingAfter   = "reading which jobs have finished that others come after"
	recordingAfter = "recording which jobs have finished that others come after"
)

// forerunner is what is known of a job that others come after.
type forerunner struct {
	asked time.Time
	// finished is when it finished well; zero: it has not, and why says what it does.
	finished time.Time
	why      string
}

// every is how often Nomad is asked for it: one that has finished may be run again, which
// is rare.
func (f forerunner) every() time.Duration {
	if f.finished.IsZero() {
		return afterEvery
	}
	return 12 * afterEvery
}

// forerunners are all of them.
type forerunners struct {
	loaded bool
	known  map[nomad.JobKey]forerunner
	saved  []store.Finished
}

// comesAfter are the jobs that a waiting job comes after. One that ran already has waited
// for them.
func (t *tracked) comesAfter() []nomad.JobKey {
	if t.Nomad != gang.Waiting || t.Refused != nil || len(t.Pins.Groups) > 0 {
		return nil
	}
	var keys []nomad.JobKey
	for _, id := range t.Request.Hints.Jobs() {
		keys = append(keys, nomad.JobKey{Namespace: t.Key.Namespace, ID: id})
	}
	return keys
}

// lookAfter finds out who waits for jobs to finish, and since when others need not.
func (p *Placer) lookAfter(ctx context.Context, now time.Time) {
	wanted := map[nomad.JobKey]bool{}
	for _, t := range p.sorted() {
		for _, k := range t.comesAfter() {
			wanted[k] = true
		}
	}
	f := &p.ahead
	if len(wanted) == 0 && len(f.known) == 0 && len(f.saved) == 0 {
		return
	}
	p.recallAfter(ctx, now)
	maps.DeleteFunc(f.known, func(k nomad.JobKey, _ forerunner) bool { return !wanted[k] })
	p.askAfter(ctx, wanted, now)
	for _, t := range p.sorted() {
		t.after, t.eligible = "", time.Time{}
		for _, k := range t.comesAfter() {
			of := f.known[k]
			if of.finished.IsZero() {
				t.after = cmp.Or(t.after, fmt.Sprintf("waits for job %s (pal_after): %s", k.ID, cmp.Or(of.why, "checking whether it has finished")))
			} else if of.finished.After(t.eligible) {
				t.eligible = of.finished
			}
		}
	}
}

// askAfter asks Nomad for those that were asked for longest ago. One that cannot be read
// keeps those waiting that come after it, and nobody else.
func (p *Placer) askAfter(ctx context.Context, wanted map[nomad.JobKey]bool, now time.Time) {
	f := &p.ahead
	keys := slices.SortedFunc(maps.Keys(wanted), func(a, b nomad.JobKey) int {
		return cmp.Or(f.known[a].asked.Compare(f.known[b].asked), a.Compare(b))
	})
	keys = slices.DeleteFunc(keys, func(k nomad.JobKey) bool { return now.Sub(f.known[k].asked) < f.known[k].every() })
	keys = keys[:min(len(keys), afterAtOnce)]
	found, errs := make([]forerunner, len(keys)), make([]error, len(keys))
	var calls []call
	for i, k := range keys {
		calls = append(calls, call{k, func() { found[i], errs[i] = p.forerunner(ctx, k, f.known[k]) }})
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
		found[i].asked = now
		f.known[k] = found[i]
	}
}

// forerunner finds out how a job stands that others come after; had is what was known.
func (p *Placer) forerunner(ctx context.Context, k nomad.JobKey, had forerunner) (forerunner, error) {
	if t := p.jobs[k]; t != nil { // one of ours
		switch {
		case t.GaveUp() != nil:
			return forerunner{why: "it has failed; run it again"}, nil
		case t.Refused != nil:
			return forerunner{why: "it cannot be served itself"}, nil
		}
		return forerunner{why: "it " + map[bool]string{true: "runs", false: "has not started"}[t.Nomad == gang.Running || t.Nomad == gang.Starting]}, nil
	}
	job, err := p.nomad.Job(ctx, k)
	switch {
	case err != nil:
		return had, err
	case job == nil && !had.finished.IsZero():
		return had, nil // Nomad has forgotten it since
	case job == nil:
		return forerunner{why: "Nomad does not have it: it was purged, or forgotten, or is yet to come"}, nil
	case nomad.Template(job):
		return forerunner{why: "it is parameterized or periodic, and never ends; name its children"}, nil
	case *job.Type != api.JobTypeBatch:
		return forerunner{why: "it is a " + *job.Type + " job, and those do not finish"}, nil
	case job.Status == nil || *job.Status != "dead":
		return forerunner{why: "it has not ended"}, nil
	}
	as, err := p.nomad.JobAllocs(ctx, k)
	if err != nil {
		return had, err
	}
	if at, ok := gang.FinishedWell(job, as); ok {
		return forerunner{finished: at}, nil
	}
	if job.Stop != nil && *job.Stop {
		versions, err := p.nomad.Versions(ctx, k)
		if err != nil {
			return had, err
		}
		if at, ok := gang.FinishedEarlier(job, as, versions); ok {
			return forerunner{finished: at}, nil
		}
		return forerunner{why: "it was stopped before it had finished; run it again"}, nil
	}
	return forerunner{why: "it has failed; run it again"}, nil
}

// recallAfter reads what earlier placers knew, once. Without it Nomad is asked: what it
// has forgotten counts as not there until this can be read.
func (p *Placer) recallAfter(ctx context.Context, now time.Time) {
	f := &p.ahead
	if f.known == nil {
		f.known = map[nomad.JobKey]forerunner{}
	}
	if f.loaded || !p.mayTry(readingAfter, now) {
		return
	}
	kept, err := store.In(p.nomad).Finished().Read(ctx)
	if store.Unreadable(err) {
		p.log.Warn("cannot read which jobs with followers (pal_after) have finished; asking Nomad instead", "error", err)
		err = nil
	}
	if p.trouble(readingAfter, err); err != nil {
		return
	}
	for _, j := range kept.Of {
		f.known[nomad.JobKey{Namespace: j.Namespace, ID: j.Job}] = forerunner{finished: j.At}
	}
	f.loaded, f.saved = true, kept.Of
}

// snapshotAfter is lookAfter for commands: who may not read what earlier placers knew goes
// without.
func (p *Placer) snapshotAfter(ctx context.Context, now time.Time) {
	p.lookAfter(ctx, now)
	delete(p.troubles, readingAfter)
}

// finishedDue writes which jobs have finished that somebody waits for, when that changes.
func (p *Placer) finishedDue(now time.Time) *entry {
	f := &p.ahead
	if !f.loaded || !p.mayTry(recordingAfter, now) {
		return nil
	}
	var list []store.Finished
	for _, k := range slices.SortedFunc(maps.Keys(f.known), nomad.JobKey.Compare) {
		if at := f.known[k].finished; !at.IsZero() && len(list) < afterKept {
			list = append(list, store.Finished{Namespace: k.Namespace, Job: k.ID, At: at})
		}
	}
	if slices.EqualFunc(list, f.saved, func(a, b store.Finished) bool {
		return a.Namespace == b.Namespace && a.Job == b.Job && a.At.Equal(b.At)
	}) {
		return nil
	}
	return &entry{
		what:  recordingAfter,
		write: func(ctx context.Context) error { return store.In(p.nomad).Finished().Write(ctx, list) },
		then: func(err error) {
			if err == nil {
				f.saved = list
			}
		},
	}
}
