// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/store"
)

// runTimesEvery is how often run times are written at most while the placer works.
const runTimesEvery = time.Minute

// runHistory is what is known of the run times that are stored, which the order of the
// queue goes by, so that the next placer expects what this one does.
type runHistory struct {
	due     bool // to be read
	loaded  bool
	lessons int64 // of the queue, when they were written last
	at      time.Time
}

// restoreLearned tells the queue, once, what earlier placers learned and counted.
func (p *Placer) restoreLearned(ctx context.Context, now time.Time) {
	p.readUsage(ctx, now)
	if p.runHistory.due && !p.backsOff(readingRunTimes, now) {
		p.report(readingRunTimes, p.readRunHistory(ctx))
	}
}

// readRunHistory gives the queue what earlier placers learned, once. What cannot be
// understood is learned again.
func (p *Placer) readRunHistory(ctx context.Context) error {
	history, err := store.In(p.nomad).RunTimes().Read(ctx)
	if err != nil {
		if ctx.Err() != nil || !store.Unreadable(err) {
			return err
		}
		p.log.Warn("cannot read some learned run times; learning them again", "error", err)
	}
	p.m.Queue.Remember(history)
	p.runHistory = runHistory{loaded: true, lessons: p.m.Queue.Lessons()}
	return nil
}

// runTimesDue writes what the queue has learned since, if it is time.
func (p *Placer) runTimesDue(now time.Time) *entry {
	if now.Sub(p.runHistory.at) < runTimesEvery || p.backsOff(recordingRunTimes, now) {
		return nil
	}
	return p.runTimes(now)
}

// runTimes writes what the queue has learned since.
func (p *Placer) runTimes(now time.Time) *entry {
	lessons := p.m.Queue.Lessons()
	if !p.runHistory.loaded || lessons == p.runHistory.lessons {
		return nil
	}
	history := p.m.Queue.History()
	return &entry{
		what:  recordingRunTimes,
		write: func(ctx context.Context) error { return store.In(p.nomad).RunTimes().Write(ctx, history) },
		then: func(err error) {
			if err == nil {
				p.runHistory.lessons, p.runHistory.at = lessons, now
			}
		},
	}
}
