// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// A job with pal_after enters the queue only after the jobs that pal_after names have ended in the
// required way. The named jobs need not have GPUs, so the placer asks Nomad about each of them. The
// placer asks once at first, after each event that reports a change of the job, and after each full
// read.

const (
	// dependencyPoll is the interval at which the placer asks again about a job if no event would
	// report a change, for example in a snapshot. dependencyBatch is the number of jobs about which
	// one cycle asks.
	dependencyPoll  = 5 * time.Second
	dependencyBatch = 256
	// Nomad forgets a job some hours after its end. So the placer stores how the job ended until
	// every job that waited for it has ended. Even after a waiting job has started, it may be
	// preempted and edited, and the placer then checks its pal_after again. maxFinishedKept is the
	// maximum number of jobs whose end is stored.
	maxFinishedKept = 4000
)

// checkDependencies finds out which jobs still wait for the jobs in their pal_after, or for their
// pal_begin. For each job that no longer waits, checkDependencies finds out when its wait ended.
// atMost limits the number of jobs about which checkDependencies asks Nomad.
func (p *Placer) checkDependencies(ctx context.Context, now time.Time, atMost int) {
	f := &p.m.Dependencies
	kept, wanted, waits := map[cluster.JobKey]bool{}, map[cluster.JobKey]bool{}, map[*model.Tracked][]model.Predecessor{}
	for _, t := range p.m.Sorted() {
		t.After, t.Eligible = nil, time.Time{}
		before, waiting := t.Predecessors(), t.WaitsForOthers()
		if waiting {
			t.AwaitBegin(now)
		}
		if waiting && len(before) > 0 {
			waits[t] = before
		}
		for _, b := range before {
			kept[b.Key] = true
			if waiting || f.Known[b.Key].Heard > 0 { // after a reported change, the job may run again
				wanted[b.Key] = true
			}
		}
	}
	if len(wanted) == 0 && len(f.Known) == 0 && len(p.finishedSaved) == 0 {
		return
	}
	p.readFinished(ctx, now)
	maps.DeleteFunc(f.Known, func(k cluster.JobKey, _ model.Dependency) bool { return !kept[k] })
	p.queryDependencies(ctx, wanted, now, atMost)
	inCircle := p.circles(waits)
	for t, before := range waits {
		var after reason.Reason
		for _, b := range before {
			of := f.Known[b.Key]
			if next, ok := inCircle[t.Key]; ok && next == b.Key { // a circle is shown in place of all other reasons
				after = reason.Reason{Kind: reason.InCircle, Jobs: []string{b.Key.String()}}
			}
			if why := of.Unmet(b.End); !why.IsZero() {
				after = after.Or(b.Reason(why))
			} else if of.Ended.After(t.Eligible) {
				t.Eligible = of.Ended
			}
		}
		for _, b := range before { // always name a missing job, because its name may be misspelled
			if _, circle := inCircle[t.Key]; !circle && isMissing(f.Known[b.Key].Why) && !slices.ContainsFunc(after.Because, isMissing) {
				after = after.And(b.Reason(f.Known[b.Key].Why))
			}
		}
		if t.After != nil {
			after = after.And(*t.After)
		}
		if !after.IsZero() {
			t.After = &after
		}
	}
}

// isMissing reports whether the reason is that Nomad does not have the job that must end first.
func isMissing(why reason.Reason) bool { return why.Kind == reason.AheadMissing }

// circles returns the jobs that wait for each other in a circle, so that none of them can start.
// The map contains, for each of these jobs, the next job in the circle, for which it waits. If
// several circles share jobs, circles finds at least one of them.
func (p *core) circles(waits map[*model.Tracked][]model.Predecessor) map[cluster.JobKey]cluster.JobKey {
	found, seen := map[cluster.JobKey]cluster.JobKey{}, map[cluster.JobKey]bool{}
	var path []cluster.JobKey
	at := map[cluster.JobKey]int{} // on the path
	var visit func(k cluster.JobKey)
	visit = func(k cluster.JobKey) {
		if i, on := at[k]; on {
			for j, from := range path[i:] {
				found[from] = path[i+(j+1)%(len(path)-i)]
			}
			return
		}
		t := p.m.Jobs[k]
		if t == nil || seen[k] {
			return
		}
		seen[k], at[k], path = true, len(path), append(path, k)
		for _, next := range waits[t] {
			if p.m.Dependencies.Known[next.Key].Ended.IsZero() {
				visit(next.Key)
			}
		}
		path = path[:len(path)-1]
		delete(at, k)
	}
	for _, t := range p.m.Sorted() {
		if len(waits[t]) > 0 {
			visit(t.Key)
		}
	}
	return found
}

