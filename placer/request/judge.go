// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Scheduler asks Nomad's scheduler about jobs, and reads nodes that the ledger does not have.
type Scheduler interface {
	DryRun(ctx context.Context, job *api.Job) (*api.JobPlanResponse, error)
	// AwayNodes returns the nodes that are not ready or not eligible, or that have an unhealthy
	// driver. all is false if these nodes are too many to read them all.
	AwayNodes(ctx context.Context) (away []*api.Node, all bool, err error)
	// NodeResources returns all nodes. It reads only their datacenters, pools and resources.
	NodeResources(ctx context.Context) ([]*api.Node, error)
}

// Judge asks Nomad's scheduler about a job as its author wrote it. never contains what keeps groups
// of the job off every node, including nodes that are away now (see [Never]). refused describes a
// group that Nomad would not place now, and the reason; it is "" if Nomad would place all groups.
// largest holds the maximum of each resource over the nodes with GPUs.
func Judge(ctx context.Context, by Scheduler, job *api.Job, largest pal.Resources) (never []palapi.Obstacle, refused string, err error) {
	author := rewrite.Author(job)
	resp, err := by.DryRun(ctx, author)
	if err != nil || len(resp.FailedTGAllocs) == 0 {
		return nil, "", err
	}
	group, why := NotPlaced(resp.FailedTGAllocs)
	refused = fmt.Sprintf("group %q: %s", group, why)
	large, err := tooLarge(ctx, by, author, resp.FailedTGAllocs, largest)
	if err != nil {
		return nil, refused, err
	}
	never = append(large, Never(author, resp.FailedTGAllocs)...)
	if len(never) == 0 {
		return nil, refused, nil
	}
	away, all, err := by.AwayNodes(ctx)
	if err != nil {
		return nil, refused, err
	}
	return slices.DeleteFunc(never, func(o palapi.Obstacle) bool {
		g := author.LookupTaskGroup(o.Group)
		return o.Kind == LackNomad && (!all || slices.ContainsFunc(away, func(n *api.Node) bool { return couldTake(author, g, n) }))
	}), refused, nil
}

// couldTake reports whether a node that is away could run a member of the group after its return.
func couldTake(author *api.Job, g *api.TaskGroup, n *api.Node) bool {
	if a, err := gpuRequestOf(g); err == nil && a.gpus > 0 && !slices.ContainsFunc(cluster.GPUDevices(n), a.serves) {
		return false
	}
	return nodeCould(author, g, n)
}

// tooLarge returns an obstacle for each group without GPUs whose members need more of a resource
// than any node has.
func tooLarge(ctx context.Context, by Scheduler, author *api.Job, failed map[string]*api.AllocationMetric, largest pal.Resources) (found []palapi.Obstacle, err error) {
	var nodes []*api.Node
	for _, g := range author.TaskGroups {
		l, over := tooLittle(LackResource, cluster.Need(g), largest)
		m := failed[*g.Name]
		if !over || m == nil || m.NodesExhausted == 0 || rewrite.GPUsPerMember(g) > 0 {
			continue
		}
		// NodeResources reads about 10 kB per node, but is rarely called, because most members fit
		// on the nodes with GPUs.
		if nodes == nil {
			if nodes, err = by.NodeResources(ctx); err != nil {
				return nil, err
			}
		}
		o, holds := palapi.Obstacle{Group: *g.Name, Lack: l, What: textOf(l)}, false
		for _, n := range nodes {
			if !inDatacenters(author.Datacenters, n.Datacenter) || cluster.PoolOf(author) != cluster.PoolAll && cluster.PoolOf(author) != n.NodePool {
				continue
			}
			o.Nodes, o.Total = o.Nodes+1, o.Total+1
			_, less := tooLittle(LackResource, cluster.Need(g), cluster.Capacity(n))
			holds = holds || !less
		}
		if !holds && o.Total > 0 {
			found = append(found, o)
		}
	}
	return found, nil
}
