// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"github.com/hashicorp/go-version"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// ExactPins is the first Nomad that never starts an allocation with fewer GPUs
// than it asks for where single instances are named (hashicorp/nomad#18364).
const ExactPins = "1.11.1"

// OldestNomad is the lowest Nomad version among the nodes, nil where none says it.
func OldestNomad(s *nomad.State) *version.Version {
	var low *version.Version
	for _, n := range s.Nodes {
		v, err := version.NewVersion(n.Attributes["nomad.version"])
		if err == nil && (low == nil || v.LessThan(low)) {
			low = v
		}
	}
	return low
}
