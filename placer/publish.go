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

// published contains the latest snapshot. published also records whether somebody waits for the
// next snapshot.
type published struct {
	mu      sync.Mutex
	picture *query.Snapshot
	seen    time.Time     // the snapshot includes all changes up to this time
	old     bool          // the snapshot lacks a change
	inVain  bool          // a reader has waited in vain for the next snapshot
	took    time.Duration // how long the snapshot took to make
	next    chan struct{} // closed by the next snapshot; nil if nobody waits
	asked   bool          // somebody has asked for the snapshot since it was made
	watched bool          // somebody has looked for changes since the snapshot was made
	wanted  bool          // somebody waits for a newer snapshot
}

// Picture returns a snapshot of the state after one of the latest cycles. The snapshot is about a
// second old, or up to ten seconds if nobody has asked for a snapshot in the meantime. Picture
// returns nil until the first cycle has ended. A snapshot never changes.
func (p *pictures) Picture() *query.Snapshot {
	p.published.mu.Lock()
	defer p.published.mu.Unlock()
	p.published.asked = true
	return p.published.picture
}

// LastPicture is like Picture, but for callers that only wait for changes. LastPicture does not ask
// for a newer snapshot while nothing changes.
func (p *pictures) LastPicture() *query.Snapshot {
	p.published.mu.Lock()
	defer p.published.mu.Unlock()
	p.published.watched = true
	return p.published.picture
}

// PictureSince waits for a snapshot that includes all changes up to the given time. So callers see
// their own changes. If the last snapshot lacks an older change, PictureSince waits for the next
// snapshot for up to a second. If the placer makes no snapshot in this time, later calls do not
// wait for it. So a placer that hangs does not delay every request by a second.
func (p *pictures) PictureSince(ctx context.Context, since time.Time) (*query.Snapshot, error) {
	seen, behind := p.behind()
	if behind && !since.After(seen) {
		brief, cancel := context.WithTimeout(ctx, pictureEvery)
		defer cancel()
		if picture, err := p.awaited(brief, seen.Add(1)); err == nil {
			return picture, nil
		}
		if ctx.Err() == nil {
			p.waitedInVain()
		}
	}
	return p.awaited(ctx, since)
}

// waitedInVain records that a reader has waited in vain for the next snapshot.
func (p *pictures) waitedInVain() {
	p.published.mu.Lock()
	defer p.published.mu.Unlock()
	p.published.inVain = true
}

// behind reports whether the last snapshot lacks a change although readers expect it to have the
// change. The snapshot has all changes up to the returned time.
func (p *pictures) behind() (seen time.Time, behind bool) {
	s := &p.published
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen, s.old && !s.inVain && time.Since(s.seen) > s.every()+pictureEvery
}

