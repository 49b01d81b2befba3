// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// migrate begins to move a gang: it is stopped as for a preemption, and goes to
// its new GPUs when all of it has stopped.
func (p *Placer) migrate(ctx context.Context, t *tracked, to pal.Placement, now time.Time) {
	log := p.log.With("job", t.Key.ID, "namespace", t.Key.Namespace)
	p.moved = slices.DeleteFunc(p.moved, func(at time.Time) bool { return now.Sub(at) > time.Hour })
	if t.Phase != Running || len(p.moved) >= p.cfg.MovesPerHour {
		p.line.Kept(t.Key.String())
		return
	}
	log.Info("moving", "from_cost", p.view.Running(t.request, t.holds).Cost(), "to_cost", to.Cost())
	if err := p.takeBack(ctx, t); err != nil {
		log.Warn("could not move", "error", err)
		p.line.Kept(t.Key.String())
		return
	}
	t.move, p.moved = &to, append(p.moved, now)
}

// arrived are the starts of gangs that have stopped in order to be moved. One
// whose new GPUs are not free any more waits in line.
func (p *Placer) arrived(now time.Time) []*start {
	var starts []*start
	for _, t := range p.ready {
		if t.move == nil {
			p.line.Stopped(since(now), t.Key.String()) // the cluster was built anew
			t.running = false
			continue
		}
		to := *t.move
		t.move = nil
		free := !slices.ContainsFunc(to.GPUs(), func(u int) bool { return !p.view.Cluster.Available(u) })
		if t.Phase != Waiting || t.refused != nil || !free {
			p.line.Stopped(since(now), t.Key.String())
			t.running = false
			continue
		}
		s := p.prepare(t, pal.Found{Placement: to}, now)
		s.record.Note = "moved to better GPUs"
		p.view.Take(t.request.Gang, to)
		// At once: its old GPUs are free, and the line must not count on them.
		p.line.Started(since(now), t.Key.String(), to)
		t.holds = slices.Sorted(slices.Values(to.GPUs()))
		starts = append(starts, s)
	}
	p.ready = nil
	return starts
}
