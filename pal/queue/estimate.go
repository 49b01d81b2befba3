// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"time"
)

// Short jobs go first, so it pays to estimate too little. So a tenant's estimates
// are taken for longer by as much as its runs outlasted theirs: by the median of the
// last of them, once there are a few. They are never taken for shorter.
const (
	// judgedRuns is how many runs with an estimate it takes.
	judgedRuns = 4
	// mostStretch bounds how many times longer a run counts as.
	mostStretch = 1000
)

// estimatesOf is the name under which a tenant's runs are remembered in units of their
// estimates: a second for one that ran as long as was said. No job has such a name.
func estimatesOf(tenant string) string { return "\x00estimates of " + tenant }

// judgeStopped notes that a gang has outlasted its estimate by far and is stopped: its whole run is yet
// longer. If only those taught that have ended, others of its tenant would go before it, each believed
// until it has run as long, and none of them would end.
func (fs *foresight) judgeStopped(e *entry, now time.Duration) {
	if !e.judged && e.work(now) > stretched(e.job.Estimate, 1+beyond) {
		fs.judge(e, now)
		e.judged = true
	}
}

// judge remembers how many times its estimate a gang has run that has finished, or was stopped. If that changes how
// its tenant's estimates are taken, the tenant's waiting gangs are sorted anew.
func (fs *foresight) judge(e *entry, now time.Duration) {
	if e.job.Estimate <= 0 {
		return
	}
	fs.estimated = true
	ratio := min(e.work(now).Seconds()/e.job.Estimate.Seconds(), mostStretch)
	before, name := fs.stretch(e.job.Tenant), estimatesOf(e.job.Tenant)
	fs.note(e.job.Tenant, name, sample{work: seconds(max(ratio, 1e-6)), gpus: 1})
	if fs.stretch(e.job.Tenant) != before {
		fs.learned[name] = struct{}{}
	}
}

// stretch is by how much a tenant's runs outlast their estimates; 1 where that is
// within [beyond], or not known.
func (fs *foresight) stretch(tenant string) float64 {
	runs := fs.sortedSamples(estimatesOf(tenant))
	if len(runs) < judgedRuns {
		return 1
	}
	median := runs[(len(runs)-1)/2].work.Seconds()
	if median <= 1+beyond {
		return 1
	}
	return median
}

// silent is the name under which the runs of those are remembered who said nothing. No job has such a name.
const silent = "\x00silent"

// learnSilent remembers such a run. Where others estimate, whoever says nothing is taken to run as long as
// those did on average: else they would go before all who are honest, as nobody knows that they are
// long. A gang that may be stopped gets to show that it is short.
func (fs *foresight) learnSilent(e *entry, now time.Duration) {
	if e.job.Estimate == 0 {
		fs.note("", silent, sample{work: e.work(now), gpus: 1})
	}
	fs.takeSilent()
}

// takeSilent works out what silence is taken for. It is a power of two of DefaultRuntime, so that it seldom
// changes: all that wait are sorted anew then.
func (fs *foresight) takeSilent() {
	runs := fs.samples(silent)
	usual := fs.opt.DefaultRuntime
	if fs.estimated && len(runs) >= judgedRuns {
		sum := 0.0
		for _, s := range runs {
			sum += s.work.Seconds()
		}
		mean := sum / float64(len(runs))
		usual = stretched(usual, math.Exp2(math.Round(max(0, math.Log2(mean/usual.Seconds())))))
	}
	if usual != fs.usual {
		fs.usual = usual
		for _, h := range fs.history {
			h.fresh = nil // was foretold with the old one
		}
		for name := range fs.named {
			fs.learned[name] = struct{}{}
		}
	}
}

// unknown is how long a gang is expected to run of which nothing is known.
func (fs *foresight) unknown(e *entry) time.Duration {
	if fs.mayStop(e) {
		return fs.opt.DefaultRuntime
	}
	return fs.usual
}

// Estimate is what a job's estimate is taken for.
func (fs *foresight) Estimate(j Job) time.Duration {
	return stretched(j.Estimate, fs.stretch(j.Tenant))
}
