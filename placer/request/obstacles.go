// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/constraint"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Obstacles returns what keeps the job's groups with GPUs off nodes with GPUs. Within a group, the
// obstacles are sorted by the number of nodes. If sparing is not "", the job does not use GPUs that
// are outliers for this application class.
func (v *View) Obstacles(job *api.Job, sparing pal.AppClass) []palapi.Obstacle {
	groups := groupsByNode(v.Ledger)
	return eachAsk(job, func(author *api.Job, a gpuRequest) []palapi.Obstacle {
		ports := staticPorts(a.group)
		inUse := v.portsInUse(cluster.KeyOf(job), len(ports))
		few := v.eligible(author, a).few
		return v.count(a, func(i int) []palapi.Lack {
			lacks := v.lastingLacks(author, a, i, groups[i], few)
			if len(lacks) > 0 {
				return lacks
			}
			l, is := v.passingLack(a, i, groups[i], sparing)
			if is {
				return []palapi.Lack{l}
			}
			used := inUse[v.Nodes[i].ID]
			l, is = firstPort(LackFreePort, ports, func(port int) bool { return used[port] >= addresses(v.Nodes[i]) })
			if is {
				return []palapi.Lack{l}
			}
			return nil
		})
	})
}

// LastingObstacles returns the obstacles that do not end when jobs end; nodes that are away also
// count as obstacles. Equal requests share one pass over the nodes.
func (v *View) LastingObstacles(job *api.Job) []palapi.Obstacle {
	return eachAsk(job, func(author *api.Job, a gpuRequest) []palapi.Obstacle {
		key := fmt.Sprintf("%s %d %+v", eligibilityKey(author, a), a.gpus, cluster.Need(a.group))
		found, known := v.lasting[key]
		if !known {
			if len(v.lasting) >= eligibilityKept {
				clear(v.lasting)
			}
			groups := groupsByNode(v.Ledger)
			few := v.eligible(author, a).few
			found = v.count(a, func(i int) []palapi.Lack {
				lacks := v.lastingLacks(author, a, i, groups[i], few)
				why := cluster.NotReady(v.Nodes[i])
				if len(lacks) == 0 && why != "" {
					return []palapi.Lack{{Kind: LackReady, Name: why}}
				}
				return lacks
			})
			v.lasting[key] = found
		}
		return slices.Clone(found)
	})
}

// groupsByNode returns, for each node, its device groups.
func groupsByNode(v *ledger.Ledger) [][]int {
	groups := make([][]int, len(v.Nodes))
	for gi := range v.Devices {
		node, _ := v.Cluster.Group(gi)
		groups[node] = append(groups[node], gi)
	}
	return groups
}

// eachAsk calls find for each group with GPUs of the job, as its author wrote it, and joins the
// results.
func eachAsk(job *api.Job, find func(author *api.Job, a gpuRequest) []palapi.Obstacle) (out []palapi.Obstacle) {
	author := rewrite.Author(job)
	for _, g := range author.TaskGroups {
		a, err := gpuRequestOf(g)
		if err != nil || a.gpus == 0 {
			continue
		}
		found := find(author, a)
		for i := range found {
			found[i].Group = *g.Name
		}
		out = append(out, found...)
	}
	return out
}

// count counts, for each lack, the nodes that it excludes. If all nodes share some lacks, count
// returns only the shared lacks, each with the reason why no node can meet it.
func (v *View) count(a gpuRequest, look func(node int) []palapi.Lack) (found []palapi.Obstacle) {
	of, lacking := make([][]palapi.Lack, len(v.Nodes)), map[palapi.Lack]int{}
	for i := range v.Nodes {
		of[i] = look(i)
		for _, l := range of[i] {
			lacking[l]++
		}
	}
	counts := map[palapi.Lack]int{}
	for l, n := range lacking {
		if n == len(v.Nodes) {
			counts[l] = n
		}
	}
	everywhere := len(counts) > 0
	for _, lacks := range of {
		if !everywhere && len(lacks) > 0 {
			counts[slices.MaxFunc(lacks, func(x, y palapi.Lack) int { return lacking[x] - lacking[y] })]++ // the first, if several are equally frequent
		}
	}
	for l, nodes := range counts {
		o := palapi.Obstacle{Lack: l, What: textOf(l), Nodes: nodes, Total: len(v.Nodes), Now: passes(l), Away: isAway(l)}
		if everywhere {
			o.Fault = v.fault(a, l)
		}
		found = append(found, o)
	}
	slices.SortFunc(found, func(a, b palapi.Obstacle) int { return cmp.Or(b.Nodes-a.Nodes, cmp.Compare(a.What, b.What)) })
	return found
}

// passingLack returns the first lack that keeps the request off a node now, but can end by itself.
func (v *View) passingLack(a gpuRequest, i int, groups []int, sparing pal.AppClass) (palapi.Lack, bool) {
	what := cluster.NotReady(v.Nodes[i])
	if what != "" {
		return palapi.Lack{Kind: LackReady, Name: what}, true
	}
	l, is := tooLittle(LackFree, cluster.Need(a.group), v.Cluster.Free(i))
	if is {
		return l, true
	}
	if v.freeOn(a, groups, "") < a.gpus {
		return palapi.Lack{Kind: LackFreeGPUs, Need: a.gpus}, true
	}
	if sparing != "" && v.freeOn(a, groups, sparing) < a.gpus {
		return palapi.Lack{Kind: LackFreeGPUs, Need: a.gpus, Threshold: v.opts.OutlierThreshold}, true
	}
	return palapi.Lack{}, false
}

