// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// writes bounds how many registrations and records are written at a time.
// Nomad's raft log takes several in one go, so that they wait together for its
// disk.
const writes = 16

// together calls all of them, so many at a time, in this order.
func together(calls []func()) {
	var workers sync.WaitGroup
	slots := make(chan struct{}, writes)
	for _, call := range calls {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			call()
		})
	}
	workers.Wait()
}

// writeLater has the job's decision written as it stands, with the next commits
// or at the end of the cycle.
func (p *Placer) writeLater(t *tracked) {
	p.forgetUnsaved(t)
	p.unsaved = append(p.unsaved, *t.record)
	t.unsaved = false
}

// forgetUnsaved drops what is about to be written of the job: something newer
// is.
func (p *Placer) forgetUnsaved(t *tracked) {
	p.unsaved = slices.DeleteFunc(p.unsaved, func(r Record) bool {
		return r.Namespace == t.Key.Namespace && r.Job == t.Key.ID
	})
}

// flushing are calls that write the unsaved records; done takes in how they
// went, after them. What could not be written stays for the next time.
func (p *Placer) flushing(ctx context.Context) (calls []func(), done func() error) {
	records := p.unsaved
	errs := make([]error, len(records))
	for i, r := range records {
		calls = append(calls, func() { errs[i] = WriteRecord(ctx, p.nomad, r) })
	}
	return calls, func() error {
		p.unsaved = nil
		for i, r := range records {
			if errs[i] != nil {
				p.unsaved = append(p.unsaved, r)
			}
		}
		return errors.Join(errs...)
	}
}