// queryDependencies reads the state of the dependencies that are due. The dependency that has been
// due for the longest time comes first. If the state of a dependency cannot be read, only the jobs
// that wait for this dependency keep waiting.
func (p *core) queryDependencies(ctx context.Context, wanted map[cluster.JobKey]bool, now time.Time, atMost int) {
	f := &p.m.Dependencies
	var keys []cluster.JobKey
	for k := range wanted {
		if t := p.m.Jobs[k]; t != nil {
			was := f.Known[k]
			f.Known[k] = t.AsDependency(was, now)
		} else if !now.Before(f.Known[k].Due) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b cluster.JobKey) int {
		return cmp.Or(f.Known[a].Due.Compare(f.Known[b].Due), a.Compare(b))
	})
	p.again, p.changed = p.again || len(keys) > atMost, p.changed || len(keys) > 0
	keys = keys[:min(len(keys), atMost)]
	found, errs := make([]model.Dependency, len(keys)), make([]error, len(keys))
	key := func(k cluster.JobKey) cluster.JobKey { return k }
	inParallel(callsFor(keys, key, func(i int, k cluster.JobKey) {
		found[i], errs[i] = query.ReadDependency(ctx, p.nomad, k, f.Known[k], now)
	}))
	for i, k := range keys {
		if errs[i] != nil {
			if ctx.Err() != nil {
				return
			}
			if found[i] = f.Known[k]; found[i].Ended.IsZero() {
				found[i].Why = reason.Reason{Kind: reason.AheadUnread, Cause: errs[i].Error()}
			}
		}
		switch found[i].Due = now.Add(dependencyPoll); {
		case errs[i] != nil:
		case found[i].Heard > 0:
			found[i].Due = now // in the next cycle, because Nomad will soon show the change
		case f.Listens && found[i].Why.Kind != reason.AheadRuns:
			// If the tasks of a dead job still run, no event would report their end.
			found[i].Due = time.Unix(math.MaxInt32, 0) // never, unless an event reports a change
		}
		f.Known[k] = found[i]
	}
}

// readFinished reads once which finished jobs earlier placers stored in Nomad. Until readFinished
// succeeds, jobs that Nomad has forgotten count as missing.
func (p *Placer) readFinished(ctx context.Context, now time.Time) {
	f := &p.m.Dependencies
	if f.Loaded {
		return
	}
	kept, ok := readOnce(ctx, p, now, readingFinished, store.In(p.nomad).Finished().Read)
	if !ok {
		return
	}
	for _, j := range kept {
		of := model.Dependency{Ended: j.At, Failed: j.Failed}
		if j.Failed {
			of.Why = reason.Reason{Kind: reason.AheadFailed}
		}
		f.Known[cluster.JobKey{Namespace: j.Namespace, ID: j.Job}] = of
	}
	f.Loaded, p.finishedSaved = true, kept
}

// finishedDue returns the write that stores the finished jobs that other jobs name in pal_after, if
// the set of these jobs has changed.
func (p *journal) finishedDue(now time.Time) *dueWrite {
	f := &p.m.Dependencies
	if !f.Loaded || p.backsOff(recordingFinished, now) {
		return nil
	}
	var list []store.Finished
	for _, k := range slices.SortedFunc(maps.Keys(f.Known), cluster.JobKey.Compare) {
		if of := f.Known[k]; !of.Ended.IsZero() && len(list) < maxFinishedKept {
			list = append(list, store.Finished{Namespace: k.Namespace, Job: k.ID, At: of.Ended, Failed: of.Failed})
		}
	}
	if slices.EqualFunc(list, p.finishedSaved, func(a, b store.Finished) bool {
		return a.Namespace == b.Namespace && a.Job == b.Job && a.At.Equal(b.At) && a.Failed == b.Failed
	}) {
		return nil
	}
	return &dueWrite{
		what:  recordingFinished,
		write: func(ctx context.Context) error { return store.In(p.nomad).Finished().Write(ctx, list) },
		then: func(err error) {
			if err == nil {
				p.finishedSaved = list
			}
		},
	}
}
