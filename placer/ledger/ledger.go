// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Options say how the ledger turns Nomad's state into a cluster.
type Options struct {
	Locality pal.Locality
	// Profile contains the PM scores, or is nil if no GPU is measured.
	Profile *profile.Profile
	// RackMeta is the key in a node's meta whose value names the node's rack.
	RackMeta string
	// Quarantined contains the instance ids of the GPUs that must not be chosen because they are in
	// quarantine.
	Quarantined map[string]bool
	// Unavailable has the reasons why GPUs must not be chosen although Nomad counts them as free,
	// by instance id.
	Unavailable map[string]string
	// Reserved maps each job to the GPUs that a current decision has given to the job.
	Reserved map[cluster.JobKey][]string
	// Ending maps each gang that is about to end to the gang's GPUs. The ledger counts all GPUs of
	// an ending gang as allocated until all of them can become free together.
	Ending map[cluster.JobKey][]string
	// Occupant describes a job to the other jobs that share a GPU with it. Occupant is nil if
	// nothing is known about the jobs.
	Occupant func(cluster.JobKey) pal.Occupant
}

// Ledger holds the cluster in the core's form, and the job that holds each GPU. [Ledger.Update]
// keeps the Ledger up to date.
type Ledger struct {
	Cluster *pal.Cluster
	opts    Options
	State   *cluster.State
	without []cluster.JobKey
	Nodes   []*api.Node                // in the order of Cluster's nodes
	Devices []*api.NodeDeviceResource  // in the order of Cluster's device groups
	Slots   []attr.Slot                // where each GPU is in its node, in the order of Cluster's GPUs
	NodeOf  map[string]int             // node id → index
	InRack  map[string]int             // rack → number of its nodes
	owner   []cluster.JobKey           // per GPU: the job that holds it, or to which it is promised
	holds   map[cluster.JobKey][]int   // owner, by job: GPUs in ascending order
	wants   map[cluster.JobKey]holding // what each job holds or is promised
	rivals  map[int][]cluster.JobKey   // for GPUs that several jobs claim
	free    []pal.Resources            // per node
	seen    cluster.Mark               // up to where the ledger has read the state's changes
	moved   []pal.Placement            // placements taken or released in Cluster since the last update
	epoch   uint64                     // see Epoch
	changes uint64                     // see Changes
	shifted []cluster.JobKey           // see TakeShifted
	// givenBins contains the bins of the profile that the plugins loaded from a file.
	givenBins map[binKey]pal.PMScore
	speeds    []palapi.ModelSpeed // see ModelSpeeds; nil if not computed yet
}

// New builds a ledger from the state. New sorts nodes by name, then by id, and instances by id.
// GPUs that live allocations or pins hold count as allocated. New ignores the allocations and pins
// of the excluded jobs (without). New fails only if the options are invalid. Invalid data of a node
// causes only warnings (see [cluster.State.NodeWarnings]).
func New(s *cluster.State, o Options, without ...cluster.JobKey) (*Ledger, error) {
	v := &Ledger{opts: o, State: s, without: without, NodeOf: map[string]int{}, InRack: map[string]int{}, holds: map[cluster.JobKey][]int{}}
	v.Nodes = slices.Clone(s.GPUNodes())
	ns := make([]pal.Node, len(v.Nodes))
	for i, n := range v.Nodes {
		v.NodeOf[n.ID] = i
		v.InRack[n.Meta[o.RackMeta]]++
		ns[i] = v.node(n)
	}
	c, err := pal.NewCluster(ns, o.Locality)
	if err != nil {
		return nil, fmt.Errorf("building the GPU ledger: %w", err)
	}
	v.Cluster = c
	v.owner = make([]cluster.JobKey, c.NumGPUs())
	v.refresh()
	return v, nil
}

// Update updates the ledger from the state. Update returns false if the caller must build a new
// ledger. The ledger must be rebuilt after a change of the GPUs, of the data that nodes publish
// about GPUs, of the profile, or of the locality penalties.
func (v *Ledger) Update(s *cluster.State, o Options) bool {
	nodes := s.GPUNodes()
	if len(nodes) != len(v.Nodes) || o.Profile != v.opts.Profile || o.Locality != v.opts.Locality {
		return false
	}
	changed := false
	for i, n := range nodes { // cheap if nothing has changed
		if n == v.Nodes[i] {
			continue
		}
		if !sameInventory(n, v.Nodes[i], o.RackMeta) {
			return false
		}
		v.Nodes[i] = n
		changed = true
	}
	if changed {
		v.epoch++
		v.Devices = v.Devices[:0]
		for _, n := range v.Nodes {
			v.Devices = append(v.Devices, cluster.GPUDevices(n)...)
		}
	}
	unhealthy := changed || !maps.Equal(o.Quarantined, v.opts.Quarantined) || !maps.Equal(o.Unavailable, v.opts.Unavailable)
	before := v.opts
	v.State, v.opts = s, o
	keys, now, known := s.Touched(v.seen)
	if known && !changed {
		v.seen = now
		v.refreshJobs(keys, before)
	} else {
		v.refresh()
	}
	if unhealthy {
		v.refreshHealth()
	}
	return true
}

