// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"time"
)

// key is the sort key of a waiting gang: the gang with the smaller key goes first.
type key struct {
	behind int // smaller for a higher priority; 0 if priorities do not count
	rank   float64
	since  time.Duration // time of submission
	seq    int64
}

func (a key) compare(b key) int {
	c := cmp.Compare(a.behind, b.behind)
	if c != 0 {
		return c
	}
	c = cmp.Compare(a.rank, b.rank)
	if c != 0 {
		return c
	}
	c = cmp.Compare(a.since, b.since)
	if c != 0 {
		return c
	}
	return cmp.Compare(a.seq, b.seq)
}

// keyOf returns the key of a waiting gang.
func (fs *foresight) keyOf(e *entry) key {
	e.memo.rank = fs.rank(e, e.wait.since)
	k := key{behind: fs.behind(e), rank: e.memo.rank * fs.credit(e), since: e.job.Submitted, seq: e.seq}
	if e.job.Returns {
		k.rank = -1
	}
	return k
}

// credit returns the fraction of the gang's rank that counts for its place in the queue. See
// [Options.Credit].
func (fs *foresight) credit(e *entry) float64 {
	if fs.opt.Order == Adaptive && fs.mayStop(e) {
		return cmp.Or(fs.opt.Credit, 1)
	}
	return 1
}

// mayStop reports whether the gang may be stopped for others.
func (fs *foresight) mayStop(e *entry) bool { return fs.opt.Preempt && e.job.Preemptible }

// rank returns the value by which the order sorts gangs, smallest first. While a gang waits, its
// rank changes only if its name has new history. The unit depends on the order: a level (LAS),
// seconds (SRTF) or GPU seconds (Adaptive). The other orders do not use the rank.
func (fs *foresight) rank(e *entry, now time.Duration) float64 {
	switch fs.opt.Order {
	case LAS:
		return float64(fs.levelInOrder(e, now))
	case SRTF:
		return fs.remaining(e, now).Seconds()
	case Adaptive:
		return fs.area(e, now)
	}
	return 0
}

// area returns the GPU time by which Adaptive sorts gangs, in GPU seconds. For a gang that must not
// be stopped, area returns the GPU time that the gang is still expected to use. For a preemptible
// gang, area returns the Gittins index ([remainingRunTime.index]) times the number of the gang's
// GPUs. Both kinds of GPU time are in clock time, at the pace that the gang has had so far.
func (fs *foresight) area(e *entry, now time.Duration) float64 {
	left := fs.remaining
	if fs.mayStop(e) {
		left = fs.index
	}
	return left(e, now).Seconds() * e.pace(now) * e.amount(e.whole())
}

// pace returns the gang's run time so far (in clock time) divided by its work so far (in time at
// cost 1). If the gang has not run, pace returns 1.
func (e *entry) pace(now time.Duration) float64 {
	work := e.work(now)
	if work > 0 {
		return e.attained(now).Seconds() / work.Seconds()
	}
	return 1
}

// finest × DefaultRuntime is the rank at which the first level ends. The rank is in seconds under
// SRTF and in GPU seconds under Adaptive.
const finest = 1. / 600

// highestPriority is the largest priority that counts: behind limits priorities to the range from
// -highestPriority to highestPriority. Nomad's priorities are at most 32,766.
const highestPriority = 1 << 20

// behind returns the negative priority of the gang, so that the gang with the smaller number goes
// first. If priorities do not count, behind returns 0.
func (fs *foresight) behind(e *entry) int {
	if !fs.opt.JobPriority {
		return 0
	}
	return -min(max(e.job.Priority, -highestPriority), highestPriority)
}

// orderLevels is larger than the number of levels that an order can have, because a float64 has
// fewer than orderLevels powers of 4.
const orderLevels = 1024

// levelNow returns the gang's level for preemption: a gang can stop gangs whose level is greater. The
// priority counts first, then the level in the order.
func (fs *foresight) levelNow(e *entry, now time.Duration) int {
	return fs.behind(e)*orderLevels + fs.levelInOrder(e, now)
}

// levelInOrder returns the gang's level among gangs of its priority. The levels are powers of 4 of
// a quantity that depends on the order. So a gang is stopped only for a gang with a much smaller
// quantity. Under LAS, the quantity is the attained GPU time divided by the quantum. Under SRTF,
// the quantity is the expected remaining time. Under Adaptive, the quantity is the GPU time that
// area returns. Under FIFO, all gangs have the same level.
func (fs *foresight) levelInOrder(e *entry, now time.Duration) int {
	switch fs.opt.Order {
	case LAS:
		return powerOf4(e.attained(now).Seconds() * e.amount(e.whole()) / fs.opt.Quantum.Seconds())
	case SRTF, Adaptive:
		rank, left := e.memo.rank, e.memo.expect
		if e.state != waiting {
			rank, left = fs.rank(e, now), fs.remaining(e, now)
		}
		if fs.opt.Order == Adaptive && !fs.mayStop(e) && left > fs.opt.DefaultRuntime {
			rank /= cmp.Or(fs.opt.Credit, 1) // instead of multiplying the ranks of all possible victims by Credit
		}
		return powerOf4(rank / (finest * fs.opt.DefaultRuntime.Seconds()))
	}
	return 0
}

// powerOf4 returns the level of x on a scale of powers of 4: 0 below 1, 1 from 1 to below 4, 2 from
// 4 to below 16, and so on.
func powerOf4(x float64) int {
	if x < 1 {
		return 0
	}
	return 1 + int(min(math.Log2(x)/2, orderLevels-2))
}
