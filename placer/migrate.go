// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// noteMoved is in the record of a gang that was moved.
const noteMoved = "moved to better GPUs"

// move has a gang moved, unless that would be more than MovesPerHour within an hour. The
// queue is then told from when on a move may be made again, so that it does not offer one
// in each cycle.
func (p *Placer) move(ctx context.Context, t *model.Tracked, to pal.Placement, now time.Time) {
	p.moved = slices.DeleteFunc(p.moved, func(at time.Time) bool { return now.Sub(at) > time.Hour })
	if n := p.m.Cfg.MovesPerHour; n > 0 && len(p.moved) >= n {
		p.m.Queue.NoMoves(gang.QueueTime(p.moved[len(p.moved)-n].Add(time.Hour)) + 1)
	}
	if len(p.moved) >= p.m.Cfg.MovesPerHour {
		p.m.Queue.Kept(t.Key.String())
		return
	}
	p.step(ctx, t, gang.Move{To: to})
}

// arrival is a gang that has stopped to go to its target.
type arrival struct {
	*model.Tracked
	why gang.Reason
}

// arrived are the starts of gangs that have stopped in order to be moved. One
// whose new GPUs are not free any more waits in the queue.
func (p *Placer) arrived(now time.Time) []*start {
	var starts []*start
	var later []arrival
	for _, a := range p.ready {
		t := a.Tracked
		if t.Unchecked() {
			later = append(later, a)
			continue
		}
		to := t.Target
		t.Target = nil
		if to == nil { // it was edited meanwhile, or the cluster was rebuilt: see [gang.Gang.Step]
			continue
		}
		if t.Nomad != gang.Waiting || t.Refused != nil || slices.ContainsFunc(to.GPUs(), func(u int) bool { return !p.m.View.Cluster.Available(u) }) {
			p.m.Queue.Stopped(gang.QueueTime(now), t.Key.String())
			t.Placed = false
			continue
		}
		s := p.prepare(t, pal.Found{Placement: *to}, now)
		if s.Record.Note = noteMoved; a.why == gang.Resized {
			s.Record.Note = gang.NoteResized
		}
		p.m.View.Take(t.Request.Gang, *to)
		p.m.Queue.Started(gang.QueueTime(now), t.Key.String(), *to)
		starts = append(starts, s)
	}
	p.ready = later
	return starts
}
