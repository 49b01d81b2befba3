// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"errors"
	"maps"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// unconfirmedHold is how long the GPUs of a start are kept from others whose outcome is
// not known: longer than Nomad's servers work on a request.
const unconfirmedHold = time.Minute

// unconfirmedStart are the GPUs of such a start: the job may be pinned to them yet.
type unconfirmedStart struct {
	index uint64 // JobModifyIndex of the job that it was to replace
	gpus  []string
	until time.Time
}

// holdUnconfirmed keeps the GPUs of a start from others where its outcome is not known.
// The gang itself is tried again, on other GPUs if there are any: over the same
// index, so that one of the two comes about at most.
func (p *Placer) holdUnconfirmed(s *start, now time.Time) {
	if !errors.Is(s.err, nomad.ErrUnknownOutcome) {
		return
	}
	p.unconfirmed[s.t.Key] = unconfirmedStart{index: *s.t.Job.JobModifyIndex, gpus: gpuIDs(p.view, s.Placement.GPUs()), until: now.Add(unconfirmedHold)}
}

// releaseUnconfirmed ends that when the job has changed since: then what was not answered
// has come about, and the job's pins hold the GPUs, or it cannot any more.
func (p *Placer) releaseUnconfirmed(job *api.Job) {
	k := nomad.KeyOf(job)
	if l, ok := p.unconfirmed[k]; ok && *job.JobModifyIndex != l.index {
		delete(p.unconfirmed, k)
	}
}

// heldGPUs are GPUs that were given out and that neither an allocation nor a pin
// holds, by job.
func (p *Placer) heldGPUs(now time.Time) map[nomad.JobKey][]string {
	maps.DeleteFunc(p.unconfirmed, func(_ nomad.JobKey, l unconfirmedStart) bool { return !now.Before(l.until) })
	held := map[nomad.JobKey][]string{}
	for k, t := range p.jobs {
		if len(t.Held) > 0 {
			held[k] = t.Held
		}
	}
	for k, l := range p.unconfirmed {
		if len(held[k]) == 0 {
			held[k] = l.gpus
		}
	}
	return held
}
