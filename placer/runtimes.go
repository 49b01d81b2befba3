// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// runTimesEvery is the shortest time between two writes of the run times.
const runTimesEvery = time.Minute

// runTimesFile keeps track of the stored run times. The next placer reads the stored run times, so
// that its queue has the same order.
type runTimesFile struct {
	due     bool // must be read
	loaded  bool
	lessons int64 // the queue's lessons at the latest write
	at      time.Time
}

// restoreLearned gives the queue, once, the run times and the usage that earlier placers stored.
func (p *Placer) restoreLearned(ctx context.Context, now time.Time) {
	kept := store.In(p.nomad)
	if p.usage.due {
		if was, ok := readOnce(ctx, p, now, readingUsage, kept.Usage().Read); ok {
			p.usage = usageFile{loaded: true, at: now}
			p.takeUsage(was, now)
		}
	}
	if p.runTimesFile.due {
		if stored, ok := readOnce(ctx, p, now, readingRunTimes, kept.RunTimes().Read); ok {
			p.m.Queue.Remember(stored)
			p.runTimesFile = runTimesFile{loaded: true, lessons: p.m.Queue.Lessons()}
		}
	}
}

// readOnce reads data that earlier placers stored. ok is false until a read has succeeded. If data
// cannot be parsed, readOnce treats the data as missing, and the placer learns it again.
func readOnce[T any](ctx context.Context, p *Placer, now time.Time, what string, read func(context.Context) (T, error)) (kept T, ok bool) {
	if p.backsOff(what, now) {
		return kept, false
	}
	kept, err := read(ctx)
	if store.Unreadable(err) {
		p.log.Warn("cannot read some stored data; continuing without this data: "+what, "error", err)
		err = nil
	}
	p.report(what, err)
	return kept, err == nil
}

// runTimesDue returns the write that stores the run times, if this write is due.
func (p *journal) runTimesDue(now time.Time) *dueWrite {
	if now.Sub(p.runTimesFile.at) < runTimesEvery || p.backsOff(recordingRunTimes, now) {
		return nil
	}
	return p.runTimes(now)
}

// runTimes returns the write that stores the run times that the queue has learned, or nil if there
// are no new run times.
func (p *journal) runTimes(now time.Time) *dueWrite {
	lessons := p.m.Queue.Lessons()
	if !p.runTimesFile.loaded || lessons == p.runTimesFile.lessons {
		return nil
	}
	stored := p.m.Queue.RunTimes()
	return &dueWrite{
		what:  recordingRunTimes,
		write: func(ctx context.Context) error { return store.In(p.nomad).RunTimes().Write(ctx, stored) },
		then: func(err error) {
			if err == nil {
				p.runTimesFile.lessons, p.runTimesFile.at = lessons, now
			}
		},
	}
}

// Fair share depends on the GPU time that each namespace has used. The placer stores this time,
// which is called usage, in one variable. So the next placer can continue with the stored usage.

// usageEvery is the shortest time between two writes of the usage. If a gang ends while no placer
// runs, its GPU time since the last write is not counted. If a gang still runs when a placer
// starts, all its GPU time is counted.
const usageEvery = 5 * time.Minute

// usageFile keeps track of the variable with the usage.
type usageFile struct {
	due    bool // must be read
	loaded bool
	at     time.Time // when the usage was last written or read
	gpuS   float64   // the GPU seconds that were last written
}

// takeUsage gives the queue the stored usage. The time of the stored usage can be in the future,
// because the clocks of agents may differ.
func (p *journal) takeUsage(kept store.Value[store.Usage], now time.Time) {
	if !kept.There {
		return
	}
	p.m.Queue.RememberUsage(gang.QueueTime(earliest(kept.Of.At, now)), kept.Of.Usage)
}

// usageDue returns the write that stores the usage, if this write is due.
func (p *journal) usageDue(now time.Time) *dueWrite {
	if now.Sub(p.usage.at) < usageEvery || p.backsOff(recordingUsage, now) {
		return nil
	}
	return p.usageNow(now)
}

// usageNow returns the write that stores the usage. If the usage has not grown, usageNow returns
// nil.
func (p *journal) usageNow(now time.Time) *dueWrite {
	if !p.usage.loaded || p.m.Cfg.Queue.HalfLife == 0 {
		return nil
	}
	usage, gpuS := p.m.Queue.Usage(gang.QueueTime(now)), 0.0
	for _, u := range usage {
		gpuS += u.GPUSeconds
	}
	halves := now.Sub(p.usage.at).Seconds() / p.m.Cfg.Queue.HalfLife.Seconds()
	if gpuS <= p.usage.gpuS*math.Exp2(-halves)+1 { // no GPU time was used since the last write
		return nil
	}
	slices.SortStableFunc(usage, func(a, b queue.Usage) int { return cmp.Compare(b.GPUSeconds, a.GPUSeconds) })
	return &dueWrite{
		what: recordingUsage,
		write: func(ctx context.Context) error {
			return store.In(p.nomad).Usage().Write(ctx, store.Usage{At: now, Usage: usage})
		},
		then: func(err error) {
			if err == nil {
				p.usage.gpuS, p.usage.at = gpuS, now
			}
		},
	}
}
