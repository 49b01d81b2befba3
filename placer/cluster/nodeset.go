// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Nodes maps ids to nodes.
type Nodes map[string]*api.Node

// Name returns the name of a node, or its id if the node is unknown.
func (ns Nodes) Name(id string) string {
	n := ns[id]
	if n != nil {
		return n.Name
	}
	return id
}

// describe returns a text by which an operator can find the node.
func (ns Nodes) describe(id string) string {
	n := ns[id]
	if n != nil {
		return fmt.Sprintf("%.80q (%s, %.20s)", n.Name, shortID(id), n.Status)
	}
	return fmt.Sprintf("%.80q", id)
}

// GateOpen reports whether a node's meta has the gate's key, so that gated jobs can run there.
func (ns Nodes) GateOpen(id string) bool {
	n := ns[id]
	return n != nil && n.Meta[rewrite.GateMeta] != ""
}

// ExactPins is the first Nomad version that never starts an allocation with fewer GPUs than it
// requests when the request names instances (hashicorp/nomad#18364).
const ExactPins = "1.11.1"

// OldestNomad returns the lowest Nomad version among the nodes, or nil if no node reports its
// version.
func (ns Nodes) OldestNomad() *version.Version {
	var low *version.Version
	for _, n := range ns {
		v, err := version.NewVersion(n.Attributes["nomad.version"])
		if err == nil && (low == nil || v.LessThan(low)) {
			low = v
		}
	}
	return low
}
