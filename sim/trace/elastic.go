// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Elastic describes which gangs of a trace become elastic, and between which numbers of members.
type Elastic struct {
	Share float64 // share of the gangs with several equal members, from 0 to 1
	// Least and Most are the minimum and maximum number of members, as multiples of the number in
	// the trace.
	Least, Most float64
	Efficiency  float64 // see [Job]
	GPUs        int     // GPUs of the cluster; no gang gets more
}

// Elastic returns the trace with some gangs made elastic, drawn from a seed. Gangs with the same
// name either all become elastic, or none. With its number of members in the trace, an elastic gang
// needs the same GPU time as before.
func (t Trace) Elastic(seed uint64, e Elastic) Trace {
	r := rand.New(rand.NewPCG(seed, 0xe1a5))
	t.Jobs = slices.Clone(t.Jobs)
	named := map[string]bool{}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		per := max(1, j.MemberGPUs)
		members := j.GPUs / per
		elastic, drawn := named[j.Name]
		if !drawn || j.Name == "" {
			elastic = r.Float64() < e.Share
			named[j.Name] = elastic
		}
		if !elastic || j.Groups != nil || j.LeastMembers > 0 || members < 2 || j.GPUs%per != 0 {
			continue
		}
		j.LeastMembers = max(1, int(math.Round(float64(members)*e.Least)))
		most := max(j.LeastMembers, members, min(int(math.Round(float64(members)*e.Most)), e.GPUs/per))
		faster := math.Pow(float64(most)/float64(members), 1+math.Log2(e.Efficiency))
		j.GPUs, j.Efficiency = most*per, e.Efficiency
		j.IterTimeS, j.EstimateS = j.IterTimeS/faster, j.EstimateS/faster
	}
	return t
}
