// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"time"
)

// Short jobs go first, so users gain if their estimates are too short. Therefore the Queue
// multiplies a tenant's estimates by the factor by which the tenant's runs outlast them: the median
// of its last runs, once there are a few. It never makes estimates shorter.
const (
	// judgedRuns is how many runs with an estimate are needed before the factor counts, and how
	// many without one before their mean counts (see takeSilent).
	judgedRuns = 4
	// mostStretch bounds that factor.
	mostStretch = 1000
)

// estimatesOf returns the name under which a tenant's runs are stored as multiples of their
// estimates, in seconds: 1 s for a run that was as long as estimated. No job has such a name.
func estimatesOf(tenant string) string { return "\x00estimates of " + tenant }

// judgeStopped counts a gang that is stopped before its end if it has already outlasted its
// estimate by far. If only finished gangs counted, a tenant's gangs with estimates that are too
// short could stop each other forever: each estimate would be believed until its gang had outlasted
// it, and no gang would end.
func (fs *foresight) judgeStopped(e *entry, now time.Duration) {
	if !e.judged && e.work(now) > stretched(e.job.Estimate, 1+beyond) {
		fs.judge(e, now)
		e.judged = true
	}
}

// judge records by which factor a finished or stopped gang outlasted its estimate. If that changes
// how its tenant's estimates are scaled, the tenant's waiting gangs are sorted again.
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

// stretch returns the factor by which a tenant's runs outlast their estimates. It is 1 if the
// excess is within [beyond], or unknown.
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

// silent is the name under which runs without an estimate are stored. No job has such a name.
const silent = "\x00silent"

// silenceCounts × the mean of runs without an estimate is the expected run time of a gang without
// one, if other users estimate. With 1, giving an estimate that is off by up to five times harmed
// the job in more than a quarter of the cells of docs/results/sim-users.md. The mean is probably
// too low at first, because the longest of these runs end last.
const silenceCounts = 2

// learnSilent records a run without an estimate. If other users estimate, a gang without an
// estimate and without a history is expected to run for twice the mean of such runs. Otherwise it
// would go before all gangs with honest estimates, because nothing shows that it is long. A gang
// that may be stopped is exempt (see unknown): it gets a chance to show that it is short.
func (fs *foresight) learnSilent(e *entry, now time.Duration) {
	if e.job.Estimate == 0 {
		fs.note("", silent, sample{work: e.work(now), gpus: 1})
	}
	fs.takeSilent()
}

// takeSilent computes the run time that is assumed for gangs without an estimate. It is
// DefaultRuntime times a power of two, so that it seldom changes: each change sorts all waiting
// gangs again.
func (fs *foresight) takeSilent() {
	runs := fs.samples(silent)
	usual := fs.opt.DefaultRuntime
	if fs.estimated && len(runs) >= judgedRuns {
		sum := 0.0
		for _, s := range runs {
			sum += s.work.Seconds()
		}
		counts := silenceCounts * sum / float64(len(runs))
		usual = stretched(usual, math.Exp2(math.Round(max(0, math.Log2(counts/usual.Seconds())))))
	}
	if usual != fs.usual {
		fs.usual = usual
		for _, h := range fs.runTimes {
			h.fresh = nil // computed with the old value
		}
		for name := range fs.named {
			fs.learned[name] = struct{}{}
		}
	}
}

// unknown returns the run time that is assumed for a gang about which nothing is known.
func (fs *foresight) unknown(e *entry) time.Duration {
	if fs.mayStop(e) {
		return fs.opt.DefaultRuntime
	}
	return fs.usual
}

// Estimate returns the scaled estimate of a job.
func (fs *foresight) Estimate(j Job) time.Duration {
	return stretched(j.Estimate, fs.stretch(j.Tenant))
}
