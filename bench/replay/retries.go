// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/rank"
)

// retries makes plain Nomad place again what gave up. Nomad waits at least 5 s
// before it does, which in compressed time would be many minutes; so it is asked
// to do it at once.
type retries map[string]*retry

type retry struct {
	ended int       // of rank.State, when last looked at
	until time.Time // ask until then: a client reports an end a little later
}

// retryFor is how long a client takes at most to report that a rank has ended.
const retryFor = 2 * time.Second

// push asks for the jobs of which ranks ended a short time ago.
func (rs retries) push(ctx context.Context, nomad *api.Client, now time.Time, states []rank.State) error {
	for _, s := range states {
		r := rs[s.Job]
		if r == nil {
			r = &retry{}
			rs[s.Job] = r
		}
		if s.Ended > r.ended {
			r.ended, r.until = s.Ended, now.Add(retryFor)
		}
		if s.Finished || now.After(r.until) {
			continue
		}
		_, _, err := nomad.Jobs().EvaluateWithOpts(s.Job, api.EvalOptions{ForceReschedule: true}, (&api.WriteOptions{}).WithContext(ctx))
		if err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "404") {
			return fmt.Errorf("have %q placed again: %w", s.Job, err)
		}
	}
	return ctx.Err()
}
