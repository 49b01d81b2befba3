// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Several nodes can name the same GPU id. For example, a client was reinstalled and has a new node
// id, while Nomad keeps the old node for a day. Other examples are a card that was moved to another
// machine, and a node that claims GPUs that it does not have. Each GPU counts once, for one owner.
// A ready node wins over a node that is not ready. Among ready nodes, the node that named the GPU
// first wins. Among nodes that already named the GPU when the placer started, the node that joined
// the cluster first wins. If no node is ready, the newest node wins.
//
// The placer removes the GPU from the other nodes, and warns about the conflict. An allocation on
// another node can hold the GPU only if that node named the GPU earlier than the owner did. Without
// this rule, a node could block a GPU that it does not have.

// owners records which nodes name which GPUs. The zero value is empty.
type owners struct {
	naming map[string][]string // by GPU, the nodes' ids in the order in which they named it; slices are never changed
	shared map[string]struct{} // GPUs that several nodes name
}

// look records which GPUs a node names now. before is the node's former state, or nil if the node
// is new.
func (o *owners) look(n, before *api.Node) {
	named := namedBy(n)
	for gpu := range named {
		if !slices.Contains(o.naming[gpu], n.ID) {
			o.put(gpu, append(slices.Clone(o.naming[gpu]), n.ID))
		}
	}
	if before != nil {
		o.leave(before, named)
	}
}

// leave records that a node no longer names its GPUs, except the GPUs in kept.
func (o *owners) leave(n *api.Node, kept map[string]bool) {
	for gpu := range namedBy(n) {
		if !kept[gpu] {
			o.put(gpu, slices.DeleteFunc(slices.Clone(o.naming[gpu]), func(id string) bool { return id == n.ID }))
		}
	}
}

func (o *owners) put(gpu string, nodes []string) {
	if o.naming == nil {
		o.naming, o.shared = map[string][]string{}, map[string]struct{}{}
	}
	o.naming[gpu] = nodes
	if len(nodes) == 0 {
		delete(o.naming, gpu)
	}
	delete(o.shared, gpu)
	if len(nodes) > 1 {
		o.shared[gpu] = struct{}{}
	}
}

// after returns the owners that result from a full read. For each GPU, the nodes that named it
// before the read come first; then come the nodes that name it only since the read.
func (o *owners) after(nodes map[string]*api.Node) owners {
	var next owners
	for _, n := range slices.SortedFunc(maps.Values(nodes), byAge) {
		next.look(n, nil)
	}
	for gpu := range next.shared {
		known := o.naming[gpu]
		slices.SortStableFunc(next.naming[gpu], func(a, b string) int {
			return cmp.Compare(uint(slices.Index(known, a)), uint(slices.Index(known, b))) // -1, for a new node, is the largest uint
		})
	}
	return next
}

// byAge compares nodes by when they joined the cluster, the oldest first.
func byAge(a, b *api.Node) int {
	return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), strings.Compare(a.ID, b.ID))
}

// owner chooses the owner among the nodes that name a GPU, and returns why.
func (o *owners) owner(gpu string, nodes map[string]*api.Node) (owner *api.Node, why string) {
	var naming, ready []*api.Node
	for _, id := range o.naming[gpu] {
		n := nodes[id]
		naming = append(naming, n)
		if n.Status == api.NodeStatusReady {
			ready = append(ready, n)
		}
	}
	switch len(ready) {
	case 0:
		return slices.MaxFunc(naming, byAge), "the newer node"
	case 1:
		return ready[0], "which is ready"
	}
	return ready[0], "which listed the GPU first"
}

// namedBy returns the ids of the GPUs that a node names.
func namedBy(n *api.Node) map[string]bool {
	ids := map[string]bool{}
	for _, d := range GPUDevices(n) {
		for _, in := range d.Instances {
			ids[in.ID] = true
		}
	}
	return ids
}

// trimmed holds a node without the GPUs that other nodes own.
type trimmed struct {
	from, node *api.Node
	left       []string // the ids of the removed GPUs, sorted
}

// owned returns the node with only the GPUs that it owns, or nil if it owns no GPU.
func (s *State) owned(n *api.Node, conflicts map[conflict][]string) *api.Node {
	if len(s.owners.shared) == 0 {
		return n
	}
	var left []string
	for id := range namedBy(n) {
		_, shared := s.owners.shared[id]
		if !shared {
			continue
		}
		owner, why := s.owners.owner(id, s.Nodes)
		if owner.ID != n.ID {
			left = append(left, id)
			c := conflict{n.ID, owner.ID, why}
			conflicts[c] = append(conflicts[c], id)
		}
	}
	if len(left) == 0 {
		return n
	}
	slices.Sort(left)
	had, ok := s.trimmed[n.ID]
	if ok && had.from == n && slices.Equal(had.left, left) {
		return had.node
	}
	t := trimmed{from: n, node: without(n, left), left: left}
	s.trimmed[n.ID] = t
	return t.node
}

