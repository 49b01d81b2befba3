// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/live"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// GPU is one GPU, as commands, the API and the page show it.
type GPU struct {
	ID     string `json:"id"`             // the GPU's id
	Node   string `json:"node"`           // its node's name
	Rack   string `json:"rack,omitempty"` // its node's rack, if known
	NodeID string `json:"node_id"`        // its node's id
	// Index is nvidia-smi's number of the GPU within its node; absent if the device plugin does not
	// publish the number. The parts of a shared GPU, and MIG instances, have their GPU's number.
	Index *int `json:"index,omitempty"`
	// BusID is the GPU's PCI address; absent if the device plugin does not publish the address.
	BusID string `json:"bus_id,omitempty"`
	// Position is the GPU's place among the GPUs of its node on the page's map, from 0.
	Position int    `json:"position"`
	Device   string `json:"device"` // device group: vendor/type/name
	// State is unhealthy, quarantined, allocated, unavailable or free: the first that applies.
	State   model.GPUState `json:"state"`
	Healthy bool           `json:"healthy"` // the device plugin reports the GPU as healthy
	// Job is the job that holds the GPU, as namespace/id.
	Job string `json:"job,omitempty"`
	// HeldSince is when Nomad created the job's allocation on the GPU; zero if the GPU is only
	// promised to the job.
	HeldSince time.Time `json:"held_since,omitzero"`
	// PMScores are the GPU's PM scores by application class, without the classes in which it was
	// not measured.
	PMScores map[pal.AppClass]pal.PMScore `json:"pm_scores,omitempty"`
	// Classes are the GPU's variability classes by application class, from 1 (the fastest) to 5.
	Classes map[pal.AppClass]uint8 `json:"classes,omitempty"`
	// Uncapped is set if the GPU stayed below its power limit while class A was measured, so the PM
	// score for class A says little about training.
	Uncapped  bool `json:"uncapped,omitempty"`
	Available bool `json:"available"` // free and usable; a window can still reserve the GPU
	// Unhealthy and Unavailable are the reasons why the placer does not choose the GPU. Degraded is
	// the reason why the placer chooses the GPU last. A reason is "" if it does not apply.
	Unhealthy   string `json:"unhealthy,omitempty"`
	Unavailable string `json:"unavailable,omitempty"`
	Degraded    string `json:"degraded,omitempty"`
	// OutlierFor are the application classes for which the GPU's PM score is above the
	// outlier_threshold.
	OutlierFor []pal.AppClass `json:"outlier_for,omitempty"`
	// Window is the maintenance window or reservation that reserves the GPU now, with its end.
	Window string `json:"window,omitempty"`
	// Quarantine is why the GPU is in quarantine, and until when.
	Quarantine *failure.Quarantine `json:"quarantine,omitempty"`
	// Live is the GPU's current load, if requested. NotLive is why the GPU's load is unknown.
	Live    *live.Use `json:"live,omitempty"`
	NotLive string    `json:"not_live,omitempty"`
	// IdleSince is the time since which the GPU has been idle although a job holds it; zero if the
	// GPU is not idle, or if its load is unknown.
	IdleSince time.Time `json:"idle_since,omitzero"`
}

// GPUs lists the cluster's GPUs.
func (s *Snapshot) GPUs() []GPU { return s.SomeGPUs(GPUFilter{}) }

// Models returns the measured speeds of the cluster's GPU models.
func (s *Snapshot) Models() []ledger.ModelSpeed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.View.ModelSpeeds()
}

// GPUFilter selects the GPUs that meet all of its conditions.
type GPUFilter struct {
	// Nodes are names or ids, or names as in [MapNode]; empty for all.
	Nodes []string
	// Job selects the GPUs that a job (namespace/id) holds. ID selects one GPU.
	Job, ID string
	// Trouble selects GPUs that are unhealthy, degraded, or in quarantine.
	Trouble bool
	// Outliers selects GPUs whose PM score for some application class is above the
	// outlier_threshold.
	Outliers bool
	// Most is the maximum number of GPUs to list; 0 means no limit.
	Most int
}

