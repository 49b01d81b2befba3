// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"slices"
)

// Explain is [Place] with its reasons: what was to choose from, the entries of
// the LV matrix that were walked, what was chosen and what packed placement
// would have chosen; or why the gang does not fit.
func Explain(c *Cluster, g Gang, p Policy) Decision {
	d := Decision{Gang: g.ID, Class: g.Class, Policy: string(p.Name), Demand: g.GPUs(), Candidates: candidates(c, g)}
	pl, s := place(c, g, p)
	if s == nil {
		d.Impossible, d.Reason = whyNot(c, g, d.Candidates)
		s = newSearch(c, g, p, modelsFor(c, g)[0])
		if p.Name == PAL && g.GPUs() > 0 {
			s.walk()
		}
		d.Walk = s.entries()
		return d
	}
	d.Placed = true
	d.Chosen = Describe(c, g, pl)
	d.Walk = s.entries()
	if packed, ok := Place(c, g, Policy{Name: Packed}); ok {
		d.Packed = Describe(c, g, packed)
	}
	return d
}

// Describe names what a placement holds.
func Describe(c *Cluster, g Gang, pl Placement) *Choice {
	ch := &Choice{Tier: pl.Tier, PMScore: pl.PMScore, Penalty: pl.Penalty, Cost: pl.Cost()}
	k := g.Class.Index()
	nodes := map[int32]bool{}
	for _, m := range pl.Members {
		gs := c.groups[m.Group]
		n := &c.nodes[gs.node]
		nodes[gs.node] = true
		cm := ChosenMember{Group: g.Shapes[m.Shape].Name, Node: n.Name, NodeID: n.ID, Device: c.models[gs.model].name}
		for _, u := range m.GPUs {
			cm.GPUs = append(cm.GPUs, ChosenGPU{c.gpus[u].ID, c.gpus[u].Scores[k], c.gpus[u].Classes[k]})
		}
		ch.Members = append(ch.Members, cm)
	}
	ch.Nodes = len(nodes)
	return ch
}

// entries are the walked entries with the GPUs that each had to choose from.
func (s *search) entries() []Entry {
	free := s.freeUpTo()
	for i := range s.walked {
		e := &s.walked[i]
		if v, ok := slices.BinarySearch(s.values, e.Bin); ok {
			e.Free = free[v]
		}
	}
	return s.walked
}

// freeUpTo counts, for each bin value, the available GPUs up to it that may
// serve some shape.
func (s *search) freeUpTo() []int {
	free := make([]int, len(s.values))
	for _, g := range s.openGroups() {
		to := s.toValue[s.c.groups[g].model]
		if len(to) == 0 || !slices.ContainsFunc(s.g.Shapes, func(sh Shape) bool { return sh.Eligible == nil || sh.Eligible[g] }) {
			continue
		}
		counts, b, n := s.counts(g), 0, 0
		for v := range free {
			for ; b < len(counts) && to[b] <= v; b++ {
				n = int(counts[b])
			}
			free[v] += n
		}
	}
	return free
}

func eligibleForAny(g Gang, group int32) bool {
	for _, sh := range g.Shapes {
		if sh.Eligible == nil || sh.Eligible[group] {
			return true
		}
	}
	return false
}

func candidates(c *Cluster, g Gang) Candidates {
	n := Candidates{Total: len(c.gpus)}
	for gi := range c.groups {
		gs := &c.groups[gi]
		if gs.n == 0 {
			continue
		}
		counts := c.upTo[0][gs.counts[0]:][:len(c.models[gs.model].values[0])]
		switch {
		case !eligibleForAny(g, int32(gi)):
			n.Ineligible += int(gs.n)
		case gs.ill == 0:
			free := int(counts[len(counts)-1])
			n.Free += free
			n.Busy += int(gs.n) - free
		default:
			n.add(c.gpus[gs.first : gs.first+gs.n])
		}
	}
	return n
}

// add counts GPUs that the gang could use.
func (n *Candidates) add(gpus []gpuState) {
	for i := range gpus {
		switch u := &gpus[i]; {
		case u.Unhealthy:
			n.Unhealthy++
		case u.Quarantined:
			n.Quarantined++
		case u.taken:
			n.Busy++
		default:
			n.Free++
		}
	}
}

// whyNot is the one dominant reason.
func whyNot(c *Cluster, g Gang, n Candidates) (impossible bool, reason string) {
	match := n.Total - n.Ineligible
	demand := g.GPUs()
	switch {
	case demand == 0:
		return true, "the job asks for no GPUs"
	case match < demand:
		return true, fmt.Sprintf("needs %d GPUs, the cluster has %d that match", demand, match)
	case tooWide(c, g) != "":
		return true, tooWide(c, g)
	case n.Free < demand:
		return false, fmt.Sprintf("needs %d GPUs, %d of the %d that match are free (%d busy, %d unhealthy, %d quarantined)", demand, n.Free, match, n.Busy, n.Unhealthy, n.Quarantined)
	case g.MaxTier != 0:
		return false, fmt.Sprintf("needs %d GPUs within one %s; %d that match are free, but not so close together", demand, g.MaxTier, n.Free)
	}
	return false, fmt.Sprintf("needs %d GPUs, %d that match are free, but their nodes lack GPUs side by side, CPU, memory or disk for it", demand, n.Free)
}

// tooWide says which shape would not fit even an idle, healthy cluster, as far
// as GPUs go; "" if all would.
func tooWide(c *Cluster, g Gang) string {
	for _, sh := range g.Shapes {
		room := make([]int, len(c.models))
		for gi, gs := range c.groups {
			if sh.GPUs > 0 && (sh.Eligible == nil || sh.Eligible[gi]) {
				room[gs.model] += int(gs.n) / sh.GPUs
			}
		}
		if most := slices.Max(room); most < sh.Members {
			return fmt.Sprintf("group %q needs %d × %d GPUs of one model, each %d on one node; an idle cluster has room for %d", sh.Name, sh.Members, sh.GPUs, sh.GPUs, most)
		}
	}
	return ""
}
