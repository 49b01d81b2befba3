// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// GPUs lists the cluster's GPUs.
func (s *Snapshot) GPUs() []palapi.GPU { return s.SomeGPUs(palapi.GPUFilter{}) }

// Models returns the measured speeds of the cluster's GPU models.
func (s *Snapshot) Models() []palapi.ModelSpeed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.View.ModelSpeeds()
}

// SomeGPUs lists some of the cluster's GPUs.
func (s *Snapshot) SomeGPUs(f palapi.GPUFilter) []palapi.GPU {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.m.View.Cluster
	out := []palapi.GPU{}
	unhealthy := s.m.View.HealthDescriptions()
	unique := uniqueNames(c)
	of := &hardware{m: s.m}
	uncapped, heldSince := of.uncapped(), of.heldSince()
	for n, gpus := range nodeGPUs(c) {
		node := c.Node(n)
		if len(f.Nodes) > 0 && !slices.Contains(f.Nodes, node.Name) && !slices.Contains(f.Nodes, node.ID) && !slices.Contains(f.Nodes, unique[n]) {
			continue
		}
		for position, i := range of.order(gpus) {
			if f.Most > 0 && len(out) == f.Most {
				return out
			}
			if f.Outliers && len(s.m.OutlierFor(i)) == 0 || f.Trouble && !of.inTrouble(i) {
				continue
			}
			if f.ID != "" && c.GPU(i).ID != f.ID || f.Job != "" && s.m.View.Owner(i).String() != f.Job {
				continue
			}
			g := of.gpu(i, unhealthy)
			g.NodeID = node.ID
			g.Position = position
			g.Uncapped = uncapped(i)
			g.HeldSince = heldSince(i)
			out = append(out, g)
		}
	}
	return out
}

// hardware describes GPUs. Callers of its methods hold the snapshot's mu.
type hardware struct {
	m    *model.Model
	kept map[int]string // the open window of each GPU; computed on demand
}

// uncapped returns a function that reports whether a GPU has [palapi.GPU.Uncapped]. The function is fast
// if it is called for all GPUs of a device group in a row. Callers hold mu.
func (h *hardware) uncapped() func(i int) bool {
	v := h.m.View
	last := -1
	ids := map[string]bool{}
	return func(i int) bool {
		group := v.Cluster.GroupOf(i)
		if group != last {
			last, ids = group, v.Uncapped(group)
		}
		return ids[attr.GPUOf(v.Cluster.GPU(i).ID)]
	}
}

// heldSince returns a function that computes [palapi.GPU.HeldSince]. The function reads the allocations of
// each job once. Callers hold mu.
func (h *hardware) heldSince() func(i int) time.Time {
	type held struct {
		job cluster.JobKey
		gpu string
	}
	since, read := map[held]time.Time{}, map[cluster.JobKey]bool{}
	return func(i int) time.Time {
		job := h.m.View.Owner(i)
		if job != (cluster.JobKey{}) && !read[job] {
			read[job] = true
			for _, a := range h.m.State.AllocsOf(job) {
				for _, id := range a.GPUs {
					created, known := since[held{job, id}]
					at := time.Unix(0, a.CreateTime).UTC()
					if a.Live() && (!known || at.Before(created)) {
						since[held{job, id}] = at
					}
				}
			}
		}
		return since[held{job, h.m.View.Cluster.GPU(i).ID}]
	}
}

// Ailing lists the GPUs in trouble and the outliers, without their numbers.
func (s *Snapshot) Ailing() (all []palapi.GPU) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, unhealthy := &hardware{m: s.m}, s.m.View.HealthDescriptions()
	for i := range s.m.View.Cluster.NumGPUs() {
		if of.inTrouble(i) || len(s.m.OutlierFor(i)) > 0 {
			all = append(all, of.gpu(i, unhealthy))
		}
	}
	return all
}

// inTrouble reports whether a GPU is unhealthy, degraded, or in quarantine. Callers hold mu.
func (h *hardware) inTrouble(i int) bool {
	u := h.m.View.Cluster.GPU(i)
	return u.Health.Unhealthy || u.Degraded != "" || h.quarantineOf(u.ID) != nil
}

