// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"maps"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/model"
)

// timeBudget bounds what a cycle spends on the jobs of each namespace. Some questions to Nomad are
// asked job by job, and one author can make that slow: with thousands of jobs, or with jobs whose
// answers are huge.
type timeBudget struct {
	within time.Duration            // namespaceBudget if 0
	spent  map[string]time.Duration // in this cycle
	until  map[string]time.Time     // no questions for the namespace before
}

const (
	// namespaceBudget is what a cycle spends on the jobs of a namespace. The rest waits for the
	// next cycle, which follows at once.
	namespaceBudget = 3 * time.Second
	// slowAnswer is how long one job may take. After a longer one its namespace pauses for
	// slowFactor times that, and for mostWait at most, since Nomad itself may be slow.
	slowAnswer = time.Second
	slowFactor = 2
	mostWait   = 10 * time.Second
)

// begin starts a cycle.
func (b *timeBudget) begin(now time.Time) {
	if b.spent == nil {
		b.spent, b.until = map[string]time.Duration{}, map[string]time.Time{}
	}
	clear(b.spent)
	maps.DeleteFunc(b.until, func(_ string, t time.Time) bool { return !now.Before(t) })
}

// has reports whether the namespace has budget left. again reports whether it has in the next
// cycle.
func (b *timeBudget) has(namespace string) (ok, again bool) {
	_, waits := b.until[namespace]
	again = b.spent[namespace] >= cmp.Or(b.within, namespaceBudget)
	return !waits && !again, again && !waits
}

// spend records the time that a job of the namespace took.
func (b *timeBudget) spend(namespace string, d time.Duration, now time.Time) {
	b.spent[namespace] += d
	if d >= slowAnswer {
		b.until[namespace] = now.Add(b.spent[namespace] + min(slowFactor*d, mostWait))
	}
}

// reconcileAll reconciles the jobs for which something may be due, within the budget of their
// namespace.
func (p *Placer) reconcileAll(reconcile func(*model.Tracked)) {
	p.timeBudget.begin(p.m.Time)
	for _, t := range p.m.Sorted() {
		t.PassedOver = false
		if t.Idle {
			continue
		}
		ok, again := p.timeBudget.has(t.Key.Namespace)
		if !ok && !t.Overwrote() { // an overwritten change is restored before anything is decided on it
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
