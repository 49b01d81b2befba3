// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "slices"

// outliers counts the GPUs that a search excludes if its policy has a threshold. A cluster counts
// its outliers once per threshold. A cluster keeps the counts for only one threshold, because all
// policies of a placer or a simulation have the same threshold.
type outliers struct {
	above float64         // PM score; 0: no GPU is an outlier
	gpus  [NumClasses]int // all outliers, available or not
	free  [NumClasses]int // available outliers
}

// Outliers returns the number of GPUs, available or not, whose PM score for the class is above the
// given score.
func (c *Cluster) Outliers(class AppClass, above float64) int {
	c.countOutliers(above)
	return c.outliers.gpus[class.Index()]
}

// countOutliers computes the counts for a threshold, unless they already exist.
func (c *Cluster) countOutliers(above float64) {
	if c.outliers.above == above {
		return
	}
	c.outliers = outliers{above: above}
	for k := range NumClasses {
		c.bins.inliers[k] = slices.Clone(c.bins.offset[k])
		c.bins.upTo[k] = c.bins.upTo[k][:c.bins.offset[k][len(c.groups)]]
		for g := range c.groups {
			c.countOutliersIn(int32(g), k)
		}
	}
}

// countOutliersIn finds the outliers of one group by their raw PM scores. If the group has
// outliers, countOutliersIn appends the group's counts without outliers.
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
	from := len(c.bins.upTo[class])
	c.bins.inliers[class][group] = int32(from)
	c.bins.upTo[class] = append(c.bins.upTo[class], make([]uint16, len(c.models[g.model].values[class]))...)
	for i := range gpus {
		if gpus[i].available && gpus[i].outlier&bit == 0 {
			addUpTo(c.bins.upTo[class][from:], c.ranks[class][int(g.first)+i], 1)
		}
	}
}
