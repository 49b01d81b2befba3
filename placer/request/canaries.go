// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Canaries returns the request for the missing canaries of a running service's current version.
func (v *View) Canaries(job *api.Job) (Request, error) {
	r, err := v.Request(job)
	if err != nil {
		return r, err
	}
	for i := range r.Gang.MemberSets {
		s := &r.Gang.MemberSets[i]
		s.Members = CanariesOf(job.LookupTaskGroup(s.Name))
		v.discount(s, r, func(a *cluster.Alloc) bool { return a.Member() && a.PlacedFor(job) })
	}
	return r, nil
}

// CanariesOf returns how many canaries Nomad starts for an update of the group.
func CanariesOf(g *api.TaskGroup) int {
	if g.Update == nil || g.Count == nil {
		return 0
	}
	return min(cluster.ValueOf(g.Update.Canary), rewrite.Members(g))
}

// HeldPins returns pins to exactly the nodes and GPUs that the job's members use now. When the pins
// of a running gang are widened for canaries, the gang must keep these nodes and GPUs.
func (v *View) HeldPins(job *api.Job) rewrite.Pins {
	pins, _ := rewrite.Pinned(job)
	held := pins
	held.Groups = nil
	for _, g := range pins.Groups {
		var nodes, gpus []string
		for _, a := range v.State.AllocsOf(cluster.KeyOf(job)) {
			if a.Group == g.Group && a.Member() {
				nodes, gpus = append(nodes, a.Node), append(gpus, a.GPUs...)
			}
		}
		held.Groups = append(held.Groups, rewrite.GroupPins{Group: g.Group, Nodes: nodes, GPUs: gpus})
	}
	return held
}
