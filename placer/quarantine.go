// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// LiftQuarantine ends the quarantine of GPUs, of all where none are named, and
// returns them by id. A GPU that is not in quarantine is an error, and nothing
// is lifted then. Agents at work take notice within quarantineReread.
func LiftQuarantine(ctx context.Context, c *nomad.Client, gpus ...string) ([]string, error) {
	kept := store.In(c).Quarantine()
	is, err := kept.Read(ctx)
	if err != nil || len(gpus) == 0 && len(failure.Out(is.Of, time.Now())) == 0 {
		return nil, err
	}
	var lifted []string
	_, err = kept.Change(ctx, is, func(is store.Value[map[string]failure.Quarantine]) (map[string]failure.Quarantine, error) {
		h, err := failureHistory{quarantine: is.Of}, error(nil)
		lifted, err = h.lift(gpus, time.Now())
		return h.quarantine, err
	})
	return lifted, err
}

func (h *failureHistory) lift(gpus []string, now time.Time) ([]string, error) {
	in := failure.Out(h.quarantine, now)
	if len(gpus) == 0 {
		gpus = slices.Collect(maps.Keys(in))
	}
	gpus = slices.Compact(slices.Sorted(slices.Values(gpus)))
	for _, id := range gpus {
		if !in[id] {
			return nil, fmt.Errorf("GPU %q is not in quarantine", id)
		}
	}
	for _, id := range gpus {
		h.quarantine[id] = failure.Quarantine{Lifted: now.UTC()}
	}
	return gpus, nil
}
