// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"unique"

	"github.com/nomad-pal/nomad-pal/pal"
)

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
func (p *pass) sparing(e *entry, f pal.Found) (at pal.Found, by *entry) {
	if p.ends(e) {
		return f, nil
	}
	var kept []int
	for range mostSpared {
		by = p.shutOut(e, f)
		if by == nil {
			return f, nil
		}
		p.on(p.onceEnded(), func() {
			its, _ := p.place(by)
			kept = append(kept, its.GPUs()...)
		})
		ok := false
		p.besides(kept, func() { f, ok = p.backfill(e) })
		if !ok { // shutOut must see these GPUs as free
			return f, by
		}
	}
	return f, by
}

// shutOut returns a gang that was submitted before the service e. The returned gang could run at
// some time, but never if the service takes the GPUs of f. It returns nil if there is no such gang.
// One gang of each signature is enough, because all of them fit in the same places. Gangs to which GPUs
// are promised do not count, because their GPUs are already held.
func (p *pass) shutOut(e *entry, f pal.Found) *entry {
	without := p.onceEnded().Clone()
	without.Take(e.job.Gang, f.Placement)
	tried := map[unique.Handle[signature]]bool{}
	for _, g := range p.line {
		if tried[g.memo.sig] || g.job.Endless || g.promised != nil || g.bySubmission(e) >= 0 || g.memo.key.behind > e.memo.key.behind {
			continue
		}
		tried[g.memo.sig] = true
		if p.overQuota(g) || !p.awaits(g) || p.barring(g) != nil {
			continue
		}
		_, fits := p.fitsOn(without, g)
		if !fits {
			return g
		}
	}
	return nil
}
