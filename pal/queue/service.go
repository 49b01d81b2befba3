// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import "github.com/nomad-pal/nomad-pal/pal"

// A service keeps its GPUs forever. So a service must not take GPUs if a gang that was submitted
// before the service would then never fit. The service starts on other GPUs, or waits until the
// earlier gang has run. The wait of a service ends at some time, because all gangs that were
// submitted before the service will run, and gangs that were submitted later do not count. An
// overdue service in its turn does not wait.

// mostSpared is the maximum number of gangs for which sparing keeps GPUs.
const mostSpared = 8

// sparing returns a placement on which the gang e can start, given a placement f on which the gang
// fits. A service can start only where it shuts out no gang that was submitted before the service.
// If there is no such placement, `by` is a gang that the service would shut out. Otherwise, `by` is
// nil. For all other gangs, sparing returns f.
func (p *planner) sparing(e *entry, f pal.Found) (at pal.Found, by *entry) {
	if p.ends(e) {
		return f, nil
	}
	var kept []int
	for range mostSpared {
		if by = p.shutOut(e, f); by == nil {
			return f, nil
		}
		var its pal.Placement
		p.withoutEnding(func() { its, _ = p.place(by) })
		kept = append(kept, its.GPUs()...)
		_, free := p.hold(kept)
		var ok bool
		f, ok = p.backfill(e)
		if free(); !ok { // shutOut must see these GPUs as free
			return f, by
		}
	}
	return f, by
}

// shutOut returns a gang that was submitted before the service e. The returned gang could run at
// some time, but never if the service takes the GPUs of f. It returns nil if there is no such gang.
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

// first returns a gang of the bucket that was submitted before the service e and has at least the
// service's priority. It returns nil if there is no such gang, or if the gangs of the bucket are
// services or have a claim. One gang is enough, because all gangs of a bucket fit in the same
// places. Gangs with a claim do not count, because their GPUs are already held.
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
