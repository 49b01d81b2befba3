// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Short jobs go first, so users would gain from estimates that are too short. Therefore the Queue
// multiplies a tenant's estimates by a factor: the median, over the tenant's last runs, of run time
// divided by estimate. The factor is 1 until there are a few runs (judgedRuns), and never less than
// 1.
const (
	// judgedRuns is the number of runs with an estimate that are needed before the factor is used.
	// The constant is also the number of runs without an estimate that are needed before their mean
	// is used (see takeSilent).
	judgedRuns = 4
	// mostStretch is the largest stored ratio of run time to estimate.
	mostStretch = 1000
)

// estimatesOf returns the name under which the history stores how wrong a tenant's estimates were:
// the ratios of run time to estimate. Each ratio is stored as a run time, and 1 s means a ratio of
// 1. No job has this name.
func estimatesOf(tenant string) string { return "\x00estimates of " + tenant }

// judgeStopped judges a stopped gang that has run much longer than estimated. If only finished
// gangs were judged, gangs with estimates that are too short could stop each other forever.
func (fs *foresight) judgeStopped(e *entry, now time.Duration) {
	if !e.judged && e.work(now) > stretched(e.job.Estimate, (1+beyond)/e.job.best()) {
		fs.judge(e, now)
		e.judged = true
	}
}

// judge records the ratio of run time to estimate of a finished or stopped gang.
func (fs *foresight) judge(e *entry, now time.Duration) {
	if e.job.Estimate <= 0 {
		return
	}
	ratio := min(e.work(now).Seconds()*e.job.best()/e.job.Estimate.Seconds(), mostStretch)
	before, name := fs.stretch(e.job.Tenant), estimatesOf(e.job.Tenant)
	fs.note(e.job.Tenant, name, sample{work: seconds(max(ratio, 1e-6)), gpus: 1})
	if fs.stretch(e.job.Tenant) != before {
		fs.learned[name] = struct{}{}
	}
}

// stretch returns the factor by which a tenant's estimates are multiplied. If the factor is
// unknown, or if it is at most 1 + [beyond], stretch returns 1.
func (fs *foresight) stretch(tenant string) float64 {
	h := fs.runTimes[estimatesOf(tenant)]
	if h == nil || len(h.samples) < judgedRuns || h.median.Seconds() <= 1+beyond {
		return 1
	}
	return h.median.Seconds()
}

// silent is the name under which the history stores the runs of gangs without an estimate. No job
// has this name.
const silent = "\x00silent"

// If other users give estimates, the expected run time of a gang without an estimate is
// silenceCounts × the mean run time of gangs without an estimate. With a value of 1, users often
// gained from giving no estimate (make sim-users).
const silenceCounts = 2

// learnSilent records a finished run if its gang had no estimate. If other users give estimates, a
// gang that has neither an estimate nor a history is expected to run for twice the mean run time of
// gangs without an estimate. Otherwise, gangs without an estimate would go before all gangs with
// honest estimates. Gangs that can be stopped are exempt: see unknown.
func (fs *foresight) learnSilent(e *entry, now time.Duration) {
	if e.job.Estimate == 0 {
		fs.note("", silent, sample{work: e.work(now), gpus: 1})
	}
	fs.takeSilent()
}

// takeSilent sets `usual`, the run time that is assumed for gangs without an estimate. The assumed
// run time is DefaultRuntime times a power of two, so that it seldom changes. Each change sorts all
// waiting gangs again.
func (fs *foresight) takeSilent() {
	runs := fs.samples(silent)
	usual := fs.opt.DefaultRuntime
	estimated := false // whether a run with an estimate is stored
	for name := range fs.runTimes {
		estimated = estimated || strings.HasPrefix(name, estimatesOf(""))
	}
	if estimated && len(runs) >= judgedRuns {
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
			h.fresh = nil // these forecasts used the old value
		}
		fs.learned[everyName] = struct{}{}
	}
}

// unknown returns the run time that is assumed for a gang that has neither an estimate nor a
// history. If the gang can be stopped, unknown returns DefaultRuntime, otherwise the field `usual`.
func (fs *foresight) unknown(e *entry) time.Duration {
	if fs.mayStop(e) {
		return fs.opt.DefaultRuntime
	}
	return fs.usual
}

// Estimate returns the user's estimate of a job's run time on its best GPUs (see [Job.Best]), or 0
// without one. The estimate is multiplied by the factor of the job's tenant (see stretch).
func (fs *foresight) Estimate(j Job) time.Duration {
	return stretched(j.Estimate, fs.stretch(j.Tenant))
}

// best returns [Job.Best], or 1 if it is unknown.
func (j Job) best() float64 { return cmp.Or(j.Best, 1) }

// ReferEstimates sets [Job.Best] of all jobs with an estimate, because the set of nodes has changed.
func (q *Queue) ReferEstimates(best func(id string, g pal.Gang) float64) {
	for id, e := range q.entries {
		if e.job.Estimate == 0 {
			continue
		}
		was := e.job.Best
		e.job.Best = best(id, e.allMembers())
		if e.job.Best != was {
			q.learned[e.toldBy()] = struct{}{}
		}
	}
}
