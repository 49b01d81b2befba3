// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
)

// outbox holds the updates that a client has to report. The server collects the updates of all
// clients for 50 ms before it answers. Allocations start and stop without waiting for this answer,
// as in a real client.
type outbox struct {
	senders sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	waiting []*structs.Allocation
	sending bool
}

// report sends updates in order, together with other waiting updates.
func (p *player) report(ctx context.Context, updates ...*structs.Allocation) {
	if len(updates) == 0 {
		return
	}
	o := &p.outbox
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, updates...)
	if !o.sending {
		o.sending = true
		o.senders.Go(func() { p.send(ctx) })
	}
}

// send sends updates, if necessary several times, until the outbox is empty.
func (p *player) send(ctx context.Context) {
	o := &p.outbox
	for {
		o.mu.Lock()
		batch := o.waiting
		o.waiting = nil
		o.sending = len(batch) > 0 && ctx.Err() == nil
		goOn := o.sending
		o.mu.Unlock()
		if !goOn {
			return
		}
		req := structs.AllocUpdateRequest{Alloc: batch, WriteRequest: structs.WriteRequest{Region: region, AuthToken: p.secret}}
		if err := p.wire.call(p.index, "Node.UpdateAlloc", &req, &structs.GenericResponse{}); err != nil {
			p.counts.failed(ctx, err)
			sleep(ctx, time.Second)
			o.mu.Lock()
			o.waiting = slices.Concat(batch, o.waiting)
			o.mu.Unlock()
		}
	}
}
