// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Several nodes may name one GPU id: a client was reinstalled and came back with a
// new node id while Nomad keeps the old node for a day; a card was moved; or a node
// lies. A GPU counts once, for its owner:
//
//  1. A node that is ready goes before one that is not.
//  2. Of several that are ready, the one that named the GPU first keeps it. So a
//     node cannot take another's GPUs by naming them, however often it comes and
//     goes; while their owner is away they count for it, and nothing else can use
//     them then.
//  3. What named it first is not known of nodes that were there when the placer
//     began. Of these the one goes first on which the oldest allocation that holds
//     the GPU runs, then the one that joined the cluster first.
//  4. Of several that are all away, the newest.
//
// Elsewhere the GPU is left out, and a warning names it. A node's allocation holds
// a GPU of another node only if it named the GPU before that one did: else a node
// could keep a GPU busy that it does not have.

// claimant is a node that names a GPU, and since when.
type claimant struct {
	node string
	// first numbers the looks at nodes at which it was first seen.
	first uint64
	// alloc is the CreateIndex of the oldest live allocation on the node that held
	// the GPU then, joined that of the node.
	alloc, joined uint64
	// away: the node does not name it now, as while its plugin starts again.
	away bool
}

func (c claimant) compare(o claimant) int {
	return cmp.Or(cmp.Compare(c.first, o.first), cmp.Compare(c.alloc, o.alloc), cmp.Compare(c.joined, o.joined), strings.Compare(c.node, o.node))
}

// owners is who names which GPU. The zero value knows of none.
type owners struct {
	looks  uint64
	claims map[string][]claimant // by GPU, in order
	shared map[string]struct{}   // GPUs that several nodes name
	away   map[string][]string   // GPUs that a node named once, by node, so many at most
}

// look takes in what a node names now. What it named before keeps its age: else who
// restarts a device plugin would lose its GPUs to whoever names them meanwhile.
func (o *owners) look(n *api.Node, before *api.Node) {
	o.looks++
	named := namedBy(n)
	for id := range named {
		o.add(id, claimant{node: n.ID, first: o.looks, joined: n.CreateIndex})
	}
	if before != nil {
		for id := range namedBy(before) {
			if !named[id] {
				o.leaves(id, n.ID)
			}
		}
	}
}

// leave takes in that a node is gone.
func (o *owners) leave(n *api.Node) {
	for id := range namedBy(n) {
		o.drop(id, n.ID)
	}
	for _, id := range o.away[n.ID] {
		o.drop(id, n.ID)
	}
	delete(o.away, n.ID)
}

// add takes in that a node names a GPU, for the first time or again.
func (o *owners) add(gpu string, c claimant) {
	if o.claims == nil {
		o.claims, o.shared, o.away = map[string][]claimant{}, map[string]struct{}{}, map[string][]string{}
	}
	cs := o.claims[gpu]
	if i := slices.IndexFunc(cs, func(have claimant) bool { return have.node == c.node }); i < 0 {
		cs = append(cs, c)
		slices.SortFunc(cs, claimant.compare)
	} else if cs[i].away {
		cs[i].away = false
		o.away[c.node] = slices.DeleteFunc(o.away[c.node], func(id string) bool { return id == gpu })
	}
	o.put(gpu, cs)
}

// leaves takes in that a node does not name a GPU any more.
func (o *owners) leaves(gpu, node string) {
	if len(o.away[node]) >= attr.MaxGPUs {
		o.drop(gpu, node)
		return
	}
	cs := o.claims[gpu]
	if i := slices.IndexFunc(cs, func(have claimant) bool { return have.node == node }); i >= 0 && !cs[i].away {
		cs[i].away = true
		o.away[node] = append(o.away[node], gpu)
	}
	o.put(gpu, cs)
}

func (o *owners) drop(gpu, node string) {
	o.put(gpu, slices.DeleteFunc(o.claims[gpu], func(c claimant) bool { return c.node == node }))
}

