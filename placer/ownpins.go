// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// pinsGrace is how long after its beginning a placer lets all pins keep GPUs from
// others: those that its predecessor wrote and had no time to record are among
// them, and by then their members have started.
const pinsGrace = 30 * time.Second

// distrustPins ends the grace for pins that are not known to be ours.
func (p *Placer) distrustPins(now time.Time) {
	if p.pinsUntil.IsZero() {
		p.pinsUntil = now.Add(pinsGrace)
	}
	if !now.Before(p.pinsUntil) {
		p.m.State.OnlyOwnPins()
	}
}

// updateViewWithoutForgedPins brings the view of a snapshot, which has read all records, to what
// an agent at work believes. What was registered a moment ago may not be recorded
// yet.
func (p *Placer) updateViewWithoutForgedPins(ctx context.Context, now time.Time) error {
	for _, t := range p.m.Sorted() {
		if t.Nomad == gang.Starting && now.Sub(time.Unix(0, *t.Job.SubmitTime)).Abs() < query.RecordComes {
			p.m.State.Own(t.Key, t.Pins.GPUs())
		}
	}
	p.m.State.OnlyOwnPins()
	if err := p.m.UpdateView(now); err != nil {
		return err
	}
	p.track(ctx)
	return nil
}
