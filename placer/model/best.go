// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"math"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// bestCosts caches what gangs cost on the best GPUs that they could get if no job held a GPU.
// pal_duration refers to these GPUs. So the penalty of several nodes does not lengthen the estimate
// of a gang that never fits one node. The cache is valid for one set of nodes.
type bestCosts struct {
	view  *request.View
	epoch uint64
	idle  *pal.Cluster
	of    map[string]float64 // by gang
}

// bestCost returns the gang's cost on the best GPUs; 0 if the gang would not fit even if no job held
// a GPU.
func (m *Model) bestCost(g pal.Gang) float64 {
	b := &m.best
	if b.of == nil || b.view != m.View || b.epoch != m.View.Epoch() {
		*b = bestCosts{m.View, m.View.Epoch(), idle(m.View.Cluster), map[string]float64{}}
	}
	key := string(g.Class) + g.MaxTier.String() + g.Demand()
	cost, known := b.of[key]
	if !known {
		p, fits := pal.Place(b.idle, g, m.Cfg.Policy())
		if fits {
			cost = p.Cost()
		}
		b.of[key] = cost
	}
	return cost
}

// idle returns a copy of the cluster in which no job holds anything.
func idle(c *pal.Cluster) *pal.Cluster {
	c = c.Clone()
	for i := range c.NumGPUs() {
		c.SetTaken(i, false)
	}
	for i := range c.NumNodes() {
		c.SetFree(i, pal.Resources{CPU: math.MaxInt32, MemoryMB: math.MaxInt32, DiskMB: math.MaxInt32})
	}
	return c
}

// referEstimates tells the queue on which GPUs the estimates of its gangs count, after the nodes
// have changed.
func referEstimates(m *Model) {
	m.Queue.ReferEstimates(func(id string, g pal.Gang) float64 {
		if m.ByID(id) == nil {
			return 0
		}
		return m.bestCost(g)
	})
}
