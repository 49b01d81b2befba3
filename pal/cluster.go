// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// Cluster is the state of nodes and GPUs. For each device group, application class and bin, a
// Cluster keeps the number of available GPUs in this bin and all lower bins. With these counts, a
// decision reads only a few numbers per group.
//
// Each change of a GPU updates these counts. Only refresh and countOutliers write the counts. The
// data that searches read most is in slices of numbers, so that it is close together in memory.
//
// Nodes, groups and GPUs keep the order in which they were given, and this order breaks ties. A
// Cluster is not safe for concurrent use.
type Cluster struct {
	locality Locality
	nodes    []nodeState
	groups   []groupState
	gpus     []gpuState
	models   []modelState
	byID     map[string]int32
	levels   levels
	bins     binCounts
	ranks    [NumClasses][]uint16 // bin of each GPU, 0 the fastest
	free     int                  // available GPUs
	// open has a bit per device group, set if the group has an available GPU. On a busy cluster,
	// few groups have an available GPU, and placement reads only these groups.
	open         []uint64
	unhealthy    []uint64    // a bit per device group, set if a GPU of the group is out of use
	avail        []uint16    // available GPUs of each group
	size         []uint16    // GPUs of each group
	nodeOf       []int32     // node of each group
	resources    []Resources // unallocated resources of each node
	largestGroup int         // GPUs of the largest group
	stateHash    uint64      // changes with everything that searches depend on, see statehash.go
	outliers     outliers
	occupancies  []occupancy // of each GPU; nil if no GPU is shared

	// scales are indexed by model+1, because anyModel is −1. A scale is made on first use.
	scales  [NumClasses][]*scale
	scratch scratch
}

// binCounts counts the available GPUs. upTo[class][offset[class][group]+bin] is the number of available
// GPUs of the group in this bin and all lower bins. inliers points to the same counts without outliers,
// which follow the other counts in upTo. For a group without outliers, inliers equals offset. The last
// entry of offset is the end of the counts with outliers.
type binCounts struct {
	upTo    [NumClasses][]uint16
	offset  [NumClasses][]int32
	inliers [NumClasses][]int32
}

// nodeState is a node as NewCluster received it, and the number of its place in each level.
type nodeState struct {
	Node
	at [TierCluster + 1]int32
}

// groupState is a device group. The GPUs of a group are consecutive and of one model.
type groupState struct {
	node, model  int32
	first, n     int32 // GPUs
	unhealthy    int32 // GPUs out of use (see outOfUse)
	hasSubdomain bool  // at least one GPU has a known island or NUMA node
	shared       bool  // see DeviceGroup
}

// gpuState is a GPU and whether it can be chosen. available depends on taken and on the GPU's
// health.
type gpuState struct {
	*GPU      // replaced, never changed, because clones share it
	group     int32
	taken     bool  // in use or promised
	available bool  // neither taken nor out of use (see outOfUse)
	outlier   uint8 // a bit per class, set if the GPU's score is above the threshold
}

// modelState contains the data that the device groups of one model share.
type modelState struct {
	name   string
	values [NumClasses][]PMScore // bin values, ascending
	scores [NumClasses][]scores  // lowest and highest score of the GPUs in each bin
	groups []uint64              // a bit per device group, set if it is of this model
	upTo   [NumClasses][]int32   // available GPUs up to each bin
}

// scores are the lowest and highest PM score in a bin.
type scores struct{ lowest, highest PMScore }

// with returns the smallest range that contains both the range r and the score s.
func (r scores) with(s PMScore) scores {
	if r.highest == 0 || s < r.lowest {
		r.lowest = s
	}
	r.highest = max(r.highest, s)
	return r
}

// levels contains the nodes, the racks and the datacenters of a cluster, by tier. The other tiers
// have no entry.
type levels [TierCluster + 1]level

// level contains the nodes, the racks or the datacenters, by number.
type level struct {
	groups [][]int32 // device groups of each, ascending
	free   []int32   // available GPUs of each
}

