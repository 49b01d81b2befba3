// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"slices"

	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// syncQueue has each gang tell the queue what happened to it since the last cycle, and the
// view on which GPUs it is.
func (p *Placer) syncQueue(ctx context.Context) {
	for _, k := range p.m.View.Shifted() {
		if t := p.m.Jobs[k]; t != nil {
			t.Idle = false // the queue is to know where it runs
		}
	}
	for _, t := range p.m.Sorted() {
		if t.Idle {
			continue
		}
		p.m.BeginJob(t.Key)
		p.step(ctx, t, gang.Sync{Unread: t.PassedOver, After: t.After != "", Eligible: t.Eligible})
		if id := t.Key.String(); t.Placed && !slices.Equal(p.m.Queue.On(id), p.m.View.Holds(t.Key)) {
			p.m.Queue.Holds(gang.QueueTime(p.m.Time), id, p.m.At(t))
		}
		t.Idle = t.Quiet()
	}
	p.m.EndJob()
}
