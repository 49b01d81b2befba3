// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"context"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Picture returns the latest snapshot of the active placer. If several placers are active, Picture
// uses the placer that started last. Picture returns nil if no placer is active, or if the placer
// has not published a snapshot yet.
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
		return p.Picture() // the placer is waiting for Nomad
	}
	return nil
}
