// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"maps"
	"slices"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Clone returns a copy of the ledger that uses a clone of the ledger's state. Later changes of the
// ledger do not affect the copy, and changes of the copy do not affect the ledger.
func (v *Ledger) Clone(of *cluster.State) *Ledger {
	o := *v
	o.State, o.Cluster = of, v.Cluster.Clone()
	o.Nodes = slices.Clone(v.Nodes)
	o.Devices = slices.Clone(v.Devices)
	o.owner = slices.Clone(v.owner)
	o.free = slices.Clone(v.free)
	o.holds = maps.Clone(v.holds)
	o.wants = maps.Clone(v.wants)
	o.rivals = maps.Clone(v.rivals)
	o.moved, o.shifted = slices.Clone(v.moved), slices.Clone(v.shifted)
	o.givenBins = maps.Clone(v.givenBins)
	return &o
}
