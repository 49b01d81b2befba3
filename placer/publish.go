// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-version"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// published is the last picture, and who waits for the next.
type published struct {
	mu      sync.Mutex
	picture *query.Snapshot
	seen    time.Time     // up to when it shows all that has happened
	next    chan struct{} // closed with the next; nil: nobody waits
	asked   bool          // somebody has asked for it since it was made
	wanted  bool          // somebody waits for a newer one
}

// Picture is how things were after the last cycles, a second ago or so; nil before the first has
// ended. It does not change any more.
func (p *Placer) Picture() *query.Snapshot {
	p.published.mu.Lock()
	defer p.published.mu.Unlock()
	p.published.asked = true
	return p.published.picture
}

// LastPicture is the same for whoever waits for changes only: it has no newer one made while nothing
// changes.
func (p *Placer) LastPicture() *query.Snapshot {
	p.published.mu.Lock()
	defer p.published.mu.Unlock()
	return p.published.picture
}

// PictureSince is how things are now, or were after a time: whoever has changed something sees it.
// It waits until the placer has looked.
func (p *Placer) PictureSince(ctx context.Context, since time.Time) (*query.Snapshot, error) {
	for {
		s := &p.published
		s.mu.Lock()
		s.asked = true
		if s.picture != nil && !s.seen.Before(since) {
			defer s.mu.Unlock()
			return s.picture, nil
		}
		if s.wanted = true; s.next == nil {
			s.next = make(chan struct{})
		}
		next := s.next
		s.mu.Unlock()
		select {
		case p.nudged <- struct{}{}:
		default: // it is told already
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ForgetPicture has a new one made: the last cannot be trusted.
func (p *Placer) ForgetPicture() {
	p.published.mu.Lock()
	defer p.published.mu.Unlock()
	p.published.picture = nil
}

// Status is what is counted in the last picture.
func (p *Placer) Status() model.Status {
	if s := p.Picture(); s != nil {
		return s.Status()
	}
	return model.Status{}
}

const (
	// pictureEvery is how often a picture is made at most, unless somebody waits for one; making
	// them takes a twentieth of the time at most, or a fifth.
	pictureEvery = time.Second
	// sameFor is for how long one is shown while nothing changes: expected starts move with the
	// clock.
	sameFor = 10 * time.Second
)

// publish makes a picture of this cycle, if something has changed since the last.
func (p *Placer) publish(now time.Time) {
	p.warnOfNodes()
	p.published.mu.Lock()
	last, age, wanted := p.published.picture, now.Sub(p.picturedAt), p.published.wanted
	p.published.mu.Unlock()
	least := max(pictureEvery, 20*p.publishing)
	if wanted {
		least = 5 * p.publishing
	}
	if p.unpublished = last != nil && age < least; p.unpublished {
		return
	}
	warnings := slices.Concat(p.warnings, p.ofNodes, p.m.Windows.Warnings(), p.m.Denials(), p.failing())
	seen := p.m.View.Changes()
	changed := last == nil || p.changed || seen != p.pictured || !slices.Equal(last.Warned(), warnings)
	if changed || age >= sameFor {
		began := time.Now()
		last, p.changed, p.pictured, p.picturedAt = query.Picture(p.m.Clone(), p.nomad, warnings), false, seen, now
		p.publishing = time.Since(began)
		if p.hooks.Published != nil {
			p.hooks.Published(last, changed)
		}
	}
	p.published.mu.Lock()
	defer p.published.mu.Unlock()
	p.published.picture, p.published.seen, p.published.asked, p.published.wanted = last, time.Now(), false, false
	if p.published.next != nil {
		close(p.published.next)
		p.published.next = nil
	}
}

// grownOld reports whether somebody looks at a picture that was made long ago.
func (p *Placer) grownOld() bool {
	p.published.mu.Lock()
	defer p.published.mu.Unlock()
	return p.published.asked && p.tick().Sub(p.picturedAt) >= sameFor
}

// warnOfQueues says once which queues of Nomad's own are in the way.
func (p *Placer) warnOfQueues() {
	p.warnings = p.tell(p.warnings, p.m.State.Queues.Warnings(), func(w string) { p.log.Warn(w) }, "no batch queue of Nomad's own is in the way any more")
}

// warnOfNodes says once what of the nodes' own data is left out.
func (p *Placer) warnOfNodes() {
	p.ofNodes = p.tell(p.ofNodes, p.m.State.NodeWarnings(), func(w string) { p.log.Warn("a node's data is left out", "why", w) }, "no node's data is left out any more")
}

// tell logs the warnings that were not told before, and that none is left. It returns those
// that are told now.
func (p *Placer) tell(told, warnings []string, warn func(string), none string) []string {
	for _, w := range warnings {
		if !slices.Contains(told, w) {
			warn(w)
		}
	}
	if len(warnings) == 0 && len(told) > 0 {
		p.log.Info(none)
	}
	return warnings
}

// warnOfOldNomad says once what an old Nomad does to gangs.
func (p *Placer) warnOfOldNomad() {
	low := p.m.State.OldestNomad()
	if p.warned || low == nil || !low.LessThan(version.Must(version.NewVersion(cluster.ExactPins))) {
		return
	}
	p.warned = true
	p.log.Warn("this Nomad may start members with fewer GPUs than they ask for (hashicorp/nomad#18364); such gangs are requeued and tried again",
		"version", low, "mended_in", cluster.ExactPins)
}