func (o *owners) put(gpu string, cs []claimant) {
	if len(cs) == 0 {
		delete(o.claims, gpu)
	} else {
		o.claims[gpu] = cs
	}
	if naming := present(cs); len(naming) > 1 {
		o.shared[gpu] = struct{}{}
	} else {
		delete(o.shared, gpu)
	}
}

// present are those that name the GPU now, in order; cs itself where all do.
func present(cs []claimant) []claimant {
	if !slices.ContainsFunc(cs, func(c claimant) bool { return c.away }) {
		return cs
	}
	return slices.DeleteFunc(slices.Clone(cs), func(c claimant) bool { return c.away })
}

// after is owners of the nodes at a full read: claims that were known keep their
// age.
func (o *owners) after(nodes map[string]*api.Node, allocs map[string]*Alloc) owners {
	next := owners{looks: o.looks + 1}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		for gpu := range namedBy(nodes[id]) {
			c := claimant{node: id, first: next.looks, joined: nodes[id].CreateIndex, alloc: math.MaxUint64}
			for _, had := range o.claims[gpu] {
				if had.node == id {
					c = had
					c.away = false
				}
			}
			next.add(gpu, c)
		}
	}
	for _, gpu := range slices.Sorted(maps.Keys(o.claims)) {
		for _, had := range o.claims[gpu] {
			if nodes[had.node] == nil || slices.ContainsFunc(next.claims[gpu], func(c claimant) bool { return c.node == had.node }) {
				continue
			}
			had.away = false
			next.add(gpu, had)
			next.leaves(gpu, had.node)
		}
	}
	next.byAllocs(allocs)
	return next
}

// byAllocs settles rule 3 for the claims of this look.
func (o *owners) byAllocs(allocs map[string]*Alloc) {
	if len(o.shared) == 0 {
		return
	}
	for _, a := range allocs {
		if !a.Live() {
			continue
		}
		for _, gpu := range a.GPUs {
			if _, ok := o.shared[gpu]; !ok {
				continue
			}
			for i := range o.claims[gpu] {
				if c := &o.claims[gpu][i]; c.node == a.Node && c.first == o.looks {
					c.alloc = min(c.alloc, a.CreateIndex)
				}
			}
		}
	}
	for gpu := range o.shared {
		slices.SortFunc(o.claims[gpu], claimant.compare)
	}
}

// owner is whom a GPU that several nodes name belongs to, and why.
func (o *owners) owner(gpu string, nodes map[string]*api.Node) (node, why string) {
	cs := present(o.claims[gpu])
	ready := slices.DeleteFunc(slices.Clone(cs), func(c claimant) bool { return nodes[c.node] == nil || nodes[c.node].Status != api.NodeStatusReady })
	switch len(ready) {
	case 0:
		newest := slices.MaxFunc(cs, func(a, b claimant) int {
			return cmp.Or(cmp.Compare(a.joined, b.joined), strings.Compare(a.node, b.node))
		})
		return newest.node, "which is the newer node"
	case 1:
		return ready[0].node, "which is ready"
	}
	return ready[0].node, "which named it first"
}

// holds says whether an allocation on a node holds a GPU that it names.
func (o *owners) holds(node, gpu, owner string) bool {
	if node == owner {
		return true
	}
	for _, c := range o.claims[gpu] { // in order
		switch c.node {
		case node:
			return true
		case owner:
			return false
		}
	}
	return false
}

// namedBy are the ids of the GPUs that a node names.
func namedBy(n *api.Node) map[string]bool {
	ids := map[string]bool{}
	for _, d := range GPUDevices(n) {
		for _, in := range d.Instances {
			ids[in.ID] = true
		}
	}
	return ids
}

// trimmed is a node without the GPUs that belong to others.
type trimmed struct {
	from, node *api.Node
	left       []string // out of it, sorted
}

