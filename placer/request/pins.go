// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Pins returns the pins that restrict the request to the placement. In class mode, the pins name
// nodes and a class ceiling. The ceiling is the highest class of the chosen GPUs, so that Nomad can
// use any GPU that is as good. The pins name GPUs only if some GPUs of these nodes are excluded or
// outliers, or if the gang gets parts of certain GPUs.
func (v *View) Pins(r Request, p pal.Placement) rewrite.Pins {
	pins := rewrite.Pins{Mode: r.Mode}
	groups := map[string]*rewrite.GroupPins{}
	open := false // true if some GPU has no published class; then there is no ceiling
	for _, m := range p.Members {
		name := r.Gang.MemberSets[m.MemberSet].Name
		g := groups[name]
		if g == nil {
			g = &rewrite.GroupPins{Group: name, Spread: r.Gang.Replicas}
			groups[name] = g
		}
		g.Nodes = append(g.Nodes, v.GroupNode(m.Group).ID)
		for _, u := range m.GPUs {
			gpu := v.Cluster.GPU(u)
			g.GPUs = append(g.GPUs, gpu.ID)
			class := publishedClass(v.Ledger, m.Group, gpu.ID, r.Gang.Class)
			open = open || class == 0
			pins.Ceiling = max(pins.Ceiling, class)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		slices.Sort(g.Nodes)
		g.Nodes = slices.Compact(g.Nodes)
		slices.Sort(g.GPUs)
		switch {
		case r.Gang.Sharing != nil && r.Mode == rewrite.ModeClass: // Nomad may choose other parts of these GPUs
			g.GPUs = partsOf(v.Ledger, g.GPUs)
		case r.Mode == rewrite.ModeClass:
			g.GPUs = v.usable(g.Nodes)
		case r.Mode == rewrite.ModePrefer:
			g.GPUs = nil
		}
		pins.Groups = append(pins.Groups, *g)
	}
	if r.Mode == rewrite.ModeClass && !open {
		pins.Class = r.Gang.Class
	} else {
		pins.Ceiling = 0
	}
	if r.Elastic != nil {
		v.elasticPins(r, p, &pins)
	}
	if p.PMScore <= pal.PMScore(v.opts.OutlierThreshold) {
		v.barOutliers(r, &pins)
	}
	return pins
}

// PinsToNodes returns pins for a gang that is to be handed over to Nomad. The pins name only nodes,
// so the placer can take them off without a restart (see [rewrite.HandOver]). The pins name GPUs
// only if the gang shares GPUs, or if some GPUs of the nodes are excluded.
func (v *View) PinsToNodes(r Request, p pal.Placement) rewrite.Pins {
	if r.Mode == rewrite.ModePrefer { // they keep Nomad from nothing
		return v.Pins(r, p)
	}
	r.Mode = rewrite.ModeClass
	pins := v.Pins(r, p)
	pins.Class, pins.Ceiling = "", 0
	for i := range pins.Groups {
		g := &pins.Groups[i]
		g.Spread = false
		if r.Gang.Sharing == nil {
			g.GPUs = v.usable(g.Nodes)
		}
	}
	return pins
}

// barOutliers removes outliers from class pins that would allow them. Pins allow an outlier if they
// have no ceiling, or if the outlier's class also contains other GPUs. The pins then name all the
// other GPUs, because Nomad does not know which GPUs are outliers.
func (v *View) barOutliers(r Request, pins *rewrite.Pins) {
	if pins.Mode != rewrite.ModeClass || v.opts.OutlierThreshold == 0 {
		return
	}
	for i := range pins.Groups {
		g := &pins.Groups[i]
		all := g.GPUs
		if all == nil {
			all = gpusOf(v.Ledger, g.Nodes)
		}
		good := slices.DeleteFunc(slices.Clone(all), func(id string) bool {
			u := v.Cluster.Find(id)
			return u >= 0 && v.outlier(u, r.Gang.Class) && v.allows(*pins, g.Group, u, r.Gang.Class)
		})
		if len(good) < len(all) {
			g.GPUs = good
		}
	}
}

// allows reports whether [rewrite.ModeClass] pins let Nomad give GPU u to the group.
func (v *View) allows(p rewrite.Pins, group string, u int, class pal.AppClass) bool {
	g, ok := p.Of(group)
	if !ok || !slices.Contains(g.Nodes, v.GPUNode(u).ID) || g.GPUs != nil && !slices.Contains(g.GPUs, v.Cluster.GPU(u).ID) {
		return false
	}
	c := v.classOfGPU(u, class)
	return p.Ceiling == 0 || c != 0 && c <= p.Ceiling
}

// outlier reports whether GPU u is an outlier for jobs of the class.
func (v *View) outlier(u int, class pal.AppClass) bool {
	return v.Cluster.GPU(u).Scores[class.Index()] > pal.PMScore(v.opts.OutlierThreshold)
}

// usable returns the GPUs of the nodes, sorted, without the excluded GPUs. Pins have to name these
// GPUs, because Nomad does not know which GPUs are excluded. If no GPU is excluded, usable returns
// nil.
func (v *View) usable(nodes []string) []string {
	all := gpusOf(v.Ledger, nodes)
	ids := slices.DeleteFunc(slices.Clone(all), func(id string) bool {
		return v.opts.Ledger.Quarantined[attr.GPUOf(id)] || v.opts.Ledger.Unavailable[id] != ""
	})
	if len(ids) == len(all) {
		return nil
	}
	return ids
}

// partsOf returns all parts of the shared GPUs to which the given parts belong, sorted.
func partsOf(v *ledger.Ledger, parts []string) (all []string) {
	for _, id := range parts {
		first, n := v.Cluster.GroupGPUs(v.Cluster.GroupOf(v.Cluster.Find(id)))
		for u := first; u < first+n; u++ {
			all = append(all, v.Cluster.GPU(u).ID)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// gpusOf returns the GPUs of the nodes, sorted.
func gpusOf(v *ledger.Ledger, nodes []string) []string {
	ids := []string{}
	for i, d := range v.Devices {
		if slices.Contains(nodes, v.GroupNode(i).ID) {
			ids = append(ids, cluster.InstanceIDs(d)...)
		}
	}
	slices.Sort(ids)
	return ids
}

// Pin returns the job with exactly these pins: see [rewrite.Pin].
func (v *View) Pin(job *api.Job, p rewrite.Pins) (*api.Job, error) {
	return rewrite.Pin(job, p, v.racks(p.Nodes()))
}

// racksShare is the largest share of the cluster's GPU nodes that the racks named in a job may
// contain. If racks contain more nodes, naming them would exclude too few nodes to be worthwhile.
const racksShare = 0.25

// racks returns the racks of the nodes. racks returns none if a node's rack is unknown, or if the
// racks contain more than racksShare of the cluster's nodes.
func (v *View) racks(nodes []string) rewrite.Racks {
	in := map[string]bool{}
	for _, id := range nodes {
		i, ok := v.NodeOf[id]
		if !ok || v.Nodes[i].Meta[v.opts.Ledger.RackMeta] == "" {
			return rewrite.Racks{}
		}
		in[v.Nodes[i].Meta[v.opts.Ledger.RackMeta]] = true
	}
	held := 0
	for name := range in {
		held += v.InRack[name]
	}
	if float64(held) > racksShare*float64(len(v.Nodes)) {
		return rewrite.Racks{}
	}
	return rewrite.Racks{Meta: v.opts.Ledger.RackMeta, Names: slices.Sorted(maps.Keys(in))}
}

// classOfGPU returns the published class of GPU u.
func (v *View) classOfGPU(u int, class pal.AppClass) int {
	return publishedClass(v.Ledger, v.Cluster.GroupOf(u), v.Cluster.GPU(u).ID, class)
}

// publishedClass returns the variability class that the node itself publishes for a GPU, or 0 if it
// publishes none. Nomad checks class ceilings against the published class. Until the node has read
// a new profile, the published class can differ from the class in the profile.
func publishedClass(v *ledger.Ledger, group int, gpu string, class pal.AppClass) int {
	for k := 1; k <= profile.MaxClass; k++ {
		if slices.Contains(attr.SplitIDs(cluster.TextOf(v.Devices[group], attr.List(class, k))), gpu) {
			return k
		}
	}
	return 0
}
