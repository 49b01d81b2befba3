// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"cmp"
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
)

// ViewOptions say how Nomad's state becomes a cluster.
type ViewOptions struct {
	Locality pal.Locality
	// Profile gives the PM scores; nil: nothing is measured.
	Profile *profile.Profile
	// RackMeta is the node meta key that names a node's rack.
	RackMeta string
	// Quarantined GPUs, by instance id, are not chosen.
	Quarantined map[string]bool
	// Unavailable says of GPUs, by instance id, why they are not chosen although
	// Nomad counts them as free.
	Unavailable map[string]string
	// Apps maps `pal_app` to application classes; DefaultClass is for jobs that
	// say nothing.
	Apps         map[string]pal.AppClass
	DefaultClass pal.AppClass
	// DefaultPreempt says whether batch jobs of a namespace and class may be stopped that do not say
	// so themselves, and where that is said; nil: none may.
	DefaultPreempt func(namespace string, class pal.AppClass) (may bool, from string)
	// Learned gives the class that was learned for jobs that say nothing; nil:
	// nothing is.
	Learned func(*api.Job) (pal.AppClass, bool)
	// Children: dispatched and periodic jobs can be registered.
	Children bool
	// Held are GPUs that a decision under way has given out, by job.
	Held map[JobKey][]string
	// Completing are GPUs of gangs that are about to end, by job: they come free
	// together.
	Completing map[JobKey][]string
	// OutlierThreshold is the PM score above which a GPU is an outlier; 0: none is.
	OutlierThreshold float64
}

// View is the cluster as the core sees it, kept up to date with [View.Update].
type View struct {
	Cluster *pal.Cluster
	opts    ViewOptions
	state   *State
	without []JobKey
	nodes   []*api.Node               // as in Cluster
	devices []*api.NodeDeviceResource // as the cluster's device groups
	nodeOf  map[string]int            // node id → index
	inRack  map[string]int            // nodes by the name of their rack
	owner   []JobKey                  // per GPU: who holds it, or is promised it
	holds   map[JobKey][]int          // the same by owner, ascending
	wants   map[JobKey]holding        // all that count for something
	rivals  map[int][]JobKey          // where several want one GPU
	free    []pal.Resources           // per node
	seen    Mark                      // the state's changes up to here are in
	moved   []pal.Placement           // taken or released in Cluster since
	epoch   uint64                    // grows when eligibility changes
	changes uint64                    // see Changes
	shifted []JobKey                  // see Shifted
	// eligibility caches which device groups may serve an ask, by its text.
	eligibility map[string]eligibility
	// lasting caches what lastingly keeps asks from nodes.
	lasting map[string][]Obstacle
	// avoiding caches preferences that leave out nodes, by those and what is
	// eligible: the queue tells kinds of gangs by their slices.
	avoiding map[string][][]bool
	// givenBins are the bins of the profile that the plugins were given.
	givenBins map[binKey]pal.PMScore
}

// View builds the cluster from the state: nodes by name, then id; instances by
// id. GPUs of live allocations and those promised to pinned jobs are taken.
// Allocations and pins of the jobs in without count as if they were not there. What
// nodes say cannot make it fail, only the options can: see [State.NodeWarnings].
func (s *State) View(o ViewOptions, without ...JobKey) (*View, error) {
	v := &View{opts: o, state: s, without: without, nodeOf: map[string]int{}, inRack: map[string]int{}, holds: map[JobKey][]int{}, eligibility: map[string]eligibility{}, lasting: map[string][]Obstacle{}, avoiding: map[string][][]bool{}}
	v.nodes = slices.Clone(s.gpuNodes())
	ns := make([]pal.Node, len(v.nodes))
	for i, n := range v.nodes {
		v.nodeOf[n.ID] = i
		v.inRack[n.Meta[o.RackMeta]]++
		ns[i] = v.node(n)
	}
	c, err := pal.NewCluster(ns, o.Locality)
	if err != nil {
		return nil, fmt.Errorf("building the view of the cluster: %w", err)
	}
	v.Cluster = c
	v.owner = make([]JobKey, c.NumGPUs())
	v.refresh()
	return v, nil
}

