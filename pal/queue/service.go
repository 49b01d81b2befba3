// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import "github.com/nomad-pal/nomad-pal/pal"

// A service keeps its GPUs forever. So it takes none of those without which a gang that was
// submitted before it would never fit: it starts beside them, or waits until that gang has run.
// Gangs run some time, and such as were submitted after the service do not count, so it
// does not wait forever. Once it is overdue it does not wait.

// mostSpared bounds for how many gangs GPUs are kept in one search.
const mostSpared = 8

// sparing is where a gang may start that fits on f: there, or, if it is a service, where it shuts
// nobody out. by is the gang that it would shut out wherever it went; nil for none.
func (p *planner) sparing(e *entry, f pal.Found) (at pal.Found, by *entry) {
	if p.ends(e) {
		return f, nil
	}
	var back []func()
	defer func() { undoAll(back) }()
	for range mostSpared {
		if by = p.shutOut(e, f); by == nil {
			return f, nil
		}
		var its pal.Placement
		p.withoutEnding(func() { its, _ = p.place(by) })
		_, free := p.hold(its.GPUs())
		back = append(back, free)
		var ok bool
		if f, ok = p.backfill(e); !ok {
			return f, by
		}
	}
	return f, by
}

// shutOut is a gang, submitted before the service e, for which enough GPUs come free some time,
// but not if the service takes those of f; nil for none.
func (p *finder) shutOut(e *entry, f pal.Found) *entry {
	for _, b := range p.live {
		g := b.first(e)
		if g == nil || p.overQuota(g) || !p.awaits(g) || p.barring(g) != nil {
			continue
		}
		p.c.Take(e.job.Gang, f.Placement)
		fits := p.fitsWithout(g, p.withoutEnding)
		p.c.Release(e.job.Gang, f.Placement)
		if !fits {
			return g
		}
	}
	return nil
}

// first is a gang of the bucket that was submitted before the service e, has no lower priority, and
// ends; nil for none.
// All of a bucket fit alike; those that GPUs are being freed for have theirs.
func (b *bucket) first(e *entry) *entry {
	if b.sig.endless || b.sig.claimed {
		return nil
	}
	for i := range b.es {
		if g := b.es[i].e; g.bySubmission(e) < 0 && g.key.behind <= e.key.behind {
			return g
		}
	}
	return nil
}
