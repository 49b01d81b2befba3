// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"context"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// canariesWait is what the canaries of a running service wait for, "" where none
// do: Nomad has tried to place them, and said that it cannot.
func (s *Snapshot) canariesWait(ctx context.Context, st gang.Observed) (string, error) {
	if st.Nomad != gang.Running || !gang.WantsCanaries(st) {
		return "", nil
	}
	evals, err := s.nomad.Evaluations(ctx, st.Key)
	if err != nil {
		return "", err
	}
	if blocked, _ := gang.Blocked(st.Job, evals); !blocked {
		return "", nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.m.View.Canaries(st.Job)
	if err != nil || r.Gang.GPUs() == 0 {
		return "", err
	}
	if _, ok := pal.Place(s.m.View.Cluster, r.Gang, s.m.Cfg.Policy()); ok {
		if st.Pins.Mode == rewrite.ModePrefer {
			return "the canaries of the new version wait for Nomad to place them", nil
		}
		return "the canaries of the new version wait for the placer to make room for them beside the old one", nil
	}
	return gang.NoCanaries + pal.Explain(s.m.View.Cluster, r.Gang, s.m.Cfg.Policy()).Reason, nil
}
