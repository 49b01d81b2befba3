// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "fmt"

// Policy chooses GPUs for a gang.
type Policy struct {
	Name PolicyName
	// Sample draws k distinct numbers in 0…n-1 for [Random]. The caller seeds it, so
	// that a run can be repeated; nil: the gang's ID is the seed.
	Sample func(n, k int) []int
	// Tight has PAL leave wide gangs more room. Of the nodes whose bin value is at most
	// 1 + Tight times the best (0.1: 10 % more), it takes the one with the fewest free
	// GPUs; a gang that needs several nodes takes as few as hold it at 1 + Tight/2 times
	// the best. 0: the node with most GPUs up to the best bin, and the best GPUs wherever
	// they are, as published.
	Tight float64
	// OutlierThreshold leaves out the GPUs whose PM score for the gang's class is above
	// it; 0: none. Use one value for a cluster, which counts its GPUs again for another.
	OutlierThreshold float64
}

// PolicyName names a placement policy.
type PolicyName string

// The placement policies. Packed, Spread and Random are the baselines.
const (
	PAL     PolicyName = "pal"      // walks the LV matrix (PAL alg. 2)
	PMFirst PolicyName = "pm-first" // lowest bins first, wherever (PAL alg. 1)
	Packed  PolicyName = "packed"   // fewest nodes, blind to variability
	Spread  PolicyName = "spread"   // most nodes, blind to variability
	Random  PolicyName = "random"
)

// ParsePolicy reads a placement policy's name.
func ParsePolicy(s string) (PolicyName, error) {
	switch p := PolicyName(s); p {
	case PAL, PMFirst, Packed, Spread, Random:
		return p, nil
	}
	return "", fmt.Errorf("placement policy %q is unknown (one of pal, pm-first, packed, spread, random)", s)
}
