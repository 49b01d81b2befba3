// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "slices"

// avoid is which GPUs are left out by searches whose policy says so: counted
// once for a threshold, so that leaving them out costs a search nothing.
type avoid struct {
	above float64         // PM score; 0: no GPU is avoided
	gpus  [NumClasses]int // avoided, in whatever state
	free  [NumClasses]int // those that are available
}

// Outliers is the number of GPUs, in whatever state, whose PM score for the
// class is above the given one.
func (c *Cluster) Outliers(class AppClass, above float64) int {
	c.avoiding(above)
	return c.avoid.gpus[class.Index()]
}

// avoiding makes the counts for a threshold. Groups without an outlier share
// the counts of all GPUs.
func (c *Cluster) avoiding(above float64) {
	if c.avoid.above == above {
		return
	}
	c.avoid = avoid{above: above}
	for k := range NumClasses {
		c.good[k] = slices.Clone(c.from[k])
		c.upTo[k] = c.upTo[k][:c.counted(k)]
		for g := range c.groups {
			c.avoidIn(int32(g), k)
		}
	}
}

// counted is how many counts of all GPUs there are.
func (c *Cluster) counted(class int) int {
	last := len(c.groups) - 1
	if last < 0 {
		return 0
	}
	return int(c.from[class][last]) + len(c.models[c.groups[last].model].values[class])
}

func (c *Cluster) avoidIn(group int32, class int) {
	g := &c.groups[group]
	gpus, bit := c.gpus[g.first:g.first+g.n], uint8(1)<<class
	bad := 0
	for i := range gpus {
		u := &gpus[i]
		u.bad &^= bit
		if c.avoid.above > 0 && float64(u.Scores[class]) > c.avoid.above {
			u.bad |= bit
			bad++
			if u.available {
				c.avoid.free[class]++
			}
		}
	}
	if bad == 0 {
		return
	}
	c.avoid.gpus[class] += bad
	from := len(c.upTo[class])
	c.good[class][group] = int32(from)
	c.upTo[class] = append(c.upTo[class], make([]uint16, len(c.models[g.model].values[class]))...)
	for i := range gpus {
		if gpus[i].available && gpus[i].bad&bit == 0 {
			count(c.upTo[class][from:], c.ranks[class][int(g.first)+i], 1)
		}
	}
}