// quarantineOf returns the quarantine of a GPU, or nil if the GPU is not in quarantine. Callers
// hold mu.
func (h *hardware) quarantineOf(id string) *palapi.Quarantine {
	if q, ok := h.m.Quarantine[attr.GPUOf(id)]; ok && h.m.Time.Before(q.Until) {
		return new(q)
	}
	return nil
}

// gpu returns one GPU. Callers hold mu.
func (h *hardware) gpu(i int, unhealthy map[string]string) palapi.GPU {
	c := h.m.View.Cluster
	u := c.GPU(i)
	node, device := c.Group(c.GroupOf(i))
	g := palapi.GPU{
		ID: u.ID, Node: c.Node(node).Name, Rack: c.Node(node).Rack, Device: device, State: h.m.GPUState(i, h.m.Time), Healthy: !u.Health.Unhealthy, Available: c.Available(i),
		Unhealthy: unhealthy[u.ID], Unavailable: h.m.View.Unavailable(i), Degraded: u.Degraded, OutlierFor: h.m.OutlierFor(i),
		PMScores: map[pal.AppClass]pal.PMScore{}, Classes: map[pal.AppClass]uint8{}, Quarantine: h.quarantineOf(u.ID),
	}
	g.Index, g.BusID = h.m.View.Slots[i].Index, h.m.View.Slots[i].BusID
	g.Window = h.windowOf(i)
	o := h.m.View.Owner(i)
	if o != (cluster.JobKey{}) {
		g.Job = o.String()
	}
	for k, class := range pal.AppClasses() {
		if u.Scores[k] != 0 {
			g.PMScores[class] = u.Scores[k]
		}
		if u.Classes[k] != 0 { // a degraded GPU has a class even if it was not measured
			g.Classes[class] = u.Classes[k]
		}
	}
	return g
}

// windowOf returns the window that reserves a GPU now, with its end; "" if there is none. Callers
// hold mu.
func (h *hardware) windowOf(gpu int) string {
	if h.kept == nil {
		h.kept = h.m.OpenWindows(h.m.Time)
	}
	return h.kept[gpu]
}

// nameGPUs sets the names of the GPUs in an explanation.
func (s *Snapshot) nameGPUs(e *draft) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.m.View
	all := make([]string, v.Cluster.NumGPUs())
	for i := range all {
		all[i] = v.Cluster.GPU(i).ID
	}
	length := palapi.IDLength(all)
	e.GPUNames = map[string]string{}
	name := func(id string) {
		e.GPUNames[id] = attr.Shorten(id, length)
		i := v.Cluster.Find(id)
		if i >= 0 {
			e.GPUNames[id] = palapi.GPUName(id, v.GPUNode(i).Name, v.Slots[i].Index, length)
		}
	}
	for _, a := range e.Allocations {
		each(a.GPUs, name)
	}
	for _, f := range e.Failures {
		each(f.GPUs, name)
	}
	d := e.Decision
	if d != nil && d.Chosen != nil {
		for _, m := range d.Chosen.Members {
			for _, u := range m.GPUs {
				name(u.ID)
			}
		}
	}
}

func each[T any](list []T, f func(T)) {
	for _, x := range list {
		f(x)
	}
}

// Cell is a GPU on the page's map. Each application class has three bits with its variability class,
// starting with [pal.ClassA] in the lowest bits (0: not measured, 7: class 7 or slower). The
// constants below describe the other bits.
type Cell uint16

// The other bits of a cell are two flags and, in the highest two bits, the reason why the GPU is
// out of service, or 0.
const (
	CellAllocated   Cell = 1 << 12
	CellDegraded    Cell = 1 << 13
	CellUnavailable Cell = 1 << 14
	CellQuarantined Cell = 2 << 14
	CellUnhealthy   Cell = 3 << 14
)

var outOfService = map[palapi.GPUState]Cell{palapi.GPUUnhealthy: CellUnhealthy, palapi.GPUQuarantined: CellQuarantined, palapi.GPUUnavailable: CellUnavailable}

