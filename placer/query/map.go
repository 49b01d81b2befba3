// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"cmp"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// Cell is a GPU on a [Map]: for each application class three bits with its variability
// class, from [pal.ClassA] in the lowest bits on (0: not measured, 7: that or slower);
// then the bits below.
type Cell uint16

// What else a cell tells: two flags, and in the highest two bits why it is out of service.
const (
	CellAllocated   Cell = 1 << 12
	CellDegraded    Cell = 1 << 13
	CellUnavailable Cell = 1 << 14
	CellQuarantined Cell = 2 << 14
	CellUnhealthy   Cell = 3 << 14
)

var outOfService = map[model.GPUState]Cell{model.GPUUnhealthy: CellUnhealthy, model.GPUQuarantined: CellQuarantined, model.GPUUnavailable: CellUnavailable}

// Map is the cluster as a page draws it.
type Map struct {
	Racks []MapRack
	// Cells are the GPUs, rack by rack and node by node.
	Cells []Cell
}

// MapRack is a rack. Nodes of which no rack is known stand together, [mapRackNodes] of
// them at most, named after the first.
type MapRack struct {
	Name       string    `json:"name"`
	Datacenter string    `json:"datacenter"`
	Nodes      []MapNode `json:"nodes"`
}

// MapNode is a node and how many GPUs it has. Names are unique: of nodes with one name,
// all but the first have the beginning of their id behind it.
type MapNode struct {
	Name string `json:"name"`
	GPUs int    `json:"gpus"`
}

const mapRackNodes = 32

// Map draws the map.
func (s *Snapshot) Map() *Map {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.m.View.Cluster
	gpus, order, unique := nodeGPUs(c), make([]int, 0, c.NumNodes()), uniqueNames(c)
	for n := range c.NumNodes() {
		if len(gpus[n]) > 0 {
			order = append(order, n)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := c.Node(a), c.Node(b)
		return cmp.Or(cmp.Compare(x.Datacenter, y.Datacenter), cmp.Compare(x.Rack, y.Rack), cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	m := &Map{Racks: []MapRack{}, Cells: make([]Cell, 0, c.NumGPUs())}
	last := "" // the rack of the last of m.Racks
	for _, n := range order {
		node := c.Node(n)
		if r := len(m.Racks) - 1; r < 0 || m.Racks[r].Datacenter != node.Datacenter || last != node.Rack || node.Rack == "" && len(m.Racks[r].Nodes) == mapRackNodes {
			m.Racks = append(m.Racks, MapRack{Name: cmp.Or(node.Rack, "no rack ("+unique[n]+" …)"), Datacenter: node.Datacenter})
			last = node.Rack
		}
		r := &m.Racks[len(m.Racks)-1]
		r.Nodes = append(r.Nodes, MapNode{unique[n], len(gpus[n])})
		for _, i := range gpus[n] {
			m.Cells = append(m.Cells, mapCell(c, i, s.m.GPUState(i, s.m.Time)))
		}
	}
	return m
}

// nodeGPUs are the GPUs of each node.
func nodeGPUs(c *pal.Cluster) [][]int {
	out := make([][]int, c.NumNodes())
	for i := range c.NumGPUs() {
		node, _ := c.Group(c.GroupOf(i))
		out[node] = append(out[node], i)
	}
	return out
}

// uniqueNames are the nodes' names as a [MapNode] has them.
func uniqueNames(c *pal.Cluster) []string {
	out, seen := make([]string, c.NumNodes()), make(map[string]bool, c.NumNodes())
	for n := range out {
		node := c.Node(n)
		if out[n] = node.Name; seen[node.Name] {
			out[n] += " (" + node.ID[:min(8, len(node.ID))] + ")"
		}
		seen[out[n]] = true
	}
	return out
}

func mapCell(c *pal.Cluster, i int, state model.GPUState) Cell {
	u, out := c.GPU(i), outOfService[state]
	for k, class := range u.Classes {
		out |= Cell(min(class, 7)) << (3 * k)
	}
	if c.Taken(i) {
		out |= CellAllocated
	}
	if u.Degraded != "" {
		out |= CellDegraded
	}
	return out
}
