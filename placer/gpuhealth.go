// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"maps"
	"slices"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// gpuHealth records which GPUs were unhealthy in the last view, and why.
type gpuHealth struct {
	view      *request.View
	epoch     uint64
	unhealthy map[string]string
}

// noteHealth adds events for GPUs that have become unhealthy or healthy. noteHealth adds no events
// for a placer's first view, because there is nothing to compare it with. noteHealth adds no event
// for a GPU that no longer exists.
func (p *Placer) noteHealth() {
	was, v := p.health, p.m.View
	if p.hooks.Events == nil || was.view == v && was.epoch == v.Epoch() {
		return
	}
	p.health = gpuHealth{v, v.Epoch(), v.HealthDescriptions()}
	if was.view == nil || maps.Equal(was.unhealthy, p.health.unhealthy) {
		return
	}
	c, nodes := v.Cluster, map[string]string{}
	for i := range c.NumGPUs() {
		node, _ := c.Group(c.GroupOf(i))
		nodes[c.GPU(i).ID] = c.Node(node).Name
	}
	emit := func(id string, kind palapi.EventKind, text string) {
		p.hooks.Events.Add(palapi.Event{At: p.m.Time.UTC(), Kind: kind, Node: nodes[id], GPUs: []string{id}, GPU: nameOfGPU(v, id), Text: oneLine("on node " + nodes[id] + " " + text)})
	}
	for _, id := range slices.Sorted(maps.Keys(p.health.unhealthy)) {
		_, known := was.unhealthy[id]
		if !known && nodes[id] != "" {
			emit(id, palapi.EventUnhealthy, "is unhealthy: "+p.health.unhealthy[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(was.unhealthy)) {
		_, still := p.health.unhealthy[id]
		if !still && nodes[id] != "" {
			emit(id, palapi.EventHealthy, "is healthy again")
		}
	}
}

// nameOfGPU returns the name of a GPU in the view, or the id if the view does not have the GPU.
func nameOfGPU(v *request.View, id string) string {
	i := v.Cluster.Find(id)
	if i < 0 {
		return id
	}
	return palapi.GPUName(id, v.GPUNode(i).Name, v.Slots[i].Index, len(id))
}
