// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"time"
)

// A profile in force is stored for the nodes and the commands, and for the placer
// that comes next. Whether that works says nothing about placing: where it does not,
// the placer goes on with the profile and tries again.
const (
	storeAgain = 10 * time.Second
	storeMost  = 10 * time.Minute
)

// storing is when the profile in force is to be stored; the zero value: it is.
type storing struct {
	due   time.Time
	tries int
}

// next is when it is tried again after it failed.
func (s storing) next(now time.Time) storing {
	return storing{due: now.Add(min(storeAgain<<min(s.tries, 10), storeMost)), tries: s.tries + 1}
}

func (s storing) isDue(now time.Time) bool { return !s.due.IsZero() && !now.Before(s.due) }

// storeProfile stores the profile if that is due. The error is that of ctx.
func (p *Placer) storeProfile(ctx context.Context, now time.Time) error {
	if !p.storing.isDue(now) || p.profile == nil {
		return nil
	}
	err := p.nomad.WriteProfile(ctx, p.profile)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		p.storing = p.storing.next(now)
		p.log.Warn("the profile in force cannot be stored", "version", p.profile.Version, "error", err, "retry_in", p.storing.due.Sub(now))
		return nil
	}
	p.storing = storing{}
	return nil
}
