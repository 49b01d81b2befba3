// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// canaries makes room for the canaries of a service whose new version cannot
// start beside the old one within the pins that the old one has. The new
// version has no members yet, so that widening its pins disturbs nobody.
func (p *Placer) canaries(ctx context.Context, t *tracked, now time.Time) error {
	index := *t.Job.JobModifyIndex
	if t.Pins.Mode == rewrite.ModePrefer || t.canariesDone == index || !wantsCanaries(t.Standing) {
		return nil
	}
	if t.canariesLack != index {
		if now.Before(t.retryAt) || t.age(now) < p.cfg.Grace {
			return nil
		}
		blocked, settled, err := p.blocked(ctx, t)
		if err != nil || !settled {
			return err
		}
		if !blocked {
			t.canariesDone = index
			return nil
		}
		t.canariesLack = index
	}
	r, err := p.view.Canaries(t.Job)
	if err != nil || r.Gang.GPUs() == 0 {
		return err
	}
	pl, ok := pal.Place(p.view.Cluster, r.Gang, p.cfg.policy())
	if !ok {
		t.lastFail = noCanaries + pal.Explain(p.view.Cluster, r.Gang, p.cfg.policy()).Reason
		return nil
	}
	pins := t.Pins
	if pins.Mode == rewrite.ModeGPU {
		pins = p.view.HeldPins(t.Job)
	}
	job, err := p.view.Pin(t.Job, p.view.Widen(pins, p.view.Pins(r, pl)))
	if err != nil {
		return err
	}
	p.log.Info("making room for canaries", "job", t.Key.ID, "namespace", t.Key.Namespace, "gpus", r.Gang.GPUs())
	p.view.Take(r.Gang, pl)
	t.lastFail = ""
	t.fail(now, "")
	return p.register(ctx, t, job)
}

// canariesWait is what the canaries of a running service wait for, "" where none
// do: Nomad has tried to place them, and said that it cannot.
func (s *Survey) canariesWait(ctx context.Context, st Standing) (string, error) {
	if st.Phase != Running || !wantsCanaries(st) {
		return "", nil
	}
	blocked, _, err := s.p.blocked(ctx, &tracked{Standing: st})
	if err != nil || !blocked {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.p.view.Canaries(st.Job)
	if err != nil || r.Gang.GPUs() == 0 {
		return "", err
	}
	if _, ok := pal.Place(s.p.view.Cluster, r.Gang, s.p.cfg.policy()); ok {
		if st.Pins.Mode == rewrite.ModePrefer {
			return "the canaries of the new version wait for Nomad to place them", nil
		}
		return "the canaries of the new version wait for the placer to make room for them beside the old one", nil
	}
	return noCanaries + pal.Explain(s.p.view.Cluster, r.Gang, s.p.cfg.policy()).Reason, nil
}

// noCanaries begins the reason for which canaries cannot be placed.
const noCanaries = "no room for the canaries of the new version: "

// wantsCanaries says whether the job is a service that updates by canaries, and
// no member of its present version is there.
func wantsCanaries(st Standing) bool {
	if *st.Job.Type != api.JobTypeService || slices.ContainsFunc(st.Members, func(a *nomad.Alloc) bool { return a.PlacedFor(st.Job) }) {
		return false
	}
	return slices.ContainsFunc(st.Job.TaskGroups, func(g *api.TaskGroup) bool { return nomad.CanariesOf(g) > 0 })
}

// blocked says whether an evaluation of the job as it is now is blocked, and
// whether Nomad has had its last word.
func (p *Placer) blocked(ctx context.Context, t *tracked) (blocked, settled bool, err error) {
	evals, err := p.nomad.Evaluations(ctx, t.Key)
	if err != nil {
		return false, false, err
	}
	for _, e := range evals {
		switch {
		case e.Status == api.EvalStatusPending:
			return false, false, nil
		case e.Status == api.EvalStatusBlocked && e.CreateIndex > *t.Job.JobModifyIndex:
			blocked = true
		}
	}
	return blocked, true, nil
}