// NewCluster builds the state from nodes. The order of the nodes breaks ties. GPU ids must be
// unique, and every score a number ≥ 0.
func NewCluster(nodes []Node, l Locality) (*Cluster, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	b := builder{c: &Cluster{locality: l, byID: map[string]int32{}}, models: map[string]int32{}, places: map[placeName]int32{}}
	c := b.c
	for _, n := range nodes {
		if err := b.addNode(n); err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(c.groups, func(g groupState) bool { return g.shared }) {
		c.occupancies = make([]occupancy, len(c.gpus))
	}
	b.binScores()
	c.stateHash ^= hashOfTopology(c)
	return c, nil
}

// builder builds a cluster, and numbers the models and the places by name.
type builder struct {
	c      *Cluster
	models map[string]int32
	places map[placeName]int32
}

// placeName is the name of a node, a rack or a datacenter.
type placeName struct {
	tier Tier
	name string
}

// addNode appends a node and its device groups.
func (b *builder) addNode(n Node) error {
	// Racks of two datacenters can have the same name. A node without a rack is a rack by itself.
	// The second NUL keeps the key of such a node apart from the keys of racks.
	rack := n.Datacenter + "\x00" + n.Rack
	if n.Rack == "" {
		rack = n.Datacenter + "\x00\x00" + n.ID
	}
	ns := nodeState{Node: n}
	ns.at[TierNode] = b.number(TierNode, strconv.Itoa(len(b.c.nodes)))
	ns.at[TierRack] = b.number(TierRack, rack)
	ns.at[TierDatacenter] = b.number(TierDatacenter, n.Datacenter)
	for _, g := range n.Groups {
		if err := b.addGroup(&ns, g); err != nil {
			return fmt.Errorf("node %q: device group %q: %w", n.Name, g.Name, err)
		}
	}
	b.c.nodes = append(b.c.nodes, ns)
	b.c.resources = append(b.c.resources, n.Free)
	return nil
}

// number returns the number of a place. A new place gets the next number.
func (b *builder) number(t Tier, name string) int32 {
	l := &b.c.levels[t]
	i, ok := b.places[placeName{t, name}]
	if !ok {
		i = int32(len(l.groups))
		b.places[placeName{t, name}] = i
		l.groups = append(l.groups, nil)
		l.free = append(l.free, 0)
	}
	return i
}

// addGroup appends a device group of the next node.
func (b *builder) addGroup(n *nodeState, g DeviceGroup) error {
	c := b.c
	m, ok := b.models[g.Name]
	if !ok {
		m = int32(len(c.models))
		b.models[g.Name] = m
		c.models = append(c.models, modelState{name: g.Name})
	}
	gi := int32(len(c.groups))
	gs := groupState{node: n.at[TierNode], model: m, first: int32(len(c.gpus)), n: int32(len(g.GPUs)), shared: g.Shared}
	own := slices.Clone(g.GPUs)
	for i, u := range own {
		if err := checkGPU(u); err != nil {
			return err
		}
		_, dup := c.byID[u.ID]
		if dup {
			return fmt.Errorf("GPU %q occurs twice", u.ID)
		}
		c.byID[u.ID] = int32(len(c.gpus))
		gs.hasSubdomain = gs.hasSubdomain || u.NUMA != 0 || u.Island != 0
		c.gpus = append(c.gpus, gpuState{GPU: &own[i], group: gi})
	}
	c.groups = append(c.groups, gs)
	c.largestGroup = max(c.largestGroup, len(g.GPUs))
	for t := TierNode; t <= TierDatacenter; t++ {
		c.levels[t].groups[n.at[t]] = append(c.levels[t].groups[n.at[t]], gi)
	}
	return nil
}

// checkGPU returns an error if a score of the GPU is invalid, for example NaN.
func checkGPU(u GPU) error {
	for i := range NumClasses {
		if !(u.Scores[i] >= 0) || !(u.Binned[i] >= 0) {
			return fmt.Errorf("GPU %q: PM score %v of class %s is not a number ≥ 0", u.ID, u.Scores[i], AppClasses()[i])
		}
	}
	return nil
}

// binScores replaces each GPU's bin by the rank of its value within the model, then computes the
// counts.
func (b *builder) binScores() {
	c := b.c
	for k := range NumClasses {
		for i := range c.gpus {
			m := &c.models[c.groups[c.gpus[i].group].model]
			m.values[k] = append(m.values[k], binValue(c.gpus[i].GPU, k))
		}
		for m := range c.models {
			vs := c.models[m].values[k]
			slices.Sort(vs)
			c.models[m].values[k] = slices.Clip(slices.Compact(vs))
			c.models[m].scores[k] = make([]scores, len(c.models[m].values[k]))
		}
		c.ranks[k] = make([]uint16, len(c.gpus))
		size := int32(0)
		c.bins.offset[k] = []int32{0}
		for g := range c.groups {
			size += int32(len(c.models[c.groups[g].model].values[k]))
			c.bins.offset[k] = append(c.bins.offset[k], size)
		}
		// Until countOutliers is called, all groups count as having no outlier.
		c.bins.upTo[k], c.bins.inliers[k] = make([]uint16, size), c.bins.offset[k]
		for i := range c.gpus {
			m, value := &c.models[c.groups[c.gpus[i].group].model], binValue(c.gpus[i].GPU, k)
			r, _ := slices.BinarySearch(m.values[k], value)
			c.ranks[k][i] = uint16(r)
			score := c.gpus[i].Scores[k]
			if score > 0 && c.gpus[i].Degraded == "" {
				value = score
			}
			m.scores[k][r] = m.scores[k][r].with(value)
		}
	}
	b.buildIndex()
	for i := range c.gpus {
		u := &c.gpus[i]
		c.countUnhealthy(u.group, outOfUse(u.Health))
		c.refresh(i)
	}
}

// buildIndex builds the indexes for finding groups, with all counts at 0.
func (b *builder) buildIndex() {
	c := b.c
	words := (len(c.groups) + 63) / 64
	c.open, c.unhealthy = make([]uint64, words), make([]uint64, words)
	c.avail = make([]uint16, len(c.groups))
	c.size = make([]uint16, len(c.groups))
	c.nodeOf = make([]int32, len(c.groups))
	for m := range c.models {
		c.models[m].groups = make([]uint64, words)
		for k := range NumClasses {
			c.models[m].upTo[k] = make([]int32, len(c.models[m].values[k]))
		}
	}
	for k := range NumClasses {
		c.scales[k] = make([]*scale, len(c.models)+1)
	}
	for i := range c.groups {
		g := &c.groups[i]
		c.size[i], c.nodeOf[i] = uint16(g.n), g.node
		c.models[g.model].groups[i/64] |= 1 << (i % 64)
	}
}

// binValue returns the PM score of the GPU's bin. A GPU without a score counts as the median, so on
// a cluster without measurements all GPUs are equal.
func binValue(u *GPU, class int) PMScore {
	return cmp.Or(u.Binned[class], 1)
}

// refresh recomputes whether GPU i is available, and the counts that depend on it. Nothing else
// changes whether a GPU is available.
func (c *Cluster) refresh(i int) {
	u := &c.gpus[i]
	now := !u.taken && outOfUse(u.Health) == 0
	if now == u.available {
		return
	}
	u.available = now
	// Adding 65535 to a uint16 subtracts 1. The conversion to int16 restores the sign.
	d := uint16(1)
	if !now {
		d = ^uint16(0) // −1
	}
	g := &c.groups[u.group]
	for k := range NumClasses {
		ofModel := c.models[g.model].upTo[k]
		bins := len(ofModel)
		offset := c.bins.offset[k][u.group]
		inlier := c.bins.inliers[k][u.group]
		addUpTo(ofModel, c.ranks[k][i], int32(int16(d)))
		addUpTo(c.bins.upTo[k][offset:][:bins], c.ranks[k][i], d)
		if inlier != offset && u.outlier>>k&1 == 0 {
			addUpTo(c.bins.upTo[k][inlier:][:bins], c.ranks[k][i], d)
		}
		if u.outlier>>k&1 != 0 {
			c.outliers.free[k] += int(int16(d))
		}
	}
	c.avail[u.group] += d
	setBit(c.open, u.group, c.avail[u.group] > 0)
	c.free += int(int16(d))
	at := &c.nodes[g.node].at
	for t := TierNode; t <= TierDatacenter; t++ {
		c.levels[t].free[at[t]] += int32(int16(d))
	}
	c.stateHash ^= mix(uint64(i) + 1)
}

// addUpTo adds d to the counts of the bin `rank` and all higher bins.
func addUpTo[N uint16 | int32](upTo []N, rank uint16, d N) {
	for b := int(rank); b < len(upTo); b++ {
		upTo[b] += d
	}
}

// Take marks the GPUs of a placement as busy and takes the members' resources from their nodes.
// Take panics if a GPU is already taken.
func (c *Cluster) Take(g Gang, p Placement) { c.takeOrRelease(g, p, true) }

// Release undoes [Cluster.Take].
func (c *Cluster) Release(g Gang, p Placement) { c.takeOrRelease(g, p, false) }

// Vacate releases a placement in a what-if. The function `back` takes the placement again, and
// restores the occupants of its parts, because the cluster can describe them otherwise than g.
func (c *Cluster) Vacate(g Gang, p Placement) (back func()) {
	var was []occupancy
	if c.occupancies != nil {
		for _, u := range p.GPUs() {
			was = append(was, c.occupancies[u])
		}
	}
	c.Release(g, p)
	return func() {
		c.Take(g, p)
		if was == nil {
			return
		}
		for i, u := range p.GPUs() {
			c.SetOccupant(u, was[i].now)
			c.occupancies[u] = was[i]
		}
	}
}

// takeOrRelease implements Take and Release.
func (c *Cluster) takeOrRelease(g Gang, p Placement, taken bool) {
	times := -1 // factor of the members' needs, which are subtracted from the unallocated resources
	if taken {
		times = 1
	}
	for _, m := range p.Members {
		for _, u := range m.GPUs {
			if c.gpus[u].taken == taken {
				panic(fmt.Sprintf("pal: gang %q: GPU %q: taken is already %v", g.ID, c.gpus[u].ID, taken))
			}
			c.setTaken(u, taken, &g, len(m.GPUs))
		}
		n := int(c.groups[m.Group].node)
		c.SetFree(n, c.resources[n].Minus(g.MemberSets[m.MemberSet].Need, times))
	}
}

// SetTaken marks one GPU as busy or free, for allocations that do not belong to a gang.
func (c *Cluster) SetTaken(gpu int, taken bool) {
	if c.occupancies != nil && c.gpus[gpu].taken != taken {
		c.stateHash ^= hashOfOccupant(gpu, c.occupancies[gpu].now)
	}
	c.gpus[gpu].taken = taken
	c.refresh(gpu)
}

// SetHealth sets whether one GPU is unhealthy, quarantined or unavailable.
func (c *Cluster) SetHealth(gpu int, h Health) {
	u := &c.gpus[gpu]
	c.countUnhealthy(u.group, outOfUse(h)-outOfUse(u.Health))
	now := *u.GPU
	now.Health = h
	u.GPU = &now
	c.refresh(gpu)
}

// countUnhealthy adds n to the number of a group's GPUs that are out of use (see outOfUse).
func (c *Cluster) countUnhealthy(group, n int32) {
	g := &c.groups[group]
	g.unhealthy += n
	setBit(c.unhealthy, group, g.unhealthy > 0)
}

// setBit sets or clears the bit of a device group.
func setBit(bits []uint64, group int32, set bool) {
	bit := uint64(1) << (group % 64)
	if set {
		bits[group/64] |= bit
	} else {
		bits[group/64] &^= bit
	}
}

// SetFree replaces the unallocated resources of a node. A resource is negative if the node's
// allocations use more of it than the node now has.
func (c *Cluster) SetFree(node int, r Resources) {
	if r != c.resources[node] {
		c.stateHash ^= hashOfResources(node, c.resources[node]) ^ hashOfResources(node, r)
		c.resources[node] = r
	}
}

// outOfUse returns 1 for a GPU that cannot be chosen even if no job uses it, otherwise 0.
func outOfUse(h Health) int32 {
	if h == (Health{}) {
		return 0
	}
	return 1
}

// Free returns the unallocated resources of a node.
func (c *Cluster) Free(node int) Resources { return c.resources[node] }

// FreeGPUs returns the number of GPUs that can be chosen: see [Cluster.Available].
func (c *Cluster) FreeGPUs() int { return c.free }

// NumGPUs returns the number of all GPUs, available or not.
func (c *Cluster) NumGPUs() int { return len(c.gpus) }

// GPU describes GPU i, 0 ≤ i < NumGPUs.
func (c *Cluster) GPU(i int) GPU { return *c.gpus[i].GPU }

// Find returns the index of the GPU with the instance id, or -1 if there is none.
func (c *Cluster) Find(id string) int {
	if i, ok := c.byID[id]; ok {
		return int(i)
	}
	return -1
}

// Available reports whether GPU i can be chosen: it is not taken, and not unhealthy, quarantined or
// unavailable.
func (c *Cluster) Available(i int) bool { return c.gpus[i].available }

// Taken reports whether a GPU is in use or held for a job.
func (c *Cluster) Taken(i int) bool { return c.gpus[i].taken }

// GroupOf returns the index of the device group of GPU i.
func (c *Cluster) GroupOf(i int) int { return int(c.gpus[i].group) }

// Groups returns the number of device groups; MemberSet.Eligible has an entry for each.
func (c *Cluster) Groups() int { return len(c.groups) }

// Group identifies device group i by its node's index and its name, vendor/type/name.
func (c *Cluster) Group(i int) (node int, name string) {
	return int(c.groups[i].node), c.models[c.groups[i].model].name
}

// GroupGPUs returns the range of GPU indices of device group i.
func (c *Cluster) GroupGPUs(i int) (first, n int) {
	return int(c.groups[i].first), int(c.groups[i].n)
}

// NumNodes returns the number of nodes.
func (c *Cluster) NumNodes() int { return len(c.nodes) }

// Node describes node i as it was given to [NewCluster]; [Cluster.Free] has its current free
// resources.
func (c *Cluster) Node(i int) Node { return c.nodes[i].Node }