func (p *pictures) awaited(ctx context.Context, since time.Time) (*query.Snapshot, error) {
	for {
		s := &p.published
		s.mu.Lock()
		s.asked = true
		if s.picture != nil && !s.seen.Before(since) {
			defer s.mu.Unlock()
			return s.picture, nil
		}
		s.wanted = true
		if s.next == nil {
			s.next = make(chan struct{})
		}
		next := s.next
		s.mu.Unlock()
		p.nudge()
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// nudge asks the placer to run a cycle soon.
func (p *pictures) nudge() {
	select {
	case p.nudged <- struct{}{}:
	default: // a request is pending already
	}
}

// ForgetPicture drops the latest snapshot, because this snapshot cannot be trusted. The next cycle
// makes a new snapshot.
func (p *pictures) ForgetPicture() {
	p.published.mu.Lock()
	defer p.published.mu.Unlock()
	p.published.picture = nil
}

// Status returns the counts in the latest snapshot. Status waits for a new snapshot as PictureSince
// does, unless there is no snapshot yet.
func (p *pictures) Status() model.Status {
	s := p.Picture()
	if s == nil {
		return model.Status{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*pictureEvery)
	defer cancel()
	if latest, err := p.PictureSince(ctx, time.Time{}); err == nil {
		s = latest
	}
	return s.Status()
}

const (
	// pictureEvery is the shortest time between two snapshots, unless somebody waits for a
	// snapshot. The placer spends at most a twentieth of its time on snapshots, or a fifth if
	// somebody waits for a snapshot.
	pictureEvery = time.Second
	// sameFor is how long the placer keeps a snapshot while nothing changes, or nobody asks for a
	// snapshot. After this time, the placer makes a new snapshot, because expected starts depend on
	// the time, and because readers get the last snapshot if the placer hangs.
	sameFor = 10 * time.Second
)

// publish makes a snapshot of the state after this cycle, if anything has changed since the last
// snapshot. The snapshot may lack changes since the cycle began.
func (p *Placer) publish(now time.Time) {
	p.warnOfNodes()
	warnings := slices.Concat(p.ofNodes, p.ofNamespaces, p.m.Windows.Warnings(), p.m.Denials(), p.m.Unplaced(), p.failing())
	seen := p.m.View.Changes()
	s := &p.published
	s.mu.Lock()
	last := s.picture
	age := now.Sub(p.picturedAt)
	least := s.leastAge()
	changed := last == nil || p.changed || seen != p.pictured || !slices.Equal(last.Warned(), warnings)
	later := changed && last != nil && age < least
	s.old = s.old || later
	s.inVain = false
	p.unwarned = false
	s.mu.Unlock()
	if later {
		return
	}
	began := time.Now()
	took := s.took
	made := changed || age >= sameFor
	if made {
		last = query.Picture(p.m.Clone(), p.nomad, warnings)
		p.changed = false
		p.pictured = seen
		p.picturedAt = now
		took = time.Since(began)
		if p.hooks.Published != nil {
			p.hooks.Published(last, changed)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = took
	s.picture = last
	s.seen = p.began
	s.old = false
	s.wanted = false
	s.asked, s.watched = s.asked && !made, s.watched && !made
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}

// every returns the shortest time between two snapshots for readers who wait for none.
func (s *published) every() time.Duration { return max(pictureEvery, 20*s.took) }

// leastAge returns the age that the last snapshot must have before a snapshot with changes replaces
// it.
func (s *published) leastAge() time.Duration {
	switch {
	case s.wanted:
		return 5 * s.took
	case !s.asked && !s.watched:
		return max(s.every(), sameFor)
	}
	return s.every()
}

// pictureDue reports whether a cycle would now make a snapshot: the last one lacks a change, or
// somebody has asked for it and it is too old.
func (p *Placer) pictureDue() bool {
	s := &p.published
	s.mu.Lock()
	defer s.mu.Unlock()
	age := p.tick().Sub(p.picturedAt)
	return s.asked && age >= sameFor || s.old && age >= s.leastAge()
}

// warnOfNodes warns once about node data that is ignored, and about problems that nodes report.
func (p *Placer) warnOfNodes() {
	p.ofNodes = p.tell(p.ofNodes, p.m.State.NodeWarnings(), func(w string) { p.log.Warn("a node has a problem", "what", w) }, "the nodes no longer have problems")
}

// tell logs the new warnings. When the last warning is gone, tell logs the given text. tell returns
// the current warnings.
func (p *core) tell(told, warnings []string, warn func(string), none string) []string {
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

// warnOfOldNomad logs one warning about a bug in old versions of Nomad that affects gangs.
func (p *Placer) warnOfOldNomad() {
	low := p.m.State.Nodes.OldestNomad()
	if p.warned || low == nil || !low.LessThan(version.Must(version.NewVersion(cluster.ExactPins))) {
		return
	}
	p.warned = true
	p.log.Warn("this Nomad version may start members with fewer GPUs than they request (hashicorp/nomad#18364); such gangs are requeued",
		"version", low, "mended_in", cluster.ExactPins)
}
