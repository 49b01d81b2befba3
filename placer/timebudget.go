// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"maps"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/model"
)

// timeBudget limits the time that a cycle spends on the jobs of each namespace. The placer sends
// some queries for each job, and one author can make these queries slow with thousands of jobs, or
// with jobs whose answers are huge.
type timeBudget struct {
	within time.Duration            // the budget; if 0, namespaceBudget
	spent  map[string]time.Duration // in this cycle
	until  map[string]time.Time     // until when a namespace pauses
}

const (
	// namespaceBudget is how long a cycle may spend on the jobs of a namespace. The remaining jobs
	// wait for the next cycle, which follows at once.
	namespaceBudget = 3 * time.Second
	// slowAnswer is how long the work on one job may take. If a job takes longer, its namespace
	// pauses for slowFactor times as long. The namespace pauses for mostWait at most, because Nomad
	// itself may be slow.
	slowAnswer = time.Second
	slowFactor = 2
	mostWait   = 10 * time.Second
)

// begin gives each namespace its budget for a new cycle.
func (b *timeBudget) begin(now time.Time) {
	if b.spent == nil {
		b.spent, b.until = map[string]time.Duration{}, map[string]time.Time{}
	}
	clear(b.spent)
	maps.DeleteFunc(b.until, func(_ string, t time.Time) bool { return !now.Before(t) })
}

// has reports in ok whether the cycle can spend more time on the namespace. In again, has reports
// whether the namespace has only used up its budget, and gets a new budget in the next cycle.
func (b *timeBudget) has(namespace string) (ok, again bool) {
	_, waits := b.until[namespace]
	again = b.spent[namespace] >= cmp.Or(b.within, namespaceBudget)
	return !waits && !again, again && !waits
}

// spend records the time that the work on a job of the namespace took.
func (b *timeBudget) spend(namespace string, d time.Duration, now time.Time) {
	b.spent[namespace] += d
	if d >= slowAnswer {
		b.until[namespace] = now.Add(b.spent[namespace] + min(slowFactor*d, mostWait))
	}
}

// reconcileAll reconciles the jobs for which something may be due, within the time budget of each
// namespace.
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
