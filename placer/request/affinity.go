// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/constraint"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// maxPreferences is the maximum number of preferences of a request. Each preference can cost a
// search.
const maxPreferences = 8

// preferred turns the affinities of the job, the group, its tasks and its device requests into
// preferences. Each preference is a set of device groups. The first preference contains the device
// groups with the highest sum of weights, the second the groups with the two highest sums, and so
// on. If all device groups have the same sum, preferred returns nil.
func (v *View) preferred(job *api.Job, a gpuRequest, may []bool) [][]bool {
	sums := make([]int, len(v.Devices))
	var distinct []int
	for i, d := range v.Devices {
		if may[i] {
			sums[i] = a.affinityWeight(job, d, v.GroupNode(i))
			distinct = append(distinct, sums[i])
		}
	}
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	var out [][]bool
	for k := len(distinct) - 1; k > 0 && len(out) < maxPreferences; k-- {
		set := make([]bool, len(may))
		for i := range set {
			set[i] = may[i] && sums[i] >= distinct[k]
		}
		out = append(out, set)
	}
	return out
}

// affinityWeight returns the sum of the weights of the affinities that the device group and its
// node meet.
func (a gpuRequest) affinityWeight(job *api.Job, d *api.NodeDeviceResource, n *api.Node) int {
	sum := 0
	add := func(as []*api.Affinity, met func(*api.Constraint) bool) {
		for _, f := range as {
			if met(&api.Constraint{LTarget: f.LTarget, RTarget: f.RTarget, Operand: f.Operand}) {
				sum += weight(f.Weight)
			}
		}
	}
	onNode := func(c *api.Constraint) bool { return constraint.NodeMeets(c, n) }
	add(job.Affinities, onNode)
	add(a.group.Affinities, onNode)
	for _, t := range a.group.Tasks {
		add(t.Affinities, onNode)
	}
	for _, r := range a.requests {
		add(r.Affinities, func(c *api.Constraint) bool { return constraint.DeviceMeets(c, d) })
	}
	return sum
}

// weight returns the weight of an affinity or a spread, or Nomad's default, 50, if none is set.
func weight(said *int8) int {
	if said == nil {
		return 50
	}
	return int(*said)
}

// leavesModelOpen reports whether none of a.requests names a GPU model.
func (a gpuRequest) leavesModelOpen() bool {
	return !slices.ContainsFunc(a.requests, func(r *api.RequestedDevice) bool { return rewrite.NamesModel(r.Name) })
}

// Avoid makes the gang prefer nodes other than the given ones. The new preference comes first. If
// the gang fits nowhere else, it still uses the given nodes.
func (v *View) Avoid(r *Request, nodes map[string]bool) {
	names := slices.Sorted(maps.Keys(nodes))
	for i := range r.Gang.MemberSets {
		s := &r.Gang.MemberSets[i]
		if len(s.Eligible) == 0 {
			continue
		}
		key := fmt.Sprintf("%p %q", &s.Eligible[0], names)
		prefer, ok := v.avoiding[key]
		if !ok {
			for _, set := range append(slices.Clone(s.Prefer), s.Eligible) {
				set = slices.Clone(set)
				for g := range set {
					set[g] = set[g] && !nodes[v.GroupNode(g).Name]
				}
				prefer = append(prefer, set)
			}
			prefer = append(prefer, s.Prefer...)
			v.avoiding[key] = prefer
		}
		s.Prefer = prefer
	}
}
