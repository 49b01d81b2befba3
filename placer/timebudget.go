// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"maps"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/model"
)

// timeBudget limits how much time a cycle spends on the jobs of each namespace. The placer makes
// some requests for each job. One author can make these requests slow by registering thousands of
// jobs, or jobs for which Nomad's answers are huge.
type timeBudget struct {
	within time.Duration            // the budget; if 0, namespaceBudget
	spent  map[string]time.Duration // in this cycle
	until  map[string]time.Time     // until when a namespace pauses
}

const (
	// namespaceBudget is how much time a cycle may spend on the jobs of one namespace. The
	// remaining jobs of the namespace wait for the next cycle, which begins at once.
	namespaceBudget = 3 * time.Second
	// slowAnswer is how long the work on one job may take without consequences. If the work takes
	// longer, the placer pauses the job's namespace for slowFactor times as long. The pause is at
	// most mostWait, because Nomad itself may be slow.
	slowAnswer = time.Second
	slowFactor = 2
	mostWait   = 10 * time.Second
)

// begin gives each namespace a new budget at the beginning of a cycle.
func (b *timeBudget) begin(now time.Time) {
	if b.spent == nil {
		b.spent, b.until = map[string]time.Duration{}, map[string]time.Time{}
	}
	clear(b.spent)
	maps.DeleteFunc(b.until, func(_ string, t time.Time) bool { return !now.Before(t) })
}

// has reports whether the cycle may spend more time on the namespace (ok). again is true if the
// namespace has only used up its budget, and will get a new budget in the next cycle.
func (b *timeBudget) has(namespace string) (ok, again bool) {
	_, waits := b.until[namespace]
	again = b.spent[namespace] >= cmp.Or(b.within, namespaceBudget)
	return !waits && !again, again && !waits
}

// spend subtracts the time that was spent on a job from the budget of the namespace.
func (b *timeBudget) spend(namespace string, d time.Duration, now time.Time) {
	b.spent[namespace] += d
	if d >= slowAnswer {
		b.until[namespace] = now.Add(b.spent[namespace] + min(slowFactor*d, mostWait))
	}
}

// reconcileAll does what is due for each job, within the time budget of each namespace.
func (p *Placer) reconcileAll(reconcile func(*model.Tracked)) {
	p.timeBudget.begin(p.m.Time)
	for _, t := range p.m.Sorted() {
		t.PassedOver = false
		if t.Idle {
			continue
		}
		ok, again := p.timeBudget.has(t.Key.Namespace)
		if !ok && !t.Overwrote() { // an overwritten change must be restored before anything else is decided
			p.again = p.again || again
			t.PassedOver = !t.PastKnown()
			continue
		}
		p.m.BeginJob(t.Key)
		began := time.Now()
		reconcile(t)
		p.timeBudget.spend(t.Key.Namespace, time.Since(began), p.m.Time)
	}
	p.m.EndJob()
}
