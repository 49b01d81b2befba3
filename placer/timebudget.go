// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"maps"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/model"
)

// What is asked of Nomad about single jobs is asked job by job, and one author can
// make that take long: by thousands of jobs, or by ones of which Nomad's answer is
// huge. timeBudget bounds what a cycle spends on the jobs of each namespace.
type timeBudget struct {
	within time.Duration            // namespaceBudget where it is 0
	spent  map[string]time.Duration // in this cycle
	until  map[string]time.Time     // nothing is asked for the namespace before
}

const (
	// namespaceBudget is what a cycle spends on the jobs of a namespace; the rest of them
	// waits for the next one, which follows at once.
	namespaceBudget = 3 * time.Second
	// slowAnswer is how long one job may take: after longer its namespace waits for
	// slowFactor times that, and for mostWait at most: it may be Nomad that is slow.
	slowAnswer = time.Second
	slowFactor = 2
	mostWait   = 10 * time.Second
)

// begin begins a cycle.
func (b *timeBudget) begin(now time.Time) {
	if b.spent == nil {
		b.spent, b.until = map[string]time.Duration{}, map[string]time.Time{}
	}
	clear(b.spent)
	maps.DeleteFunc(b.until, func(_ string, t time.Time) bool { return !now.Before(t) })
}

// has reports whether there is any left for the namespace. again: there is in the next
// cycle.
func (b *timeBudget) has(namespace string) (ok, again bool) {
	_, waits := b.until[namespace]
	again = b.spent[namespace] >= cmp.Or(b.within, namespaceBudget)
	return !waits && !again, again && !waits
}

// spend notes what a job of the namespace took.
func (b *timeBudget) spend(namespace string, d time.Duration, now time.Time) {
	b.spent[namespace] += d
	if d >= slowAnswer {
		b.until[namespace] = now.Add(b.spent[namespace] + min(slowFactor*d, mostWait))
	}
}

// reconcileAll reconciles the jobs for which something may be due, as long as the
// budget of their namespace lasts.
func (p *Placer) reconcileAll(reconcile func(*model.Tracked)) {
	p.timeBudget.begin(p.m.Time)
	for _, t := range p.m.Sorted() {
		t.PassedOver = false
		if t.Idle {
			continue
		}
		ok, again := p.timeBudget.has(t.Key.Namespace)
		if !ok && !t.Overwrote() { // what was overwritten is given back before anything is decided upon it
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
