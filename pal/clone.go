// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "slices"

// Clone returns an independent copy of the cluster. Another goroutine can search the copy.
func (c *Cluster) Clone() *Cluster {
	o := *c
	o.nodes, o.groups, o.gpus = slices.Clone(c.nodes), slices.Clone(c.groups), slices.Clone(c.gpus)
	o.models = slices.Clone(c.models)
	for m := range o.models {
		for k := range NumClasses {
			o.models[m].upTo[k] = slices.Clone(c.models[m].upTo[k])
		}
	}
	for k := range NumClasses {
		o.upTo[k], o.inlierOffset[k] = slices.Clone(c.upTo[k]), slices.Clone(c.inlierOffset[k])
		o.scales[k] = slices.Clone(c.scales[k])
	}
	o.racks.free, o.dcs.free = slices.Clone(c.racks.free), slices.Clone(c.dcs.free)
	o.open, o.unhealthy, o.avail = slices.Clone(c.open), slices.Clone(c.unhealthy), slices.Clone(c.avail)
	o.occupancies = slices.Clone(c.occupancies)
	o.resources, o.scratch = slices.Clone(c.resources), scratch{}
	return &o
}
