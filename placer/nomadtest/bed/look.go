// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"context"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Picture is how the active placer sees things now: the one that began last, of several. It is nil
// if none is active, or has seen anything yet.
func (w *World) Picture() *query.Snapshot {
	for _, p := range slices.Backward(w.placers) {
		select {
		case <-p.done:
			continue
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if s, err := p.PictureSince(ctx, time.Now()); err == nil {
			return s
		}
		return p.Picture() // it waits for Nomad
	}
	return nil
}
