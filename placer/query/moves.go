// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// Move is a gang that would run faster on other GPUs.
type Move struct {
	Namespace string      `json:"namespace"` // the job's namespace
	Job       string      `json:"job"`       // the job's id
	From      *pal.Choice `json:"from"`      // the gang's current GPUs
	To        *pal.Choice `json:"to"`        // the GPUs that the gang would get
}

// Moves returns the moves that the queue would make now if migration were on.
func (s *Snapshot) Moves() []Move {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, moves := s.m.View.Cluster.Clone(), []Move{}
	for _, a := range s.m.Queue.Migrating().Decide(gang.QueueTime(s.m.Time), c) {
		if t := s.m.ByID(a.Job); a.Kind == queue.Migrate && t != nil {
			g := t.Request.Gang
			moves = append(moves, Move{
				Namespace: t.Key.Namespace, Job: t.Key.ID,
				From: pal.Describe(c, g, s.m.At(t)), To: pal.Describe(c, g, a.Placement),
			})
		}
	}
	return moves
}