// SomeGPUs lists some of the cluster's GPUs.
func (s *Snapshot) SomeGPUs(f GPUFilter) []GPU {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.m.View.Cluster
	out, unhealthy, unique := []GPU{}, s.m.View.HealthDescriptions(), uniqueNames(c)
	uncapped, heldSince := s.uncapped(), s.heldSince()
	for n, gpus := range nodeGPUs(c) {
		node := c.Node(n)
		if len(f.Nodes) > 0 && !slices.Contains(f.Nodes, node.Name) && !slices.Contains(f.Nodes, node.ID) && !slices.Contains(f.Nodes, unique[n]) {
			continue
		}
		for position, i := range s.order(gpus) {
			if f.Most > 0 && len(out) == f.Most {
				return out
			}
			if f.Outliers && len(s.m.OutlierFor(i)) == 0 || f.Trouble && !s.inTrouble(i) {
				continue
			}
			if f.ID != "" && c.GPU(i).ID != f.ID || f.Job != "" && s.m.View.Owner(i).String() != f.Job {
				continue
			}
			g := s.gpu(i, unhealthy)
			g.NodeID, g.Position, g.Uncapped, g.HeldSince = node.ID, position, uncapped(i), heldSince(i)
			out = append(out, g)
		}
	}
	return out
}

// uncapped returns a function that reports whether a GPU has [GPU.Uncapped]. The function is fast
// if it is called for all GPUs of a device group in a row. Callers hold mu.
func (s facts) uncapped() func(i int) bool {
	v, last, ids := s.m.View, -1, map[string]bool{}
	return func(i int) bool {
		if group := v.Cluster.GroupOf(i); group != last {
			last, ids = group, v.Uncapped(group)
		}
		return ids[attr.GPUOf(v.Cluster.GPU(i).ID)]
	}
}

// heldSince returns a function that computes [GPU.HeldSince]. The function reads the allocations of
// each job once. Callers hold mu.
func (s *Snapshot) heldSince() func(i int) time.Time {
	type held struct {
		job cluster.JobKey
		gpu string
	}
	since, read := map[held]time.Time{}, map[cluster.JobKey]bool{}
	return func(i int) time.Time {
		job := s.m.View.Owner(i)
		if job != (cluster.JobKey{}) && !read[job] {
			read[job] = true
			for _, a := range s.m.State.AllocsOf(job) {
				for _, id := range a.GPUs {
					created, known := since[held{job, id}]
					if at := time.Unix(0, a.CreateTime).UTC(); a.Live() && (!known || at.Before(created)) {
						since[held{job, id}] = at
					}
				}
			}
		}
		return since[held{job, s.m.View.Cluster.GPU(i).ID}]
	}
}

// Ailing lists the GPUs in trouble and the outliers, without their numbers.
func (s *Snapshot) Ailing() (all []GPU) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unhealthy := s.m.View.HealthDescriptions()
	for i := range s.m.View.Cluster.NumGPUs() {
		if s.inTrouble(i) || len(s.m.OutlierFor(i)) > 0 {
			all = append(all, s.gpu(i, unhealthy))
		}
	}
	return all
}

// inTrouble reports whether a GPU is unhealthy, degraded, or in quarantine. Callers hold mu.
func (s *Snapshot) inTrouble(i int) bool {
	u := s.m.View.Cluster.GPU(i)
	return u.Unhealthy || u.Degraded != "" || s.quarantineOf(u.ID) != nil
}

// quarantineOf returns the quarantine of a GPU, or nil if the GPU is not in quarantine. Callers
// hold mu.
func (s *Snapshot) quarantineOf(id string) *failure.Quarantine {
	if q, ok := s.m.Quarantine[attr.GPUOf(id)]; ok && s.m.Time.Before(q.Until) {
		return new(q)
	}
	return nil
}

