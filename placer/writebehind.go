// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"time"
)

// The placer writes decisions, run times and other data to Nomad's variables in the background.
// Cycles continue during the writes, so no gang waits for them. The placer writes at most one
// batch, called a lot, at a time. If data becomes due while a lot is being written, it is written
// in the next lot, with the values that it has then.
//
// Data on which a decision depends is written within the cycle: the quarantine, and the record of a
// gang that the placer is about to stop.

// dueWrite is one write of data by the placer. The function write runs in the background, so it
// must not use other data of the placer.
type dueWrite struct {
	what  string // the activity, for [core.report]
	write func(context.Context) error
	// then handles the outcome of the write, between two cycles.
	then func(error)
	// paths contains the paths of the records that this write stores or removes.
	paths []string
}

// lot is the batch that is being written.
type lot struct {
	entries  []dueWrite
	errs     []error
	paths    map[string]bool
	written  chan struct{} // closed when the whole lot is written
	panicked *callPanic
}

// startWrites starts a goroutine that writes the data that is due. If an earlier lot is still being
// written, startWrites does nothing.
func (p *journal) startWrites(ctx context.Context, now time.Time) {
	p.takeWrites()
	if p.lot != nil {
		return
	}
	l := &lot{paths: map[string]bool{}, written: make(chan struct{})}
	for _, due := range []func(time.Time) *dueWrite{p.profileDue, p.recordsDue, p.runTimesDue, p.usageDue, p.staleDue} {
		e := due(now)
		if e != nil {
			l.entries = append(l.entries, *e)
			for _, path := range e.paths {
				l.paths[path] = true
			}
		}
	}
	if len(l.entries) == 0 {
		return
	}
	p.lot = l
	go l.write(ctx)
}

func (l *lot) write(ctx context.Context) {
	defer close(l.written)
	l.errs = make([]error, len(l.entries))
	calls := callsFor(l.entries, nil, func(i int, e dueWrite) { l.errs[i] = e.write(ctx) })
	l.panicked = call{do: func() { inParallel(calls) }}.runRecovered()
}

// writesDone returns a channel that is closed when the current lot has been written. writesDone
// returns nil if there is no lot.
func (p *journal) writesDone() <-chan struct{} {
	if p.lot == nil {
		return nil
	}
	return p.lot.written
}

// takeWrites handles the outcome of the current lot if the lot has been written.
func (p *journal) takeWrites() {
	select {
	case <-p.writesDone():
	default:
		return
	}
	l := p.lot
	p.lot = nil
	for i, e := range l.entries {
		_, troubled := p.backoffs[e.what]
		if troubled || l.errs[i] != nil {
			p.unwarned = true
		}
		e.then(l.errs[i])
		p.report(e.what, l.errs[i])
	}
	if l.panicked != nil {
		panic(l.panicked)
	}
}

// awaitWrites waits until the current lot has been written.
func (p *journal) awaitWrites() {
	if p.lot != nil {
		<-p.lot.written
		p.takeWrites()
	}
}

// awaitRecord waits for the current lot if the lot writes or removes the record with this path.
// Without this wait, the lot could overwrite a newer version of the record.
func (p *journal) awaitRecord(path string) {
	if p.lot != nil && p.lot.paths[path] {
		p.awaitWrites()
	}
}

// writeNow writes an entry, and waits until it has been written.
func writeNow(ctx context.Context, e *dueWrite) error {
	if e == nil {
		return nil
	}
	err := e.write(ctx)
	e.then(err)
	return err
}
