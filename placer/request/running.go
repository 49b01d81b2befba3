// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Running returns the placement of the running job: the members that hold the owned GPUs.
func (v *View) Running(r Request, owned []int) pal.Placement {
	ms := v.dealt(r, owned)
	if r.Elastic != nil {
		ms = v.inOrder(r, owned)
	}
	if len(ms) == 0 {
		return pal.Placement{PMScore: 1, Penalty: 1}
	}
	return pal.Predict(v.Cluster, r.Gang, ms)
}

// dealt returns members that together hold the GPUs. Only live allocations and pins show which
// member set holds which GPU. Within a device group, it makes no difference to the slowdown which
// member holds which GPU, so dealt distributes the GPUs in order.
func (v *View) dealt(r Request, owned []int) (ms []pal.Member) {
	if len(r.Gang.MemberSets) == 0 { // the job's current version cannot be served
		return nil
	}
	perMember := make([]int, len(r.Gang.MemberSets))
	for i, s := range r.Gang.MemberSets {
		perMember[i] = s.GPUs
	}
	setOf := map[string]int{} // GPU id → member set
	for i, s := range r.Gang.MemberSets {
		for _, a := range v.State.ByJob[r.Key] {
			if a.Group == s.Name && a.Live() {
				for _, id := range a.GPUs {
					setOf[id] = i
				}
			}
		}
	}
	pins, _ := rewrite.Pinned(r.Job)
	for i, s := range r.Gang.MemberSets {
		if gp, ok := pins.Of(s.Name); ok {
			for _, id := range gp.GPUs {
				setOf[id] = i
			}
		}
	}
	// Members of one set in one device group are equivalent, so distribute the GPUs in order.
	type where struct{ set, group int }
	byGroup := map[where][]int{}
	for _, u := range owned {
		w := where{setOf[v.Cluster.GPU(u).ID], v.Cluster.GroupOf(u)}
		byGroup[w] = append(byGroup[w], u)
	}
	for _, w := range slices.SortedFunc(maps.Keys(byGroup), func(a, b where) int {
		return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.group, b.group))
	}) {
		for chunk := range slices.Chunk(byGroup[w], max(1, perMember[w.set])) {
			ms = append(ms, pal.Member{MemberSet: w.set, Group: w.group, GPUs: chunk})
		}
	}
	return ms
}
