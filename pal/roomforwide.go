// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "math"

// trail says what PAL tried before it chose GPUs.
type trail struct {
	walked  int // entries of the L×V matrix
	roomier roomier
}

// roomier contains the bin that PAL as published would have used, for each tier in which
// [Policy.RoomForWide] chose GPUs. The value is that of the lowest bin at which PAL could have
// taken a domain. For other tiers, it contains +Inf.
type roomier [TierCluster + 1]PMScore

func nowhere() (r roomier) {
	for t := range r {
		r[t] = PMScore(math.Inf(1))
	}
	return r
}

// inFewNodes places the gang on as few nodes of the domain as possible, if this costs only a little
// more than the best bin. The limit on the extra cost is half of the limit for a gang on one node:
// see tightest.
func (w *walk) inFewNodes(d domain) domain {
	s := w.s
	if s.p.RoomForWide == 0 || d.v == len(s.values) {
		return d
	}
	worst := d.v
	chosen := s.fromSlots(d.groups, w.littleMore(d.v, s.p.RoomForWide/2), func(all []binSlots, need int) []binSlots {
		kept := s.fewestNodes(all, need)
		for i := range kept {
			worst = max(worst, int(kept[i].v))
		}
		return kept
	})
	if chosen == nil { // the gang's member sets compete for the GPUs
		return d
	}
	s.trail.roomier[d.tier] = s.values[d.v]
	d.chosen, d.v = chosen, worst
	return d
}

// littleMore returns the highest bin whose value is at most (1 + more) × the value of bin v.
func (w *walk) littleMore(v int, more float64) int {
	s := w.s
	limit := v
	for limit+1 < len(s.values) && float64(s.values[limit+1]) <= (1+more)*float64(s.values[v]) {
		limit++
	}
	return limit
}

// tightest chooses the node with the fewest free GPUs among the nodes on which the gang costs only
// a little more than on the best node. So empty nodes stay free for gangs that need a whole node.
func (w *walk) tightest(best domain) domain {
	s := w.s
	limit, fewest := w.littleMore(best.v, s.p.RoomForWide), s.free(best.group)
	for _, g := range s.groups() {
		n := s.free(g)
		if n < s.n || n >= fewest {
			continue
		}
		v, free := s.lowestBin(g)
		if v <= limit && s.eligibleForAll(g) && s.holdsAll(g) {
			best, fewest = domain{v: v, free: free, group: g, tier: TierNode}, n
		}
	}
	return best
}
