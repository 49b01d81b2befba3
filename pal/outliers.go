// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "slices"

// outliers is which GPUs are left out by searches whose policy says so: counted
// once for a threshold, so that leaving them out costs a search nothing.
type outliers struct {
	above float64         // PM score; 0: no GPU is avoided
	gpus  [NumClasses]int // avoided, in whatever state
	free  [NumClasses]int // those that are available
}

// Outliers is the number of GPUs, in whatever state, whose PM score for the
// class is above the given one.
func (c *Cluster) Outliers(class AppClass, above float64) int {
	c.countOutliers(above)
	return c.outliers.gpus[class.Index()]
}

// countOutliers makes the counts for a threshold. Groups without an outlier share
// the counts of all GPUs.
func (c *Cluster) countOutliers(above float64) {
	if c.outliers.above == above {
		return
	}
	c.outliers = outliers{above: above}
	for k := range NumClasses {
		c.good[k] = slices.Clone(c.from[k])
		c.upTo[k] = c.upTo[k][:c.counted(k)]
		for g := range c.groups {
			c.countOutliersIn(int32(g), k)
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

func (c *Cluster) countOutliersIn(group int32, class int) {
	g := &c.groups[group]
	gpus, bit := c.gpus[g.first:g.first+g.n], uint8(1)<<class
	outliers := 0
	for i := range gpus {
		u := &gpus[i]
		u.outlier &^= bit
		if c.outliers.above > 0 && float64(u.Scores[class]) > c.outliers.above {
			u.outlier |= bit
			outliers++
			if u.available {
				c.outliers.free[class]++
			}
		}
	}
	if outliers == 0 {
		return
	}
	c.outliers.gpus[class] += outliers
	from := len(c.upTo[class])
	c.good[class][group] = int32(from)
	c.upTo[class] = append(c.upTo[class], make([]uint16, len(c.models[g.model].values[class]))...)
	for i := range gpus {
		if gpus[i].available && gpus[i].outlier&bit == 0 {
			count(c.upTo[class][from:], c.ranks[class][int(g.first)+i], 1)
		}
	}
}
