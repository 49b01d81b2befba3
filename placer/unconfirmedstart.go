// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"errors"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// holdUnconfirmed keeps the GPUs of a start from others where its outcome is not known.
// The gang itself is tried again, on other GPUs if there are any: over the same
// index, so that one of the two comes about at most.
func (p *Placer) holdUnconfirmed(s *start, now time.Time) {
	if !errors.Is(s.err, nomad.ErrUnknownOutcome) {
		return
	}
	p.m.Unconfirmed[s.t.Key] = model.UnconfirmedStart{Index: *s.t.Job.JobModifyIndex, GPUs: model.GPUIDs(p.m.View, s.Placement.GPUs()), Until: now.Add(model.UnconfirmedHold)}
}