// without returns the node without the GPUs in ids, or nil if no GPU is left.
func without(n *api.Node, ids []string) *api.Node {
	out := *n
	r := *n.NodeResources
	left := 0
	r.Devices = nil
	for _, d := range n.NodeResources.Devices {
		if isGPU(d) {
			trimmed := *d
			trimmed.Instances = slices.DeleteFunc(slices.Clone(d.Instances), func(in *api.NodeDevice) bool {
				_, drop := slices.BinarySearch(ids, in.ID)
				return drop
			})
			left += len(trimmed.Instances)
			if len(trimmed.Instances) == 0 {
				continue
			}
			d = &trimmed
		}
		r.Devices = append(r.Devices, d)
	}
	if left == 0 {
		return nil
	}
	out.NodeResources = &r
	return &out
}

// conflict means that a node names GPUs that another node owns.
type conflict struct{ node, owner, why string }

func (c conflict) compare(o conflict) int {
	return cmp.Or(strings.Compare(c.node, o.node), strings.Compare(c.owner, o.owner), strings.Compare(c.why, o.why))
}

// maxWarnings is the maximum number of warnings about nodes.
const maxWarnings = 50

// NodeWarnings returns warnings for operators about data of nodes that the placer ignores: GPUs
// that several nodes name, and unusable values.
func (s *State) NodeWarnings() []string {
	s.GPUNodes()
	return s.warnings
}

// warn rebuilds the warnings.
func (s *State) warn(conflicts map[conflict][]string) {
	var out []string
	for _, c := range slices.SortedFunc(maps.Keys(conflicts), conflict.compare) {
		gpus := fmt.Sprintf("GPU %q", slices.Min(conflicts[c]))
		more := len(conflicts[c]) - 1
		if more > 0 {
			gpus = fmt.Sprintf("%s and %d more", gpus, more)
		}
		out = append(out, fmt.Sprintf("%s: listed by node %s and by node %s; nomad-pal uses the second node, %s%s", gpus, s.Nodes.describe(c.node), s.Nodes.describe(c.owner), c.why, s.Nodes.purgeAdvice(c.node)))
	}
	for _, id := range slices.Sorted(maps.Keys(s.odd)) {
		out = append(out, s.odd[id]...)
	}
	more := len(out) - maxWarnings
	if more > 0 {
		out = append(out[:maxWarnings], fmt.Sprintf("%d more warnings about nodes are not shown", more))
	}
	s.warnings = out
}

// purgeAdvice returns the command that removes a node that is down, or "" if the node is not down.
// A node can choose its own id. So purgeAdvice also returns "" if a shell could execute a part of
// the id.
func (ns Nodes) purgeAdvice(id string) string {
	n := ns[id]
	if n == nil || n.Status != api.NodeStatusDown || strings.Trim(id, "0123456789abcdef-") != "" {
		return ""
	}
	return fmt.Sprintf("; if the first node is an earlier installation, purge it: nomad operator api -X PUT /v1/node/%s/purge", id)
}

// OwnGPUs returns the GPUs that Nomad assigned to an allocation, except those that it cannot hold.
func (s *State) OwnGPUs(a *Alloc) []string {
	foreign := func(id string) bool { return !s.mayHold(a.Node, id) }
	if !slices.ContainsFunc(a.GPUs, foreign) {
		return a.GPUs
	}
	return slices.DeleteFunc(slices.Clone(a.GPUs), foreign)
}

// mayHold reports whether an allocation on the node can hold the GPU. An allocation can hold a GPU
// if its node owns the GPU, or if its node reported the GPU before the present owner reported it.
// If no node names the GPU, mayHold returns true, because only Nomad knows where such a GPU is.
func (s *State) mayHold(node, gpu string) bool {
	naming := s.owners.naming[gpu]
	if len(naming) == 0 {
		return true
	}
	owner, _ := s.owners.owner(gpu, s.Nodes)
	first := slices.IndexFunc(naming, func(id string) bool { return id == node || id == owner.ID })
	return naming[first] == node || owner.ID == node
}