// Update brings the view up to date with the state. It returns false where
// that takes a new view: the GPUs themselves, what is known of them, or the
// options changed.
func (v *View) Update(s *State, o ViewOptions) bool {
	nodes := s.gpuNodes()
	if len(nodes) != len(v.nodes) || o.Profile != v.opts.Profile || o.Locality != v.opts.Locality {
		return false
	}
	changed := false
	for i, n := range nodes { // a few pointers to compare, where nothing changed
		if n == v.nodes[i] {
			continue
		}
		if !sameInventory(n, v.nodes[i], o.RackMeta) {
			return false
		}
		v.nodes[i] = n
		changed = true
	}
	if changed {
		clear(v.eligibility)
		clear(v.lasting)
		clear(v.avoiding)
		v.epoch++
		v.devices = v.devices[:0]
		for _, n := range v.nodes {
			v.devices = append(v.devices, GPUDevices(n)...)
		}
	}
	unhealthy := changed || !maps.Equal(o.Quarantined, v.opts.Quarantined) || !maps.Equal(o.Unavailable, v.opts.Unavailable)
	before := v.opts
	v.state, v.opts = s, o
	if keys, now, known := s.Touched(v.seen); known && !changed {
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

// gpuNodes are the nodes with GPUs of their own, in the view's order.
func (s *State) gpuNodes() []*api.Node {
	if s.sorted != nil {
		return s.sorted
	}
	nodes, conflicts := []*api.Node{}, map[conflict][]string{}
	for _, n := range s.Nodes {
		if len(GPUDevices(n)) == 0 {
			continue
		}
		if n = s.owned(n, conflicts); n != nil {
			nodes = append(nodes, n)
		}
	}
	s.warn(conflicts)
	slices.SortFunc(nodes, func(a, b *api.Node) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	s.sorted = nodes
	return nodes
}

// sameInventory says whether two forms of a node differ at most in status,
// health, and what the core does not see.
func sameInventory(a, b *api.Node, rackMeta string) bool {
	if a.ID != b.ID || a.Name != b.Name || a.Datacenter != b.Datacenter || a.Meta[rackMeta] != b.Meta[rackMeta] {
		return false
	}
	return slices.EqualFunc(GPUDevices(a), GPUDevices(b), func(x, y *api.NodeDeviceResource) bool {
		return x.Name == y.Name && slices.Equal(instanceIDs(x), instanceIDs(y)) && samePublished(x, y) &&
			maps.Equal(domains(x, numaPrefix), domains(y, numaPrefix)) &&
			maps.Equal(domains(x, islandPrefix), domains(y, islandPrefix))
	})
}

// groupNode is the node of a device group, gpuNode that of GPU u.
func (v *View) groupNode(group int) *api.Node {
	i, _ := v.Cluster.Group(group)
	return v.nodes[i]
}

func (v *View) gpuNode(u int) *api.Node { return v.groupNode(v.Cluster.GroupOf(u)) }

func hasGPUs(r *api.NodeResources) bool { return r != nil && slices.ContainsFunc(r.Devices, isGPU) }

func isGPU(d *api.NodeDeviceResource) bool {
	return d != nil && d.Vendor == attr.Vendor && d.Type == attr.Type
}

// GPUDevices are the node's groups of GPUs, by name.
func GPUDevices(n *api.Node) []*api.NodeDeviceResource {
	if n.NodeResources == nil {
		return nil
	}
	ds := slices.DeleteFunc(slices.Clone(n.NodeResources.Devices), func(d *api.NodeDeviceResource) bool { return !isGPU(d) })
	slices.SortStableFunc(ds, func(a, b *api.NodeDeviceResource) int { return strings.Compare(a.Name, b.Name) })
	return ds
}

func (v *View) node(n *api.Node) pal.Node {
	out := pal.Node{ID: n.ID, Name: n.Name, Rack: n.Meta[v.opts.RackMeta], Datacenter: n.Datacenter}
	for _, d := range GPUDevices(n) {
		v.devices = append(v.devices, d)
		out.Groups = append(out.Groups, v.deviceGroup(n, d))
	}
	return out
}

func (v *View) deviceGroup(n *api.Node, d *api.NodeDeviceResource) pal.DeviceGroup {
	numa, island := domains(d, numaPrefix), domains(d, islandPrefix)
	g := pal.DeviceGroup{Name: d.Vendor + "/" + d.Type + "/" + d.Name}
	said := v.published(d)
	for _, in := range d.Instances {
		u := pal.GPU{
			ID: in.ID, Unhealthy: !in.Healthy, Quarantined: v.opts.Quarantined[in.ID], Unavailable: v.unavailable(n, in.ID) != "",
			NUMA: numa[in.ID], Island: island[in.ID],
		}
		if p := v.opts.Profile; p != nil {
			for i, class := range pal.AppClasses() {
				if e, ok := p.Lookup(in.ID, class); ok && finite(e.Score) && finite(e.Value) {
					u.Scores[i], u.Binned[i], u.Classes[i] = e.Score, e.Value, uint8(e.Class)
				}
			}
		}
		said.rate(&u)
		g.GPUs = append(g.GPUs, u)
	}
	slices.SortFunc(g.GPUs, func(a, b pal.GPU) int { return strings.Compare(a.ID, b.ID) })
	return g
}

// finite says whether the core takes a score.
func finite(s pal.PMScore) bool { return s >= 0 && !math.IsInf(float64(s), 0) }

const (
	numaPrefix   = "unique.numa_"
	islandPrefix = "unique.nvlink_island_"
)

// domains reads list attributes whose names end in a number: instance id →
// number + 1.
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
