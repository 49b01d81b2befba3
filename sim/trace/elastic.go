// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"math/rand/v2"
	"slices"
)

// Elastic returns the trace with a share of the gangs made elastic, drawn from a seed, for a
// cluster with the given number of GPUs. An elastic gang runs with half to twice the members that
// it has in the trace; twice as many members run twice as fast. Gangs with the same name either all
// become elastic, or none.
func (t Trace) Elastic(seed uint64, share float64, gpus int) Trace {
	r := rand.New(rand.NewPCG(seed, 0xe1a5))
	t.Jobs = slices.Clone(t.Jobs)
	named := map[string]bool{}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		per := max(1, j.MemberGPUs)
		members := j.GPUs / per
		elastic, drawn := named[j.Name]
		if !drawn || j.Name == "" {
			elastic = r.Float64() < share
			named[j.Name] = elastic
		}
		if !elastic || j.Groups != nil || j.LeastMembers > 0 || members < 2 || j.GPUs%per != 0 {
			continue
		}
		j.LeastMembers = (members + 1) / 2
		most := max(members, min(2*members, gpus/per))
		faster := float64(most) / float64(members)
		j.GPUs, j.IterTimeS, j.EstimateS = most*per, j.IterTimeS/faster, j.EstimateS/faster
	}
	return t
}
