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

// remember does what is due once, or now and then, and that placing does not need:
// it publishes the effective configuration, and tells the queue what earlier
// placers learned and counted.
func (p *Placer) remember(ctx context.Context, now time.Time) {
	if p.configDue && p.mayTry(publishingConfig, now) {
		err := p.publishEffectiveConfig(ctx)
		p.configDue = err != nil
		p.trouble(publishingConfig, err)
	}
	p.recallUsage(ctx, now)
	if p.runHistory.due && p.mayTry(readingRunTimes, now) {
		p.trouble(readingRunTimes, p.readRunHistory(ctx))
	}
}

// readRunHistory gives the queue what earlier placers learned, once. What cannot be
// understood is learned anew.
func (p *Placer) readRunHistory(ctx context.Context) error {
	history, err := store.In(p.nomad).RunTimes().Read(ctx)
	if err != nil {
		if ctx.Err() != nil || !store.Unreadable(err) {
			return err
		}
		p.log.Warn("cannot read some learned run times; learning them anew", "error", err)
	}
	p.queue.Remember(history)
	p.runHistory = runHistory{loaded: true, lessons: p.queue.Lessons()}
	return nil
}

// saveRunHistory writes what the queue has learned since, if it is time.
func (p *Placer) saveRunHistory(ctx context.Context, now time.Time, atOnce bool) error {
	lessons := p.queue.Lessons()
	if !p.runHistory.loaded || lessons == p.runHistory.lessons || !atOnce && now.Sub(p.runHistory.at) < runTimesEvery {
		return nil
	}
	err := store.In(p.nomad).RunTimes().Write(ctx, p.queue.History())
	if err == nil {
		p.runHistory.lessons, p.runHistory.at = lessons, now
	}
	return err
}
