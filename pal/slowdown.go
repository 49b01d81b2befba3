// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"cmp"
	"math"
	"slices"
)

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
	return layout{c, &g, members}.placement()
}

// layout is the members of a gang on the GPUs of a cluster.
type layout struct {
	c       *Cluster
	g       *Gang
	members []Member
}

// placement computes the tier, the PM score and the penalty of the members. The raw PM score is
// used, because bins serve only to choose GPUs (PAL §3.3).
func (l layout) placement() Placement {
	k := l.g.class()
	p := Placement{Members: l.members, Tier: l.reach(), Speed: l.speed(), Model: l.model()}
	for _, m := range l.members {
		p.Amount += l.c.Amount(m.GPUs...)
		for _, u := range m.GPUs {
			p.PMScore = max(p.PMScore, cmp.Or(l.c.gpus[u].Scores[k], 1))
		}
	}
	p.Penalty = l.c.locality[p.Tier][k]
	return p
}

// reach returns the tier over which members communicate. Replicas do not communicate with each
// other, so reach returns the widest tier within one replica.
func (l layout) reach() (t Tier) {
	if !l.g.Replicas {
		return l.tier()
	}
	for i := range l.members {
		t = max(t, layout{l.c, l.g, l.members[i : i+1]}.tier())
	}
	return t
}

// tier returns the smallest tier in use that holds all members. An unknown island or NUMA node
// counts as different from all others, even from other unknown ones.
func (l layout) tier() Tier {
	c := l.c
	first := c.gpus[l.members[0].GPUs[0]]
	at := &c.nodes[c.groups[first.group].node].at
	same := [TierCluster + 1]bool{TierIsland: first.Island != 0, TierNUMA: first.NUMA != 0, TierNode: true, TierRack: true, TierDatacenter: true, TierCluster: true}
	for _, m := range l.members {
		node := &c.nodes[c.groups[m.Group].node]
		for t := TierNode; t <= TierDatacenter; t++ {
			same[t] = same[t] && node.at[t] == at[t]
		}
		for _, u := range m.GPUs {
			same[TierIsland] = same[TierIsland] && c.gpus[u].Island == first.Island
			same[TierNUMA] = same[TierNUMA] && c.gpus[u].NUMA == first.NUMA
		}
	}
	// Islands and NUMA nodes are numbered per node: island 1 of one node is not island 1 of another
	// node.
	same[TierIsland] = same[TierIsland] && same[TierNode]
	same[TierNUMA] = same[TierNUMA] && same[TierNode]
	t := TierIsland
	for t < TierCluster && !(same[t] && c.locality.uses(t)) {
		t++
	}
	return t
}

// modelOf returns the name of a member's GPU model.
func (l layout) modelOf(m Member) string { return l.c.models[l.c.groups[m.Group].model].name }

// model returns the model of all members; "" if the members have different models.
func (l layout) model() string {
	other := func(m Member) bool { return l.modelOf(m) != l.modelOf(l.members[0]) }
	if len(l.members) == 0 || slices.ContainsFunc(l.members, other) {
		return ""
	}
	return l.modelOf(l.members[0])
}

// speed returns the speed on the slowest model that the members use; 0 if none is known.
func (l layout) speed() float64 {
	if len(l.g.Speeds) == 0 || len(l.members) == 0 {
		return 0
	}
	slowest := math.Inf(1)
	for _, m := range l.members {
		slowest = min(slowest, l.g.Speeds.On(l.modelOf(m)))
	}
	return slowest
}

// crowd returns the number of pairs of replicas of one set that share a node. For gangs without
// replicas, it returns 0.
func (l layout) crowd() (pairs int) {
	if !l.g.Replicas {
		return 0
	}
	type at struct{ set, node int }
	on := map[at]int{}
	for _, m := range l.members {
		k := at{m.MemberSet, int(l.c.groups[m.Group].node)}
		pairs += on[k]
		on[k]++
	}
	return pairs
}
