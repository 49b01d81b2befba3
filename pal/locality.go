// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"slices"
)

// Tier is how far apart the GPUs of a gang are: the smallest domain that contains all of these
// GPUs.
type Tier uint8

// The locality tiers, closest first.
const (
	TierIsland     Tier = iota + 1 // one NVLink or NVSwitch island
	TierNUMA                       // one NUMA node
	TierNode                       // one node
	TierRack                       // one rack
	TierDatacenter                 // one datacenter, different racks
	TierCluster                    // different datacenters
)

var tierNames = [...]string{"", "island", "numa", "node", "rack", "datacenter", "cluster"}

func (t Tier) String() string {
	if int(t) < len(tierNames) {
		return tierNames[t]
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// MarshalText writes the tier's name.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (t *Tier) UnmarshalText(b []byte) error {
	p, err := ParseTier(string(b))
	*t = p
	return err
}

// ParseTier reads a tier's name; "" gives 0, which is no tier.
func ParseTier(s string) (Tier, error) {
	i := slices.Index(tierNames[:], s)
	if i >= 0 {
		return Tier(i), nil
	}
	return 0, fmt.Errorf("locality tier %q is unknown; it must be one of island, numa, node, rack, datacenter, cluster", s)
}

// Locality is the slowdown of a gang per tier and application class: 1.0 means no slowdown.
// Unused tiers are 0; TierCluster is always used. PAL's evaluation has two tiers and one penalty
// for all classes (see [TwoTier]).
type Locality [TierCluster + 1][NumClasses]float64

// DefaultPenalty is the locality penalty across nodes in PAL's evaluation.
const DefaultPenalty = 1.7

// TwoTier returns PAL's locality: no penalty within a node, and the given penalty across nodes.
func TwoTier(across float64) Locality {
	var l Locality
	for c := range NumClasses {
		l[TierNode][c], l[TierCluster][c] = 1, across
	}
	return l
}

// Tiers returns the tiers in use, closest first.
func (l Locality) Tiers() []Tier {
	var ts []Tier
	for t := TierIsland; t <= TierCluster; t++ {
		if l.uses(t) {
			ts = append(ts, t)
		}
	}
	return ts
}

func (l Locality) uses(t Tier) bool { return l[t][0] != 0 }

// penalty returns the penalty of the tier or, if the tier is not in use, of the next wider tier in
// use.
func (l Locality) penalty(t Tier, class int) float64 {
	for !l.uses(t) {
		t++
	}
	return l[t][class]
}

// Validate checks that penalties are at least 1 and never fall as the distance grows.
func (l Locality) Validate() error {
	if !l.uses(TierCluster) {
		return fmt.Errorf("locality: tier %s has no penalty", TierCluster)
	}
	for c, class := range AppClasses() {
		last := 1.0
		for _, t := range l.Tiers() {
			p := l[t][c]
			if !(p >= last) { // also refuses NaN
				return fmt.Errorf("locality: penalty %v of tier %s for class %s is below %v, the penalty of a closer tier", p, t, class, last)
			}
			last = p
		}
	}
	return nil
}