// MapRack is a rack. Nodes without a known rack form groups of at most [mapRackNodes], each named
// after its first node.
type MapRack struct {
	Name       string    `json:"name"`
	Datacenter string    `json:"datacenter"`
	Nodes      []MapNode `json:"nodes"`
}

// MapNode is a node with its GPUs. Names are unique: if several nodes have the same name, all but the
// first have the beginning of their id appended.
type MapNode struct {
	Name string `json:"name"`
	// Away is why Nomad places nothing on the node, for example because the node is down.
	Away  string `json:"away,omitempty"`
	Cells []Cell `json:"cells"`
	// Indexes are nvidia-smi's numbers of the GPUs, or empty if the number of a GPU is unknown.
	Indexes []int `json:"indexes,omitempty"`
}

const mapRackNodes = 32

// Map returns the racks as the web page shows them.
func (s *Snapshot) Map() []MapRack {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.m.View.Cluster
	gpus := nodeGPUs(c)
	order := make([]int, 0, c.NumNodes())
	unique := uniqueNames(c)
	for n := range c.NumNodes() {
		if len(gpus[n]) > 0 {
			order = append(order, n)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := c.Node(a), c.Node(b)
		return cmp.Or(cmp.Compare(x.Datacenter, y.Datacenter), cmp.Compare(x.Rack, y.Rack), cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	of := &hardware{m: s.m}
	var racks []MapRack
	last := "" // the rack of the last entry of racks
	for _, n := range order {
		node, mine := c.Node(n), of.order(gpus[n])
		r := len(racks) - 1
		if r < 0 || racks[r].Datacenter != node.Datacenter || last != node.Rack || node.Rack == "" && len(racks[r].Nodes) == mapRackNodes {
			racks = append(racks, MapRack{Name: cmp.Or(node.Rack, "no rack ("+unique[n]+" …)"), Datacenter: node.Datacenter})
			last = node.Rack
		}
		shown := MapNode{Name: unique[n], Away: cluster.NotReady(s.m.View.GPUNode(mine[0])), Indexes: of.indexes(mine)}
		for _, i := range mine {
			shown.Cells = append(shown.Cells, mapCell(c, i, s.m.GPUState(i, s.m.Time)))
		}
		rack := &racks[len(racks)-1]
		rack.Nodes = append(rack.Nodes, shown)
	}
	return racks
}

// nodeGPUs returns the GPUs of each node.
func nodeGPUs(c *pal.Cluster) [][]int {
	out := make([][]int, c.NumNodes())
	for i := range c.NumGPUs() {
		node, _ := c.Group(c.GroupOf(i))
		out[node] = append(out[node], i)
	}
	return out
}

// order sorts the GPUs of a node as nvidia-smi does. GPUs without a known number come last, by PCI
// address.
func (h *hardware) order(gpus []int) []int {
	slots := h.m.View.Slots
	number := func(i int) int {
		if slots[i].Index == nil {
			return math.MaxInt
		}
		return *slots[i].Index
	}
	slices.SortStableFunc(gpus, func(a, b int) int {
		return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(slots[a].BusID, slots[b].BusID))
	})
	return gpus
}

// indexes returns nvidia-smi's numbers of GPUs, or nil if a number is unknown.
func (h *hardware) indexes(gpus []int) (out []int) {
	for _, i := range gpus {
		index := h.m.View.Slots[i].Index
		if index == nil {
			return nil
		}
		out = append(out, *index)
	}
	return out
}

// uniqueNames returns the nodes' names as in [MapNode].
func uniqueNames(c *pal.Cluster) []string {
	out, seen := make([]string, c.NumNodes()), make(map[string]bool, c.NumNodes())
	for n := range out {
		node := c.Node(n)
		out[n] = node.Name
		if seen[node.Name] {
			out[n] += " (" + node.ID[:min(8, len(node.ID))] + ")"
		}
		seen[out[n]] = true
	}
	return out
}

func mapCell(c *pal.Cluster, i int, state palapi.GPUState) Cell {
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