// sameInventory reports whether two versions of a node differ only in status, health and fields
// that the core does not use.
func sameInventory(a, b *api.Node, rackMeta string) bool {
	if a.ID != b.ID || a.Name != b.Name || a.Datacenter != b.Datacenter || a.Meta[rackMeta] != b.Meta[rackMeta] {
		return false
	}
	return slices.EqualFunc(cluster.GPUDevices(a), cluster.GPUDevices(b), func(x, y *api.NodeDeviceResource) bool {
		return x.Name == y.Name && slices.Equal(cluster.InstanceIDs(x), cluster.InstanceIDs(y)) && samePublished(x, y) &&
			maps.Equal(domains(x, numaPrefix), domains(y, numaPrefix)) &&
			maps.Equal(domains(x, islandPrefix), domains(y, islandPrefix))
	})
}

// GroupNode returns the node to which a device group belongs.
func (v *Ledger) GroupNode(group int) *api.Node {
	i, _ := v.Cluster.Group(group)
	return v.Nodes[i]
}

// GPUNode returns the node to which GPU u belongs.
func (v *Ledger) GPUNode(u int) *api.Node { return v.GroupNode(v.Cluster.GroupOf(u)) }

func (v *Ledger) node(n *api.Node) pal.Node {
	out := pal.Node{ID: n.ID, Name: n.Name, Rack: n.Meta[v.opts.RackMeta], Datacenter: n.Datacenter}
	for _, d := range cluster.GPUDevices(n) {
		v.Devices = append(v.Devices, d)
		out.Groups = append(out.Groups, v.deviceGroup(n, d))
	}
	return out
}

func (v *Ledger) deviceGroup(n *api.Node, d *api.NodeDeviceResource) pal.DeviceGroup {
	numa, island := domains(d, numaPrefix), domains(d, islandPrefix)
	g := pal.DeviceGroup{Name: d.Vendor + "/" + d.Type + "/" + d.Name, Shared: d.Type == attr.SharedType}
	said := v.published(d)
	for _, in := range d.Instances {
		u := pal.GPU{ID: in.ID, Health: v.health(n, in), NUMA: numa[in.ID], Island: island[in.ID]}
		p := v.opts.Profile
		if p != nil {
			for i, class := range pal.AppClasses() {
				if e, ok := p.Lookup(attr.GPUOf(in.ID), class); ok && finite(e.Score) && finite(e.Value) {
					u.Scores[i] = e.Score
					u.Binned[i] = e.Value
					u.Classes[i] = uint8(e.Class)
				}
			}
		}
		said.rate(&u)
		g.GPUs = append(g.GPUs, u)
	}
	slices.SortFunc(g.GPUs, func(a, b pal.GPU) int { return strings.Compare(a.ID, b.ID) })
	slots := cluster.SlotsOf(d)
	for _, u := range g.GPUs {
		v.Slots = append(v.Slots, slots[u.ID])
	}
	return g
}

// finite reports whether a score is a finite number, as the core requires.
func finite(s pal.PMScore) bool { return s >= 0 && !math.IsInf(float64(s), 0) }

const (
	numaPrefix   = "unique.numa_"
	islandPrefix = "unique.nvlink_island_"
)

// domains parses the list attributes whose names end in a number. domains maps each instance id in
// such a list to this number plus 1.
func domains(d *api.NodeDeviceResource, prefix string) map[string]uint16 {
	m := map[string]uint16{}
	for name, a := range d.Attributes {
		number, ok := strings.CutPrefix(name, prefix)
		if !ok || a == nil || a.StringVal == nil {
			continue
		}
		if n, err := strconv.ParseUint(number, 10, 15); err == nil {
			for _, id := range attr.SplitIDs(*a.StringVal) {
				m[id] = uint16(n) + 1
			}
		}
	}
	return m
}
