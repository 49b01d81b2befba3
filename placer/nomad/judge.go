// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Judge asks Nomad's scheduler about a job as its author wrote it. never is what keeps groups of it from
// every node, also from nodes that are away now: see [Never]. refused is what Nomad would not place now,
// and why; "" for nothing. largest is the most that a node with GPUs has.
func (c *Client) Judge(ctx context.Context, job *api.Job, largest pal.Resources) (never []Obstacle, refused string, err error) {
	author := rewrite.Author(job)
	resp, err := c.DryRun(ctx, author)
	if err != nil || len(resp.FailedTGAllocs) == 0 {
		return nil, "", err
	}
	group, why := NotPlaced(resp.FailedTGAllocs)
	refused = fmt.Sprintf("group %q: %s", group, why)
	large, err := c.tooLarge(ctx, author, resp.FailedTGAllocs, largest)
	if err != nil {
		return nil, refused, err
	}
	never = append(large, Never(author, resp.FailedTGAllocs)...)
	if len(never) == 0 {
		return nil, refused, nil
	}
	away, all, err := c.awayNodes(ctx)
	if err != nil {
		return nil, refused, err
	}
	return slices.DeleteFunc(never, func(o Obstacle) bool {
		g := author.LookupTaskGroup(o.Group)
		return o.Kind == LackNomad && (!all || slices.ContainsFunc(away, func(n *api.Node) bool { return couldTake(author, g, n) }))
	}), refused, nil
}

// couldTake reports whether a node could take a member of the group once it is back, for all that is known.
func couldTake(author *api.Job, g *api.TaskGroup, n *api.Node) bool {
	if a, err := gpuRequestOf(g); err == nil && a.gpus > 0 && !slices.ContainsFunc(GPUDevices(n), a.serves) {
		return false
	}
	return nodeCould(author, g, n)
}

// notWell is what a node meets on which Nomad places nothing now, or not with some driver.
const notWell = `Status != "ready" or SchedulingEligibility != "eligible" or any Drivers as _, d { d.Detected == true and d.Healthy == false }`

// mostAway are read at most of the nodes that are away: of more, some could take anything.
const mostAway = 64

// awayNodes are nodes that are not ready, or have a driver that is not healthy; all is false if they are
// too many to be read.
func (c *Client) awayNodes(ctx context.Context) (away []*api.Node, all bool, err error) {
	var stubs []*nodeStub
	if _, err := c.api.Raw().Query("/v1/nodes", &stubs, (&api.QueryOptions{Filter: notWell}).WithContext(ctx)); err != nil {
		return nil, false, fmt.Errorf("listing the nodes that are away: %w", Denied(err, ReadNodes))
	}
	if len(stubs) > mostAway {
		return nil, false, nil
	}
	for _, stub := range stubs {
		n, err := c.node(ctx, stub.ID)
		if err != nil {
			return nil, false, err
		}
		if n != nil {
			away = append(away, n)
		}
	}
	return away, true, nil
}

// tooLarge are groups without GPUs a member of which takes more than any node has.
func (c *Client) tooLarge(ctx context.Context, author *api.Job, failed map[string]*api.AllocationMetric, largest pal.Resources) (found []Obstacle, err error) {
	var nodes []*struct {
		Datacenter, NodePool string
		NodeResources        *api.NodeResources
		ReservedResources    *api.NodeReservedResources
	}
	for _, g := range author.TaskGroups {
		l, over := tooLittle(LackResource, needOf(g), largest)
		if m := failed[*g.Name]; !over || m == nil || m.NodesExhausted == 0 || rewrite.GPUsPerMember(g) > 0 {
			continue
		}
		if nodes == nil { // 10 kB of each: nodes with GPUs are large, so that this is rare
			q := (&api.QueryOptions{Params: map[string]string{"resources": "true"}}).WithContext(ctx)
			if _, err := c.api.Raw().Query("/v1/nodes", &nodes, q); err != nil {
				return nil, fmt.Errorf("listing what nodes have: %w", Denied(err, ReadNodes))
			}
		}
		o, holds := Obstacle{Group: *g.Name, Lack: l, What: l.String()}, false
		for _, n := range nodes {
			if n == nil || n.NodeResources == nil || !inDatacenters(author.Datacenters, n.Datacenter) || pool(author) != poolAll && pool(author) != n.NodePool {
				continue
			}
			o.Nodes, o.Total = o.Nodes+1, o.Total+1
			_, less := tooLittle(LackResource, needOf(g), total(&api.Node{NodeResources: n.NodeResources, ReservedResources: n.ReservedResources}))
			holds = holds || !less
		}
		if !holds && o.Total > 0 {
			found = append(found, o)
		}
	}
	return found, nil
}
