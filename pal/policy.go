// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "fmt"

// Policy chooses GPUs for a gang.
type Policy struct {
	Name PolicyName
	// Sample draws k of n for [Random]: distinct numbers in 0…n-1. It must be
	// deterministic; the caller seeds it. nil: drawn by the gang's id.
	Sample func(n, k int) []int
	// Tight lets PAL leave wide gangs more room: of the nodes whose GPUs cost at
	// most so much more than the best, as a part, the gang takes the one with the
	// fewest free GPUs; 0: the one with most that cost least, as published.
	Tight float64
	// OutlierThreshold leaves out the GPUs whose PM score for the gang's class is above it;
	// 0: none is. Use one value for a cluster: it is counted once for each.
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