// owned is the node with its own GPUs only, nil where it has none.
func (s *State) owned(n *api.Node, conflicts map[conflict][]string) *api.Node {
	if len(s.owners.shared) == 0 {
		return n
	}
	var left []string
	for id := range namedBy(n) {
		if _, shared := s.owners.shared[id]; !shared {
			continue
		}
		if owner, why := s.owners.owner(id, s.Nodes); owner != n.ID {
			left = append(left, id)
			c := conflict{n.ID, owner, why}
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

// without is the node without some of its GPUs, nil where no other is left.
func without(n *api.Node, ids []string) *api.Node {
	out, r, left := *n, *n.NodeResources, 0
	r.Devices = nil
	for _, d := range n.NodeResources.Devices {
		if isGPU(d) {
			trimmed := *d
			trimmed.Instances = slices.DeleteFunc(slices.Clone(d.Instances), func(in *api.NodeDevice) bool {
				_, drop := slices.BinarySearch(ids, in.ID)
				return drop
			})
			if left += len(trimmed.Instances); len(trimmed.Instances) == 0 {
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

// conflict is that a node names GPUs which belong to another.
type conflict struct{ node, owner, why string }

func (c conflict) compare(o conflict) int {
	return cmp.Or(strings.Compare(c.node, o.node), strings.Compare(c.owner, o.owner), strings.Compare(c.why, o.why))
}

// maxWarnings bounds the warnings about nodes.
const maxWarnings = 50

// NodeWarnings say, for operators, what in the nodes' own data is left out: GPUs
// that several nodes name, and what cannot be used.
func (s *State) NodeWarnings() []string {
	s.gpuNodes()
	return s.warnings
}

// warn rebuilds the warnings.
func (s *State) warn(conflicts map[conflict][]string) {
	var out []string
	for _, c := range slices.SortedFunc(maps.Keys(conflicts), conflict.compare) {
		gpus := fmt.Sprintf("GPU %q", slices.Min(conflicts[c]))
		if more := len(conflicts[c]) - 1; more > 0 {
			gpus = fmt.Sprintf("%s and %d more", gpus, more)
		}
		out = append(out, fmt.Sprintf("%s: named by node %s and by node %s; counted for the latter, %s", gpus, s.describe(c.node), s.describe(c.owner), c.why))
	}
	for _, id := range slices.Sorted(maps.Keys(s.odd)) {
		out = append(out, s.odd[id]...)
	}
	if more := len(out) - maxWarnings; more > 0 {
		out = append(out[:maxWarnings], fmt.Sprintf("%d more warnings about nodes are not shown", more))
	}
	s.warnings = out
}

// describe names a node so that an operator finds it.
func (s *State) describe(node string) string {
	if n := s.Nodes[node]; n != nil {
		return fmt.Sprintf("%.80q (%s, %.20s)", n.Name, shortID(node), n.Status)
	}
	return fmt.Sprintf("%.80q", node)
}

// OwnGPUs are the GPUs of an allocation that its node owns, or did before another
// one named them.
func (s *State) OwnGPUs(a *Alloc) []string {
	foreign := func(id string) bool { return !s.mayHold(a.Node, id) }
	if !slices.ContainsFunc(a.GPUs, foreign) {
		return a.GPUs
	}
	return slices.DeleteFunc(slices.Clone(a.GPUs), foreign)
}

// mayHold says whether an allocation on the node holds the GPU. A GPU that no node
// names any more is held by whom Nomad says.
func (s *State) mayHold(node, gpu string) bool {
	if len(s.owners.claims[gpu]) == 0 {
		return true
	}
	switch cs := present(s.owners.claims[gpu]); len(cs) {
	case 0:
		return true
	case 1:
		return s.owners.holds(node, gpu, cs[0].node)
	}
	owner, _ := s.owners.owner(gpu, s.Nodes)
	return s.owners.holds(node, gpu, owner)
}
