// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"maps"
	"math"
	"slices"
	"time"
)

// DefaultHalfLife is the default of [Options.HalfLife], as in Slurm (PriorityDecayHalfLife).
const DefaultHalfLife = 7 * 24 * time.Hour

// entryCharge is the GPU time that is added to a tenant's usage for each GPU in use. Without this
// charge, a tenant would get all free GPUs if its usage were lower by only one GPU second. Kueue
// charges an entry penalty for the same reason.
const entryCharge = time.Hour

// usage is the decayed GPU time of a tenant or a namespace: half of it remains after each
// half-life.
type usage struct {
	gpuS float64       // decayed GPU seconds at the time at
	at   time.Duration // the time of the last update
	rate float64       // GPUs in use since the time at
}

// decay is the half-life of usage; 0 means that nothing is kept.
type decay time.Duration

// tau returns the time constant in seconds, after which 1/e of the usage is left.
func (d decay) tau() float64 { return time.Duration(d).Seconds() / math.Ln2 }

// of returns the decayed GPU time, in seconds, of one GPU that has worked for this span of time
// until now.
func (d decay) of(span time.Duration) float64 {
	if d == 0 {
		return 0
	}
	return -d.tau() * math.Expm1(-span.Seconds()/d.tau())
}

// left returns the fraction of usage that still counts after this span of time, from 0 to 1.
func (d decay) left(span time.Duration) float64 {
	if d == 0 {
		return 0
	}
	return math.Exp(-span.Seconds() / d.tau())
}

// value returns the usage now, in GPU seconds. now must not be before u.at.
func (u *usage) value(d decay, now time.Duration) float64 {
	span := max(0, now-u.at)
	return max(0, u.gpuS*d.left(span)+u.rate*d.of(span))
}

// book records that this number of GPUs began to work at the given time. A negative number means
// that GPUs stopped working. The time can be before u.at.
func (u *usage) book(d decay, at time.Duration, gpus float64) {
	if at >= u.at {
		u.gpuS, u.at = u.value(d, at), at
	} else {
		u.gpuS += gpus * d.of(u.at-at)
	}
	u.rate += gpus
}

// Usage is the decayed GPU time of the jobs of one namespace, and their stops.
type Usage struct {
	Tenant     string  `json:"tenant"` // the namespace
	GPUSeconds float64 `json:"gpu_seconds"`
	Stops
}

// leastUsage is the smallest usage that counts, in GPU seconds. Less usage counts as none.
const leastUsage = 1

// Usage returns the usage of each namespace now, sorted by name, for [Queue.RememberUsage] of a
// later Queue.
func (ts *tenancy) Usage(now time.Duration) []Usage {
	var out []Usage
	for _, name := range slices.Sorted(maps.Keys(ts.namespaces)) {
		n := ts.namespaces[name]
		s := n.usage.value(ts.decay(), now)
		if s >= leastUsage || n.stops != (Stops{}) {
			out = append(out, Usage{name, s, n.stops})
		}
	}
	return out
}

// RememberUsage replaces all usage with the usage that an earlier Queue returned at the given time.
// The usage of running gangs since that time is added. It ignores invalid numbers.
func (q *Queue) RememberUsage(at time.Duration, kept []Usage) {
	q.usageFrom = at
	for _, n := range q.namespaces {
		n.usage, n.stops = usage{at: at}, Stops{}
	}
	for _, k := range kept {
		if !(k.GPUSeconds >= 0) || math.IsInf(k.GPUSeconds, 0) {
			continue
		}
		n := q.namespace(k.Tenant)
		n.usage.gpuS, n.usage.at = n.usage.value(q.decay(), at)+k.GPUSeconds, at
		s := k.Stops
		if s.Stops >= 0 && s.LostGPUSeconds >= 0 && s.SavedSeconds >= 0 {
			n.stops = s
		}
	}
	q.bookOutside(at, q.outside, 1)
	for _, e := range q.all {
		if e.state >= running {
			q.bookUsage(e, e.startedAt, e.booked)
		}
	}
}

// bookUsage records that the entry has used this number of additional GPUs since the given time.
// The GPUs are added to the usage of the entry's namespace. A negative number means
// that the entry has stopped using GPUs.
func (ts *tenancy) bookUsage(e *entry, at time.Duration, gpus float64) {
	e.of.usage.book(ts.decay(), max(at, ts.usageFrom), gpus)
}

// bookOutside records that GPUs outside the Queue have been in use since the given time (sign 1), or
// have stopped being in use (-1).
func (ts *tenancy) bookOutside(at time.Duration, held map[Payer]Held, sign float64) {
	for _, by := range slices.SortedFunc(maps.Keys(held), Payer.compare) {
		ts.namespace(by.Tenant).usage.book(ts.decay(), max(at, ts.usageFrom), sign*held[by].GPUs)
	}
}

// decay returns the half-life of usage that the options set.
func (ts *tenancy) decay() decay { return decay(ts.opt.HalfLife) }

// fair returns the tenant's usage divided by its weight. [Options.FairShare] compares siblings by
// this value.
func (ts *tenancy) fair(t *tenant) float64 {
	used := t.gpus
	if ts.opt.HalfLife > 0 {
		used = t.used + used*entryCharge.Seconds()
	}
	return used / t.weight()
}
