// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// pinsGrace is how long after its beginning a placer lets all pins keep GPUs from
// others: those that its predecessor wrote and had no time to record are among
// them, and by then their members have started.
const pinsGrace = 30 * time.Second

// pinned are the GPUs that the record says the job was given, nil where it says
// nothing. Where members were left out for size, the pins are believed as they
// stand if the job is the one that was committed, and they are as many.
func (r *Record) pinned(job *api.Job, pins rewrite.Pins) []string {
	c := r.Decision.Chosen
	if c == nil || pins.Mode != rewrite.ModeGPU {
		return nil
	}
	if r.MembersOmitted > 0 {
		if all := pins.GPUs(); r.JobModifyIndex == *job.JobModifyIndex && len(all) == r.Decision.Demand {
			return all
		}
		return nil
	}
	var ids []string
	for _, m := range c.Members {
		for _, u := range m.GPUs {
			ids = append(ids, u.ID)
		}
	}
	return ids
}

// distrustPins ends the grace for pins that are not known to be ours.
func (p *Placer) distrustPins(now time.Time) {
	if p.pinsUntil.IsZero() {
		p.pinsUntil = now.Add(pinsGrace)
	}
	if !now.Before(p.pinsUntil) {
		p.state.OnlyOwnPins()
	}
}

// lookWithoutForged brings the view of a survey, which has read all records, to what
// an agent at work believes. What was registered a moment ago may not be recorded
// yet.
func (p *Placer) lookWithoutForged(now time.Time) error {
	for _, t := range p.sorted() {
		if t.Phase == Starting && now.Sub(time.Unix(0, *t.Job.SubmitTime)).Abs() < recordComes {
			p.state.Own(t.Key, t.Pins.GPUs())
		}
	}
	p.state.OnlyOwnPins()
	if err := p.look(now); err != nil {
		return err
	}
	p.track()
	return nil
}
