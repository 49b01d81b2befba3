// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "cmp"

// Cost returns the predicted slowdown: the PM score of the slowest member × the locality penalty
// (PAL eq. 1). If the speed of the gang on the GPU model is known, the product is divided by this
// speed. At cost 1, a gang runs as fast as on the median GPU of its fastest model.
func (p Placement) Cost() float64 {
	cost := float64(p.PMScore) * p.Penalty
	if p.Speed > 0 {
		cost /= p.Speed
	}
	return cost
}

// Predict returns the placement of the gang's members on the given GPUs. It computes the
// placement's tier, PM score and penalty.
func Predict(c *Cluster, g Gang, members []Member) Placement {
	return newSearch(c, g, Policy{}, anyModel).predict(members)
}

// predict computes tier, PM score and penalty of chosen members. The raw PM score is used, because
// bins serve only to choose GPUs (PAL §3.3).
func (s *search) predict(members []Member) Placement {
	p := Placement{Members: members, Tier: s.reach(members)}
	for _, m := range members {
		p.Amount += s.c.Amount(m.GPUs...)
		for _, u := range m.GPUs {
			p.PMScore = max(p.PMScore, cmp.Or(s.c.gpus[u].Scores[s.k], 1))
		}
	}
	p.Penalty, p.Speed, p.Model = s.c.locality[p.Tier][s.k], s.speed(members), s.modelOf(members)
	return p
}

// reach returns the tier over which members communicate. Replicas do not communicate with each
// other, so reach returns the widest tier within one replica.
func (s *search) reach(members []Member) (t Tier) {
	if !s.g.Replicas {
		return s.tier(members)
	}
	for i := range members {
		t = max(t, s.tier(members[i:i+1]))
	}
	return t
}