// gpu returns one GPU. Callers hold mu.
func (s *Snapshot) gpu(i int, unhealthy map[string]string) GPU {
	c := s.m.View.Cluster
	u := c.GPU(i)
	node, device := c.Group(c.GroupOf(i))
	g := GPU{
		ID: u.ID, Node: c.Node(node).Name, Rack: c.Node(node).Rack, Device: device, State: s.m.GPUState(i, s.m.Time), Healthy: !u.Unhealthy, Available: c.Available(i),
		Unhealthy: unhealthy[u.ID], Unavailable: s.m.View.Unavailable(i), Degraded: u.Degraded, OutlierFor: s.m.OutlierFor(i),
		PMScores: map[pal.AppClass]pal.PMScore{}, Classes: map[pal.AppClass]uint8{}, Quarantine: s.quarantineOf(u.ID),
	}
	g.Index, g.BusID = s.m.View.Slots[i].Index, s.m.View.Slots[i].BusID
	g.Window = s.windowOf(i)
	if o := s.m.View.Owner(i); o != (cluster.JobKey{}) {
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
func (s *Snapshot) windowOf(gpu int) string {
	if s.kept == nil {
		s.kept = s.m.OpenWindows(s.m.Time)
	}
	return s.kept[gpu]
}

// leastIDLength is the shortest length of a shortened id: "GPU-" and eight digits.
const leastIDLength = len("GPU-12345678")

// IDLength returns how many bytes at the beginning of the ids distinguish each GPU from all others,
// but at least leastIDLength. Parts of a GPU are distinguished by their numbers: see
// [attr.Shorten].
func IDLength(ids []string) int {
	ids = attr.GPUsOf(ids)
	n := leastIDLength
	for i := 1; i < len(ids); i++ {
		a, b, same := ids[i-1], ids[i], 0
		for same < len(a) && same < len(b) && a[same] == b[same] {
			same++
		}
		n = max(n, same+1)
	}
	return n
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
	length := IDLength(all)
	e.GPUNames = map[string]string{}
	name := func(id string) {
		e.GPUNames[id] = attr.Shorten(id, length)
		if i := v.Cluster.Find(id); i >= 0 {
			e.GPUNames[id] = GPUName(id, v.GPUNode(i).Name, v.Slots[i].Index, length)
		}
	}
	for _, a := range e.Allocations {
		each(a.GPUs, name)
	}
	for _, f := range e.Failures {
		each(f.GPUs, name)
	}
	if d := e.Decision; d != nil && d.Chosen != nil {
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

// GPUName returns a short name of a GPU, which commands accept: NODE:INDEX or, if nvidia-smi's index
// is unknown or if several MIG instances share it, the first bytes of the id.
func GPUName(id, node string, index *int, length int) string {
	if index == nil || strings.HasPrefix(id, "MIG-") {
		return attr.Shorten(id, length)
	}
	return fmt.Sprintf("%s:%d%s", node, *index, strings.TrimPrefix(id, attr.GPUOf(id)))
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

var outOfService = map[model.GPUState]Cell{model.GPUUnhealthy: CellUnhealthy, model.GPUQuarantined: CellQuarantined, model.GPUUnavailable: CellUnavailable}

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
	var racks []MapRack
	last := "" // the rack of the last entry of racks
	for _, n := range order {
		node, mine := c.Node(n), s.order(gpus[n])
		if r := len(racks) - 1; r < 0 || racks[r].Datacenter != node.Datacenter || last != node.Rack || node.Rack == "" && len(racks[r].Nodes) == mapRackNodes {
			racks = append(racks, MapRack{Name: cmp.Or(node.Rack, "no rack ("+unique[n]+" …)"), Datacenter: node.Datacenter})
			last = node.Rack
		}
		shown := MapNode{Name: unique[n], Away: cluster.NotReady(s.m.View.GPUNode(mine[0])), Indexes: s.indexes(mine)}
		for _, i := range mine {
			shown.Cells = append(shown.Cells, mapCell(c, i, s.m.GPUState(i, s.m.Time)))
		}
		r := &racks[len(racks)-1]
		r.Nodes = append(r.Nodes, shown)
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
func (s facts) order(gpus []int) []int {
	slots := s.m.View.Slots
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
func (s facts) indexes(gpus []int) (out []int) {
	for _, i := range gpus {
		index := s.m.View.Slots[i].Index
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

// RedactedFor returns the GPU as a user may see it. The reason of an automatic quarantine can name
// jobs and tasks in any namespace, so only operators see it. Everybody sees the reason that an
// operator gave.
func (g GPU) RedactedFor(sees model.Sees, operator func() bool) GPU {
	g.Job = sees.Name(g.Job)
	if g.Quarantine != nil && !g.Quarantine.Operator && !operator() {
		q := *g.Quarantine
		q.Reason = "jobs failed on this GPU; only operators can see details"
		g.Quarantine = &q
	}
	return g
}