// lastingLacks returns everything that would keep the request off node i even if the node were
// idle. Lacks that can end by themselves are included only if there are no others. few is
// [eligibility.few].
func (v *View) lastingLacks(job *api.Job, a gpuRequest, i int, groups []int, few *palapi.Lack) (lacks []palapi.Lack) {
	n := v.Nodes[i]
	add := func(l palapi.Lack) bool {
		lacks = append(lacks, l)
		return true
	}
	eachLack(job, a.group, n, add)
	lacks = append(lacks, v.missingGPUs(a, groups)...)
	l, is := tooLittle(LackResource, cluster.Need(a.group), cluster.Capacity(n))
	if is {
		add(l)
	}
	if few != nil {
		add(*few)
	}
	if slices.ContainsFunc(lacks, func(l palapi.Lack) bool { return !passes(l) }) {
		lacks = slices.DeleteFunc(lacks, passes)
	}
	return lacks
}

// staticPorts returns the static host ports that a group requests, by label.
func staticPorts(g *api.TaskGroup) map[string]int {
	ports := map[string]int{}
	for _, network := range g.Networks {
		if network == nil {
			continue
		}
		for _, p := range network.ReservedPorts {
			if p.Value > 0 {
				ports[p.Label] = p.Value
			}
		}
	}
	return ports
}

// portsInUse returns, for each node, on how many addresses other jobs use each host port. portsInUse
// returns nil if n, the number of requested ports, is 0.
func (v *View) portsInUse(job cluster.JobKey, n int) map[string]map[int]int {
	if n == 0 {
		return nil
	}
	inUse := map[string]map[int]int{}
	for _, a := range v.State.Allocs {
		if len(a.Ports) == 0 || a.Job == job || !a.Live() {
			continue
		}
		if inUse[a.Node] == nil {
			inUse[a.Node] = map[int]int{}
		}
		for _, p := range a.Ports {
			inUse[a.Node][p]++
		}
	}
	return inUse
}

// firstPort returns a lack of the given kind for the first taken port, in the order of the labels.
func firstPort(kind palapi.LackKind, ports map[string]int, taken func(port int) bool) (palapi.Lack, bool) {
	for _, label := range slices.Sorted(maps.Keys(ports)) {
		if taken(ports[label]) {
			return palapi.Lack{Kind: kind, Name: label, Need: ports[label]}, true
		}
	}
	return palapi.Lack{}, false
}

// missingGPUs returns what the node's device groups lack for the request; nil if one of the groups
// serves the request and has enough GPUs.
func (v *View) missingGPUs(a gpuRequest, groups []int) (lacks []palapi.Lack) {
	most := 0
	for _, gi := range groups {
		d := v.Devices[gi]
		if a.serves(d) {
			most = max(most, len(d.Instances))
		}
	}
	switch {
	case most >= a.gpus:
		return nil
	case most > 0 && rewrite.AsksParts(a.group): // the placer gives a member all its parts on one GPU
		return []palapi.Lack{{Kind: LackParts, Need: a.gpus, Have: most}}
	case most > 0:
		return []palapi.Lack{{Kind: LackGPUs, Need: a.gpus, Have: most}}
	}
	add := func(l palapi.Lack) {
		if !slices.Contains(lacks, l) {
			lacks = append(lacks, l)
		}
	}
	for _, r := range a.requests {
		named := slices.DeleteFunc(slices.Clone(groups), func(gi int) bool { return !requestMatches(r.Name, v.Devices[gi]) })
		if len(named) == 0 {
			add(palapi.Lack{Kind: LackDevice, Name: r.Name})
		}
		for _, c := range r.Constraints {
			if len(named) > 0 && !slices.ContainsFunc(named, func(gi int) bool { return constraint.DeviceMeets(c, v.Devices[gi]) }) {
				add(unmet(LackGPUMeets, "", c))
			}
		}
	}
	if len(lacks) == 0 { // some group meets each constraint, but none meets all of them
		for _, r := range a.requests {
			for _, c := range r.Constraints {
				if len(lacks) == 0 && !constraint.DeviceMeets(c, v.Devices[groups[0]]) {
					add(unmet(LackGPUMeets, "", c))
				}
			}
		}
	}
	if len(lacks) == 0 {
		add(palapi.Lack{Kind: LackDevice, Name: a.requests[0].Name})
	}
	return lacks
}

// Models returns the names of the GPU models, sorted.
func (v *View) Models() (names []string) {
	for _, d := range v.Devices {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Largest returns the maximum of each resource over the nodes with GPUs.
func (v *View) Largest() (most pal.Resources) {
	for _, n := range v.Nodes {
		has := cluster.Capacity(n)
		most.CPU, most.MemoryMB, most.DiskMB = max(most.CPU, has.CPU), max(most.MemoryMB, has.MemoryMB), max(most.DiskMB, has.DiskMB)
	}
	return most
}

// freeOn returns the largest number of free GPUs that the request could get from one of the device
// groups. If sparing is not "", outliers for this application class do not count.
func (v *View) freeOn(a gpuRequest, groups []int, sparing pal.AppClass) int {
	most := 0
	for _, gi := range groups {
		if !a.serves(v.Devices[gi]) {
			continue
		}
		free := 0
		first, count := v.Cluster.GroupGPUs(gi)
		for u := first; u < first+count; u++ {
			if v.Cluster.Available(u) && (sparing == "" || !v.outlier(u, sparing)) {
				free++
			}
		}
		most = max(most, free)
	}
	return most
}
