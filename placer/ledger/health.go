// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"cmp"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// refreshHealth updates which GPUs are unhealthy, in quarantine or unavailable.
func (v *Ledger) refreshHealth() {
	v.changes++
	for i, d := range v.Devices {
		node := v.GroupNode(i)
		for _, in := range d.Instances {
			u := v.Cluster.Find(in.ID)
			v.Cluster.SetHealth(u, !in.Healthy, v.opts.Quarantined[attr.GPUOf(in.ID)])
			v.Cluster.SetUnavailable(u, v.unavailable(node, in.ID) != "")
		}
	}
}

// Unavailable returns why GPU u cannot be used now, whether or not a job holds it. The reason can
// be the GPU's node, or tasks that may still run on the GPU. Unavailable returns "" if the GPU can
// be used.
func (v *Ledger) Unavailable(u int) string {
	return v.unavailable(v.GPUNode(u), v.Cluster.GPU(u).ID)
}

// unavailable is [Ledger.Unavailable] for a GPU of a node. GPUs on a node that is down,
// disconnected, drained or ineligible are unavailable, so that earlier decisions to use these GPUs
// wait. For example, if the victims of a preemption were lost with the node, Nomad would otherwise
// place the new gang as soon as the node is back, while the victims' tasks still run on it.
func (v *Ledger) unavailable(n *api.Node, gpu string) string {
	return cmp.Or(cluster.NotReady(n), v.opts.Unavailable[gpu])
}
