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

// A bug that only one job triggers must not stop the placer's work for other jobs. So the placer
// records on which job it works. After a panic, the placer isolates this job, and starts again from
// Nomad's state without the job. The placer ignores an isolated job until the author changes it. If
// the job causes more panics, the placer ignores the job for some time even after an edit. The time
// doubles after each panic.

// recoverFromPanic handles a panic. recoverFromPanic isolates the job that caused the panic,
// forgets everything derived from Nomad's state, and returns the panic as an error.
func (p *Placer) recoverFromPanic(panicked any, now time.Time) error {
	stack := string(debug.Stack())
	k, ok := p.m.JobAtFault()
	c, in := panicked.(*callPanic)
	if in {
		panicked, stack = c.value, c.stack
		k, ok = c.job, c.job != cluster.JobKey{}
	}
	p.vitals.Panicked()
	if ok && p.m.State != nil {
		p.m.IsolateJob(k, panicked, now)
		p.log.Error("nomad-pal has a bug that this job triggers; leaving the job alone", "job", k.ID, "namespace", k.Namespace, "panic", panicked, "stack", stack)
	} else {
		p.log.Error("a bug; starting again", "panic", panicked, "stack", stack)
	}
	p.reset()
	return fmt.Errorf("%w: %v", heartbeat.ErrInvariant, panicked)
}

// reset forgets everything derived from Nomad's state.
func (p *Placer) reset() {
	if err := p.m.Reset(); err != nil {
		panic(err) // the options were valid before
	}
	p.runTimesFile = runTimesFile{}
	p.moves = nil
	p.ready = nil
	p.followed = followed{}
}

// callPanic is a panic in one of several parallel calls.
type callPanic struct {
	job   cluster.JobKey // the call's job; the zero key for none
	value any
	stack string
}

// recoverPanic calls a function and returns its error. If the function panics, recoverPanic returns
// the panic as an error. Without recoverPanic, a panic in a goroutine would end the process.
func recoverPanic(log hclog.Logger, what string, do func() error) (err error) {
	defer func() {
		r := recover()
		if r != nil {
			log.Error("a bug", "in", what, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", heartbeat.ErrInvariant, r)
		}
	}()
	return do()
}

// call is a piece of work for one job. Several calls can run in parallel.
type call struct {
	job cluster.JobKey
	do  func()
}

// runRecovered runs the call. runRecovered returns the panic of the call, or nil if the call did
// not panic.
func (c call) runRecovered() (panicked *callPanic) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *callPanic: // the panic comes from a nested call
			panicked = r
		default:
			panicked = &callPanic{c.job, r, string(debug.Stack())}
		}
	}()
	c.do()
	return nil
}
