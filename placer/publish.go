// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// Status is what the agent shows of the placer's work.
type Status struct {
	At   time.Time   `json:"at"`
	Jobs []JobStatus `json:"jobs"`
	GPUs int         `json:"gpus"`
	Free int         `json:"free"`
	// InTrouble are GPUs that are not chosen, or last; Outliers those whose PM score for a
	// class is above the outlier threshold.
	InTrouble GPUsInTrouble        `json:"in_trouble"`
	Allocated int                  `json:"allocated"`
	Outliers  map[pal.AppClass]int `json:"outliers,omitempty"`
	// Warnings are about Nomad itself and its nodes, for operators.
	Warnings []string `json:"warnings,omitempty"`
	// Queues are Nomad's own that are in the way.
	Queues nomad.BatchQueues `json:"batch_queues,omitempty"`
}

// JobStatus is one job of the placer's.
type JobStatus struct {
	Namespace string     `json:"namespace"`
	Job       string     `json:"job"`
	State     gang.State `json:"state"`
	// Position in the queue, from 1; 0 where it does not wait.
	Position int    `json:"position,omitempty"`
	GPUs     int    `json:"gpus"`
	Class    string `json:"class,omitempty"`
	// Reason is why it waits, or cannot be served.
	Reason    string    `json:"reason,omitempty"`
	Submitted time.Time `json:"submitted"`
	// StartFrom and StartTo are between when it is expected to start, where that
	// can be foretold.
	StartFrom time.Time `json:"start_from,omitzero"`
	StartTo   time.Time `json:"start_to,omitzero"`
	// Elastic is its size, of an elastic gang.
	Elastic *queue.Size `json:"elastic,omitempty"`

	waiting queue.Wait // what Reason says in words, where it waits
}

// statusOf is what is shown of a job.
func (p *Placer) statusOf(t *tracked, waits map[string]*wait) JobStatus {
	j := t.status(waits[t.Key.String()])
	j.Elastic = p.sizeOf(t)
	return j
}

// status is what is shown of the job. w is what the queue says of it, nil where
// it says nothing.
func (t *tracked) status(w *wait) JobStatus {
	j := JobStatus{Namespace: t.Key.Namespace, Job: t.Key.ID, State: t.shown(w), Reason: t.Trouble}
	switch {
	case t.Nomad == gang.Rejected: // set aside: nothing else of it is looked at
		j.Reason = t.Refused.Error()
		return j
	case j.State == gang.Failed:
		j.Reason = t.GaveUp().Error()
	case t.Refused != nil:
		j.Reason = "cannot be served: " + t.Refused.Error()
	case t.after != "":
		j.Reason = t.after
	case w != nil:
		j.wait(w)
		j.Reason = cmp.Or(t.Trouble, j.Reason)
	}
	j.GPUs, j.Class, j.Submitted = t.Request.Gang.GPUs(), string(t.Request.Gang.Class), t.Submitted()
	return j
}

// wait takes over what the queue says of a waiting job.
func (j *JobStatus) wait(w *wait) {
	j.Position, j.Reason, j.waiting = w.Position, w.Why(), w.Wait
	if w.To > 0 {
		j.StartFrom, j.StartTo = time.Unix(0, int64(w.From)), time.Unix(0, int64(w.To))
	}
}

// Status is the state as of the last cycle.
func (p *Placer) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// publish makes the state of this cycle visible. What the waiting ones wait for
// takes a look at everything, so it is worked out once a second at most, and
// takes a twentieth of the time at most.
func (p *Placer) publish(now time.Time) {
	p.warnOfNodes()
	if p.unpublished = now.Sub(p.status.At) < max(time.Second, 20*p.publishing); p.unpublished {
		return
	}
	began := time.Now()
	defer func() { p.publishing = time.Since(began) }()
	s := Status{At: now, GPUs: p.view.Cluster.NumGPUs(), Free: p.view.Cluster.FreeGPUs(), Warnings: slices.Concat(p.warnings, p.ofNodes, p.windows.warnings(), p.troubled()), Queues: p.state.Queues}
	s.InTrouble, s.Allocated, s.Outliers = p.countGPUs(now)
	waits := p.waitsOf(p.queue.Waiting(since(now), p.view.Cluster), p.view.Cluster)
	for _, t := range p.sorted() {
		p.beginJob(t.Key)
		s.Jobs = append(s.Jobs, p.statusOf(t, waits))
	}
	p.endJob()
	p.mu.Lock()
	p.status = s
	p.mu.Unlock()
}

// GPUsInTrouble counts GPUs by why they are not chosen: unhealthy, quarantined; and degraded
// ones, which are chosen last.
type GPUsInTrouble struct {
	Unhealthy   int `json:"unhealthy"`
	Quarantined int `json:"quarantined"`
	Degraded    int `json:"degraded"`
}

// countGPUs counts those that are not like the others.
func (p *Placer) countGPUs(now time.Time) (in GPUsInTrouble, allocated int, outliers map[pal.AppClass]int) {
	above, c := cmp.Or(p.cfg.Queue.OutlierThreshold, queue.DefaultOutlierThreshold), p.view.Cluster
	outliers = map[pal.AppClass]int{}
	for _, class := range pal.AppClasses() {
		outliers[class] = 0
	}
	for i := range c.NumGPUs() {
		u := c.GPU(i)
		switch state := p.gpuState(i, now); {
		case state == GPUUnhealthy:
			in.Unhealthy++
		case state == GPUQuarantined:
			in.Quarantined++
		case u.Degraded != "":
			in.Degraded++
		}
		if c.Taken(i) {
			allocated++
		}
		for k, class := range pal.AppClasses() {
			if float64(u.Scores[k]) > above {
				outliers[class]++
			}
		}
	}
	return in, allocated, outliers
}

// Records of jobs that Nomad does not know any more are removed, some with each lot: there
// may be as many as jobs that were ever purged.
const (
	pruneAtOnce = 4 * writes
	pruneWithin = 2 * time.Second
)

// kept are the paths of the records that are not stale.
func (p *Placer) kept() map[string]bool {
	keep := map[string]bool{}
	for k := range p.state.Jobs {
		keep[store.DecisionPath(k)] = true
	}
	for k := range p.state.Unread {
		keep[store.DecisionPath(k)] = true
	}
	return keep
}

// lookForStale finds the records of jobs that are gone.
func (p *Placer) lookForStale(ctx context.Context) error {
	paths, err := store.In(p.nomad).Decisions().Paths(ctx)
	if err != nil {
		return err
	}
	keep := p.kept()
	p.stale = slices.DeleteFunc(paths, func(path string) bool { return keep[path] })
	return nil
}

// staleDue removes some of them.
func (p *Placer) staleDue(now time.Time) *entry {
	if len(p.stale) == 0 || !p.mayTry(pruningRecords, now) {
		return nil
	}
	keep := p.kept() // a job may have come back
	some := slices.Clone(p.stale[:min(len(p.stale), pruneAtOnce)])
	p.stale = p.stale[len(some):] // those that fail are found again
	some = slices.DeleteFunc(some, func(path string) bool { return keep[path] })
	return &entry{what: pruningRecords, paths: some, then: func(error) {}, write: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pruneWithin)
		defer cancel()
		errs, records := make([]error, len(some)), store.In(p.nomad).Decisions()
		var calls []call
		for i, path := range some {
			calls = append(calls, call{do: func() { errs[i] = records.Delete(ctx, path) }})
		}
		inParallel(calls)
		return cmp.Or(errs...)
	}}
}
