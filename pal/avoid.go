// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

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
	for g := range c.groups {
		for k := range NumClasses {
			c.avoidIn(int32(g), k)
		}
	}
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
	c.avoid.gpus[class] += bad
	if bad == 0 {
		g.good[class] = g.counts[class]
		return
	}
	bins := len(c.models[g.model].values[class])
	if g.good[class] == g.counts[class] {
		g.good[class] = int32(len(c.upTo[class]))
		c.upTo[class] = append(c.upTo[class], make([]uint16, bins)...)
	}
	counts := c.upTo[class][g.good[class]:][:bins]
	clear(counts)
	for i := range gpus {
		if gpus[i].available && gpus[i].bad&bit == 0 {
			count(counts, c.ranks[class][int(g.first)+i], 1)
		}
	}
}
