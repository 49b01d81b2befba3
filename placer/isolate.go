// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
)

// A bug that one job meets must not stop the others. Whatever the placer does for
// a job, it notes which one that is; a panic sets it aside, and the placer begins
// again without it, from what Nomad says. The job is left alone until its author
// changes it, and if it is met again and again, for a growing while after that.

// recoverFromPanic handles a panic: it sets aside the job at fault, forgets all that was
// derived from Nomad's state, and returns the panic as an error.
func (p *Placer) recoverFromPanic(panicked any, now time.Time) error {
	stack, job := string(debug.Stack()), ""
	k, ok := p.m.JobAtFault()
	if c, in := panicked.(*callPanic); in {
		panicked, stack = c.value, c.stack
		k, ok = c.job, c.job != cluster.JobKey{}
	}
	if ok {
		job = k.String()
	}
	p.vitals.Panicked(job)
	if ok && p.m.State != nil {
		p.m.IsolateJob(k, panicked, now)
		p.log.Error("a bug while handling one job; setting that job aside", "job", k.ID, "namespace", k.Namespace, "panic", panicked, "stack", stack)
	} else {
		p.log.Error("a bug; starting again", "panic", panicked, "stack", stack)
	}
	p.reset()
	return fmt.Errorf("%w: %v", heartbeat.ErrInvariant, panicked)
}

// reset forgets what was derived from Nomad's state.
func (p *Placer) reset() {
	if err := p.m.Reset(); err != nil {
		panic(err) // the options were valid before
	}
	p.runHistory, p.moves, p.ready, p.followed = runHistory{}, nil, nil, followed{}
}

// callPanic is a panic of one of several calls that ran at a time.
type callPanic struct {
	job   cluster.JobKey // for which it was; the zero key for none
	value any
	stack string
}

// recoverPanic is do's error, or its panic as one. A panic in a goroutine of its own is
// the end of the process, whoever is to blame for it.
func recoverPanic(log hclog.Logger, what string, do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("a bug", "in", what, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", heartbeat.ErrInvariant, r)
		}
	}()
	return do()
}

// call is something to be done for a job, beside others.
type call struct {
	job cluster.JobKey
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
