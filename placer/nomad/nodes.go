// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// notWell is a filter expression. The filter selects nodes on which Nomad places nothing now, or
// places nothing that needs one of the drivers.
const notWell = `Status != "ready" or SchedulingEligibility != "eligible" or any Drivers as _, d { d.Detected == true and d.Healthy == false }`

// mostAway is the maximum number of nodes that AwayNodes reads.
const mostAway = 64

// AwayNodes returns the nodes that are not ready, are not eligible, or have an unhealthy driver.
// With more than mostAway such nodes, AwayNodes returns none of them, and its result `all` is
// false.
func (c *Client) AwayNodes(ctx context.Context) (away []*api.Node, all bool, err error) {
	var stubs []*cluster.NodeStub
	if _, err := c.api.Raw().Query("/v1/nodes", &stubs, (&api.QueryOptions{Filter: notWell}).WithContext(ctx)); err != nil {
		return nil, false, fmt.Errorf("listing the unavailable nodes: %w", Denied(err, ReadNodes))
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

// NodeResources returns all nodes. AwayNodes reads only the datacenter, the pool and the resources
// of each node.
func (c *Client) NodeResources(ctx context.Context) (nodes []*api.Node, err error) {
	var all []*struct {
		Datacenter, NodePool string
		NodeResources        *api.NodeResources
		ReservedResources    *api.NodeReservedResources
	}
	q := (&api.QueryOptions{Params: map[string]string{"resources": "true"}}).WithContext(ctx)
	if _, err := c.api.Raw().Query("/v1/nodes", &all, q); err != nil {
		return nil, fmt.Errorf("listing the resources of nodes: %w", Denied(err, ReadNodes))
	}
	for _, n := range all {
		if n != nil && n.NodeResources != nil {
			nodes = append(nodes, &api.Node{Datacenter: n.Datacenter, NodePool: n.NodePool, NodeResources: n.NodeResources, ReservedResources: n.ReservedResources})
		}
	}
	return nodes, nil
}
