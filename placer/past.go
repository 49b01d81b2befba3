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

// pasts is what is known of the run times that are stored, which the order of the
// line goes by, so that the next placer expects what this one does.
type pasts struct {
	due     bool // to be read
	loaded  bool
	lessons int64 // of the line, when they were written last
	at      time.Time
}

// remember does what is due once, or now and then, and that placing does not need:
// it tells the commands the rules, and the line what earlier placers learned.
func (p *Placer) remember(ctx context.Context, now time.Time) {
	if p.rulesDue && p.mayTry(publishingRules, now) {
		err := p.publishRules(ctx)
		p.rulesDue = err != nil
		p.trouble(publishingRules, err)
	}
	if p.past.due && p.mayTry(readingRunTimes, now) {
		p.trouble(readingRunTimes, p.recallPast(ctx))
	}
}

// recallPast gives the line what earlier placers learned, once. What cannot be
// understood is learned anew.
func (p *Placer) recallPast(ctx context.Context) error {
	history, err := store.In(p.nomad).RunTimes().Read(ctx)
	if err != nil {
		if ctx.Err() != nil || !store.Unreadable(err) {
			return err
		}
		p.log.Warn("what was learned of some run times cannot be read, it is learned anew", "error", err)
	}
	p.line.Remember(history)
	p.past = pasts{loaded: true, lessons: p.line.Lessons()}
	return nil
}

// savePast writes what the line has learned since, if it is time.
func (p *Placer) savePast(ctx context.Context, now time.Time, atOnce bool) error {
	lessons := p.line.Lessons()
	if !p.past.loaded || lessons == p.past.lessons || !atOnce && now.Sub(p.past.at) < runTimesEvery {
		return nil
	}
	err := store.In(p.nomad).RunTimes().Write(ctx, p.line.History())
	if err == nil {
		p.past.lessons, p.past.at = lessons, now
	}
	return err
}
