// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"cmp"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// refreshHealth updates for each GPU whether the GPU is unhealthy, in quarantine or unavailable.
func (v *Ledger) refreshHealth() {
	v.changes++
	for i, d := range v.Devices {
		node := v.GroupNode(i)
		for _, in := range d.Instances {
			v.Cluster.SetHealth(v.Cluster.Find(in.ID), v.health(node, in))
		}
	}
}

func (v *Ledger) health(n *api.Node, in *api.NodeDevice) pal.Health {
	return pal.Health{Unhealthy: !in.Healthy, Quarantined: v.opts.Quarantined[attr.GPUOf(in.ID)], Unavailable: v.unavailable(n, in.ID) != ""}
}

// Unavailable returns the reason why no job can be placed on GPU u now, even if a job holds the
// GPU. The reason can be the GPU's node, or tasks that may still run on the GPU. Unavailable
// returns "" if the GPU can be used.
func (v *Ledger) Unavailable(u int) string {
	return v.unavailable(v.GPUNode(u), v.Cluster.GPU(u).ID)
}

// unavailable is like [Ledger.Unavailable], for a GPU of the given node. GPUs on a node that is
// down, disconnected, drained or ineligible are unavailable. So a gang must wait even if a decision
// has already given it unavailable GPUs. For example, assume that the victims of a preemption were
// lost with their node. If the new gang did not wait, Nomad would place it as soon as the node is
// back, while the victims' tasks still run on the node.
func (v *Ledger) unavailable(n *api.Node, gpu string) string {
	return cmp.Or(cluster.NotReady(n), v.opts.Unavailable[gpu])
}
