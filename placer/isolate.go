// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// A bug that one job meets must not stop the others. Whatever the placer does for
// a job, it notes which one that is; a panic sets it aside, and the placer begins
// again without it, from what Nomad says. The job is left alone until its author
// changes it, and if it is met again and again, for a growing while after that.

// isolateFor is how long a job is left alone, changed or not, that broke the placer
// twice; it doubles each time, up to isolateMost.
const (
	isolateFor  = 10 * time.Second
	isolateMost = time.Hour
)

// isolatedJob is a job that broke the placer.
type isolatedJob struct {
	index  uint64 // JobModifyIndex of the job as it did
	until  time.Time
	times  int
	reason string
}

// beginJob notes which job is being worked on.
func (p *Placer) beginJob(k nomad.JobKey) { p.working = k }

// endJob notes that none is.
func (p *Placer) endJob() { p.working = nomad.JobKey{} }

// jobAtFault is the job that was being worked on; ok is false where none was.
func (p *Placer) jobAtFault() (k nomad.JobKey, ok bool) {
	k = p.working
	if k == (nomad.JobKey{}) {
		k = keyOf(p.queue.Trying())
	}
	return k, k != nomad.JobKey{}
}

// isolateJob leaves a job alone that broke the placer.
func (p *Placer) isolateJob(k nomad.JobKey, panicked any, now time.Time) {
	a := p.isolatedJobs[k]
	a.times++
	a.reason = fmt.Sprintf("the placer met a bug of its own in this job, and leaves it alone until it is changed: %v. Please report it, with the agent's log", panicked)
	if job := p.state.Jobs[k]; job != nil {
		a.index = *job.JobModifyIndex
	}
	if a.times > 1 {
		a.until = now.Add(min(isolateFor<<min(a.times-2, 20), isolateMost))
	}
	p.isolatedJobs[k] = a
}

// isolated is why a job is left alone; ok is false where it is not.
func (p *Placer) isolated(job *api.Job, now time.Time) (reason string, ok bool) {
	a, ok := p.isolatedJobs[nomad.KeyOf(job)]
	if !ok || a.index != *job.JobModifyIndex && !now.Before(a.until) {
		return "", false
	}
	return a.reason, true
}

// recoverFromPanic takes in a panic: it sets aside the job at fault, forgets all that was
// derived from Nomad's state, and returns the panic as an error.
func (p *Placer) recoverFromPanic(panicked any, now time.Time) error {
	stack := string(debug.Stack())
	var in *callPanic
	if c, ok := panicked.(*callPanic); ok {
		in, panicked, stack = c, c.value, c.stack
	}
	k, ok := p.jobAtFault()
	if in != nil {
		k, ok = in.job, in.job != nomad.JobKey{}
	}
	if ok {
		p.vitals.Panicked(k.String())
	} else {
		p.vitals.Panicked("")
	}
	switch {
	case ok && p.state != nil:
		p.isolateJob(k, panicked, now)
		p.log.Error("a bug while handling one job; setting that job aside", "job", k.ID, "namespace", k.Namespace, "panic", panicked, "stack", stack)
	default:
		p.log.Error("a bug; starting again", "panic", panicked, "stack", stack)
	}
	p.reset()
	return fmt.Errorf("%w: %v", ErrInvariant, panicked)
}

// isolatePanics does something that changes nothing but the queue's and the view's
// what-ifs, and says whether it came to its end. Where a job breaks it, that job is
// set aside, and isolate is to be called again. A panic of unknown cause goes on.
func (p *Placer) isolatePanics(do func()) (done bool) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		k, ok := p.jobAtFault()
		job := p.state.Jobs[k]
		if _, again := p.isolatedJobs[k]; !ok || job == nil || again {
			panic(r)
		}
		p.log.Error("a bug while handling one job; setting that job aside", "job", k.ID, "namespace", k.Namespace, "panic", r, "stack", string(debug.Stack()))
		p.isolateJob(k, r, p.now)
		p.queue.Removed(0, k.String())
		p.endJob()
		p.trackIsolated(k, job, p.isolatedJobs[k].reason)
	}()
	do()
	return true
}

// reset forgets what was derived from Nomad's state.
func (p *Placer) reset() {
	q, err := queue.New(p.cfg.queueOptions())
	if err != nil {
		panic(err) // the options were valid before
	}
	p.queue, p.jobs, p.order, p.view, p.runHistory = q, map[nomad.JobKey]*tracked{}, nil, nil, runHistory{}
	p.moves, p.ready, p.followed = nil, nil, followed{}
	p.endJob()
}

// callPanic is a panic of one of several calls that ran at a time.
type callPanic struct {
	job   nomad.JobKey // for which it was; the zero key for none
	value any
	stack string
}

// recoverPanic is do's error, or its panic as one. A panic in a goroutine of its own is
// the end of the process, whoever is to blame for it.
func recoverPanic(log hclog.Logger, what string, do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("a bug", "in", what, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", ErrInvariant, r)
		}
	}()
	return do()
}

// call is something to be done for a job, beside others.
type call struct {
	job nomad.JobKey
	do  func()
}

// runRecovered does it and returns its panic, nil for none.
func (c call) runRecovered() (panicked *callPanic) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *callPanic: // of calls within
			panicked = r
		default:
			panicked = &callPanic{c.job, r, string(debug.Stack())}
		}
	}()
	c.do()
	return nil
}
