// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

// Clone returns an independent copy of the cluster. Another goroutine can search the copy.
func (c *Cluster) Clone() *Cluster {
	o := new(Cluster)
	Copy(o, c)
	return o
}

// Copy makes c a copy of the other cluster, and reuses the memory of c if possible. What never changes
// is shared.
func Copy(c, of *Cluster) {
	old := *c
	*c = *of
	c.groups, c.gpus = append(old.groups[:0], of.groups...), append(old.gpus[:0], of.gpus...)
	upTo := make([][NumClasses][]int32, len(of.models))
	for m := range min(len(upTo), len(old.models)) {
		upTo[m] = old.models[m].upTo
	}
	c.models = append(old.models[:0], of.models...)
	for m := range upTo {
		for k := range NumClasses {
			c.models[m].upTo[k] = append(upTo[m][k][:0], of.models[m].upTo[k]...)
		}
	}
	for k := range NumClasses {
		c.bins.upTo[k], c.bins.inliers[k] = append(old.bins.upTo[k][:0], of.bins.upTo[k]...), append(old.bins.inliers[k][:0], of.bins.inliers[k]...)
		c.scales[k] = append(old.scales[k][:0], of.scales[k]...)
	}
	for t := range of.levels {
		c.levels[t].free = append(old.levels[t].free[:0], of.levels[t].free...)
	}
	c.open = append(old.open[:0], of.open...)
	c.unhealthy = append(old.unhealthy[:0], of.unhealthy...)
	c.avail = append(old.avail[:0], of.avail...)
	if of.occupancies != nil {
		c.occupancies = append(old.occupancies[:0], of.occupancies...)
	}
	c.resources = append(old.resources[:0], of.resources...)
	c.scratch = scratch{}
	if len(old.groups) == len(of.groups) {
		c.scratch = old.scratch
	}
}
