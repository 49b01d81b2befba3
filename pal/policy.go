// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"strings"
)

// Policy chooses GPUs for a gang.
type Policy struct {
	Name PolicyName
	// Sample draws k distinct numbers in 0…n-1 for [Random]. The caller seeds Sample, so that a run
	// is repeatable. If Sample is nil, the seed is the gang's ID.
	Sample func(n, k int) []int
	// RoomForWide makes PAL leave more room for wide gangs. PAL considers the nodes whose bin value
	// is at most (1 + RoomForWide) × the best value, and chooses the node with the fewest free
	// GPUs. For example, 0.1 accepts bin values up to 10 % above the best. A gang that needs
	// several nodes gets as few nodes as possible, with bin values up to (1 + RoomForWide/2) × the
	// best value. If RoomForWide is 0, PAL works as published. Among the nodes that can hold the
	// gang with the lowest bin, PAL then chooses the node with the most GPUs up to this bin. As
	// published, PAL gives a gang that needs several nodes the GPUs with the lowest bins, wherever
	// they are.
	RoomForWide float64
	// OutlierThreshold excludes the GPUs whose PM score for the gang's class is above this value. 0
	// excludes no GPU. Use one value per cluster, because each change of the value costs a new
	// count of the GPUs.
	OutlierThreshold float64
	// RefuseBad leaves a part of a GPU free if the gang would do less work on this part than its
	// neighbours would lose. See [Sharing].
	RefuseBad bool
}

// PolicyName names a placement policy.
type PolicyName string

// The placement policies. Packed, Spread and Random are the baselines.
const (
	PAL     PolicyName = "pal"      // walks the L×V matrix (PAL alg. 2)
	PMFirst PolicyName = "pm-first" // lowest bins first, wherever they are (PAL alg. 1)
	Packed  PolicyName = "packed"   // fewest nodes; ignores variability
	Spread  PolicyName = "spread"   // most nodes; ignores variability
	Random  PolicyName = "random"
)

// Policies returns the placement policies.
func Policies() []PolicyName { return []PolicyName{PAL, PMFirst, Packed, Spread, Random} }

// ParsePolicy reads a placement policy's name.
func ParsePolicy(s string) (PolicyName, error) {
	return ParseName("placement policy", s, Policies()...)
}

// ParseName returns the name in `all` that equals s. The error lists all names, and contains
// `what`, which says what kind of name s is.
func ParseName[T ~string](what, s string, all ...T) (T, error) {
	var names []string
	for _, n := range all {
		if s == string(n) {
			return n, nil
		}
		names = append(names, string(n))
	}
	return "", fmt.Errorf("%s %q is unknown; it must be one of %s", what, s, strings.Join(names, ", "))
}
