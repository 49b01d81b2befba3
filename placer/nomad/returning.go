// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"time"

	"github.com/hashicorp/nomad/api"
)

// settling is how long a node that is back may take to say what it still runs.
const settling = 30 * time.Second

// Returning are the GPUs of lost allocations on nodes that have just come back,
// by instance id. Such a node, after a hang say, goes on running what it ran
// until its client has been told to stop it, while Nomad counts its GPUs as free
// from the moment it is ready. Once the client reports, the allocation is live or
// has ended, and this ends for its GPUs; a client that has forgotten it never
// reports, so it also ends by time.
func (s *State) Returning(now time.Time) map[string]bool {
	gpus := map[string]bool{}
	for _, a := range s.bad {
		if a.Client != api.AllocClientStatusLost || !s.back(a.Node, now) {
			continue
		}
		for _, id := range s.OwnGPUs(a) {
			gpus[id] = true
		}
	}
	return gpus
}

// back says whether the node has just become ready.
func (s *State) back(node string, now time.Time) bool {
	n := s.Nodes[node]
	return n != nil && n.Status == api.NodeStatusReady && now.Sub(time.Unix(n.StatusUpdatedAt, 0)) < settling
}
