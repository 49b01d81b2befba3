// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Obstacle is something that keeps a group of a job from nodes with GPUs.
type Obstacle struct {
	Group string `json:"group"`
	// What stands in the way, as nomad job plan says it.
	What string `json:"what"`
	// Nodes counts those that it keeps out: each node counts once, for the first
	// thing that it lacks.
	Nodes int `json:"nodes"`
	// Total is the number of nodes with GPUs.
	Total int `json:"total"`
	// Now: it may pass, as jobs end and nodes come back.
	Now bool `json:"now,omitempty"`
	// Away: the nodes are down, draining or not eligible, and nothing else about them is in
	// the way.
	Away bool `json:"-"`
}

func (o Obstacle) String() string {
	return fmt.Sprintf("%s (%d of %d nodes)", o.What, o.Nodes, o.Total)
}

// Obstacles are what keeps the job's groups from nodes with GPUs: by group, the
// most nodes first. Groups that ask for no GPUs are left out. With sparing, the job leaves out
// GPUs that are outliers for that application class.
func (v *View) Obstacles(job *api.Job, sparing pal.AppClass) []Obstacle {
	groups := v.groupsByNode()
	return eachAsk(job, func(author *api.Job, a gpuRequest) []Obstacle {
		ports := staticPorts(a.group)
		inUse := v.portsInUse(KeyOf(job), len(ports))
		return v.count(func(i int) (what string, now bool) {
			if what, now = v.obstacle(author, a, i, groups[i], sparing); what == "" {
				what, now = takenPort(ports, inUse[v.nodes[i].ID]), true
			}
			return what, now
		})
	})
}

// LastingObstacles are those of [View.Obstacles] that do not pass as jobs end: also nodes that
// are away. Asks that are alike share one look at the nodes.
func (v *View) LastingObstacles(job *api.Job) []Obstacle {
	return eachAsk(job, func(author *api.Job, a gpuRequest) []Obstacle {
		key := fmt.Sprintf("%s %d %+v", eligibilityKey(author, a), a.gpus, needOf(a.group))
		found, known := v.lasting[key]
		if !known {
			if len(v.lasting) >= eligibilityKept {
				clear(v.lasting)
			}
			groups := v.groupsByNode()
			found = v.count(func(i int) (string, bool) {
				if what := v.lastingObstacle(author, a, i, groups[i]); what != "" {
					return what, false
				}
				return notReady(v.nodes[i]), true
			})
			v.lasting[key] = found
		}
		return slices.Clone(found)
	})
}

// groupsByNode are the cluster's device groups by node.
func (v *View) groupsByNode() [][]int {
	groups := make([][]int, len(v.nodes))
	for gi := range v.devices {
		node, _ := v.Cluster.Group(gi)
		groups[node] = append(groups[node], gi)
	}
	return groups
}

// eachAsk has find tell of each group of the job that asks for GPUs, as its author wrote it.
func eachAsk(job *api.Job, find func(author *api.Job, a gpuRequest) []Obstacle) (out []Obstacle) {
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

// count looks at each node, and counts what is in the way.
func (v *View) count(look func(node int) (what string, now bool)) (found []Obstacle) {
	counts := map[Obstacle]int{}
	for i, n := range v.nodes {
		if what, now := look(i); what != "" {
			counts[Obstacle{What: what, Total: len(v.nodes), Now: now, Away: what == notReady(n)}]++
		}
	}
	for o, nodes := range counts {
		o.Nodes = nodes
		found = append(found, o)
	}
	slices.SortFunc(found, func(a, b Obstacle) int { return cmp.Or(b.Nodes-a.Nodes, cmp.Compare(a.What, b.What)) })
	return found
}

// obstacle is the first thing that keeps the ask from a node, "" for none: what
// will not change by itself comes first. now says whether it may.
func (v *View) obstacle(job *api.Job, a gpuRequest, i int, groups []int, sparing pal.AppClass) (what string, now bool) {
	n := v.nodes[i]
	if what := v.lastingObstacle(job, a, i, groups); what != "" {
		return what, false
	}
	if what := notReady(n); what != "" {
		return what, true
	}
	if what := lacks(needOf(a.group), v.Cluster.Free(i), "less than %d %s are free"); what != "" {
		return what, true
	}
	if v.freeOn(a, groups, "") < a.gpus {
		return tooFew(a.gpus), true
	}
	if sparing != "" && v.freeOn(a, groups, sparing) < a.gpus {
		return fmt.Sprintf("%s that are no outliers (outlier_threshold %g)", tooFew(a.gpus), v.opts.OutlierThreshold), true
	}
	return "", false
}

// lastingObstacle is the first thing that keeps the ask from a node even if that is idle.
func (v *View) lastingObstacle(job *api.Job, a gpuRequest, i int, groups []int) string {
	n := v.nodes[i]
	if why := unfit(job, a.group, n); why != nil {
		return why()
	}
	for _, f := range []func() string{
		func() string { return v.missingDevice(a, groups) },
		func() string { return lacks(needOf(a.group), total(n), "nodes have less than %d %s") },
	} {
		if what := f(); what != "" {
			return what
		}
	}
	return ""
}

// unfit is what [nodeFits] finds missing, nil for nothing: put into words if somebody asks.
func unfit(job *api.Job, g *api.TaskGroup, n *api.Node) func() string {
	is := func(format string, args ...any) func() string {
		return func() string { return fmt.Sprintf(format, args...) }
	}
	if !inDatacenters(job.Datacenters, n.Datacenter) {
		return is("datacenter %q is not among the job's", n.Datacenter)
	}
	if p := pool(job); p != poolAll && p != n.NodePool {
		return is("node pool %q is not the job's", n.NodePool)
	}
	unmet := func(c *api.Constraint) bool { return !nodeMeets(c, n) }
	for _, cs := range [][]*api.Constraint{job.Constraints, g.Constraints} {
		if i := slices.IndexFunc(cs, unmet); i >= 0 {
			return func() string { return "constraint " + constraintText(cs[i]) }
		}
	}
	for _, t := range g.Tasks {
		if i := slices.IndexFunc(t.Constraints, unmet); i >= 0 {
			return func() string { return "constraint " + constraintText(t.Constraints[i]) }
		}
		if !hasDriver(n, t.Driver) {
			return is("missing drivers: %s", t.Driver)
		}
	}
	if missingVolume(g, n) != "" {
		return func() string { return missingVolume(g, n) }
	}
	return nil
}

// constraintText is a constraint as Nomad writes it.
func constraintText(c *api.Constraint) string {
	return fmt.Sprintf("%q", strings.TrimSpace(strings.Join([]string{c.LTarget, cmp.Or(c.Operand, "="), c.RTarget}, " ")))
}

// missingVolume is a host volume that the group wants and the node does not have.
// Of a CSI volume it tells only whether the node could mount any: the rest Nomad's dry
// run knows.
func missingVolume(g *api.TaskGroup, n *api.Node) string {
	for _, name := range slices.Sorted(maps.Keys(g.Volumes)) {
		vol := g.Volumes[name]
		switch {
		case vol == nil:
			continue
		case vol.Type == "csi" && len(n.CSINodePlugins) == 0:
			return fmt.Sprintf("no CSI plugin to mount volume %s", vol.Source)
		case vol.Type != "host" || vol.PerAlloc:
			continue
		}
		if has := n.HostVolumes[vol.Source]; has == nil {
			return fmt.Sprintf("missing host volume: %s", vol.Source)
		} else if has.ReadOnly && !vol.ReadOnly {
			return fmt.Sprintf("host volume %s is read-only", vol.Source)
		}
	}
	return ""
}

// staticPorts are the host ports that a group wants, by their labels.
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

// portsInUse are the host ports that other jobs have, by node; nil if n, those that are
// wanted, is 0.
func (v *View) portsInUse(job JobKey, n int) map[string]map[int]bool {
	if n == 0 {
		return nil
	}
	inUse := map[string]map[int]bool{}
	for _, a := range v.state.Allocs {
		if len(a.Ports) == 0 || a.Job == job || !a.Live() {
			continue
		}
		if inUse[a.Node] == nil {
			inUse[a.Node] = map[int]bool{}
		}
		for _, p := range a.Ports {
			inUse[a.Node][p] = true
		}
	}
	return inUse
}

// takenPort is a wanted static port that is in use, "" for none.
func takenPort(ports map[string]int, inUse map[int]bool) string {
	for _, label := range slices.Sorted(maps.Keys(ports)) {
		if inUse[ports[label]] {
			return fmt.Sprintf("static port %d (%s) is in use", ports[label], label)
		}
	}
	return ""
}

// tooFew says that not as many GPUs are free as a member needs.
func tooFew(n int) string {
	if n == 1 {
		return "no matching GPUs are free"
	}
	return fmt.Sprintf("fewer than %d matching GPUs are free", n)
}

// missingDevice says why none of the node's device groups serves the ask.
func (v *View) missingDevice(a gpuRequest, groups []int) string {
	what := ""
	for _, gi := range groups {
		d := v.devices[gi]
		if a.serves(d) && len(d.Instances) >= a.gpus {
			return ""
		}
		for _, r := range a.requests {
			if !requestMatches(r.Name, d) {
				what = cmp.Or(what, fmt.Sprintf("missing devices: %s", r.Name))
				continue
			}
			for _, c := range r.Constraints {
				if !deviceMeets(c, d) {
					what = "device constraint " + constraintText(c)
				}
			}
		}
		if a.serves(d) {
			what = fmt.Sprintf("fewer than %d GPUs of one model", a.gpus)
		}
	}
	return cmp.Or(what, "missing devices")
}

// Models are those of all GPUs, sorted.
func (v *View) Models() (names []string) {
	for _, d := range v.devices {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Largest is the most of each resource that some node with GPUs has.
func (v *View) Largest() (most pal.Resources) {
	for _, n := range v.nodes {
		has := total(n)
		most.CPU, most.MemoryMB, most.DiskMB = max(most.CPU, has.CPU), max(most.MemoryMB, has.MemoryMB), max(most.DiskMB, has.DiskMB)
	}
	return most
}

// notReady says why Nomad places nothing new on a node.
func notReady(n *api.Node) string {
	switch {
	case n.Status != api.NodeStatusReady:
		return "the node is " + n.Status
	case n.Drain:
		return "the node is draining"
	case n.SchedulingEligibility != api.NodeSchedulingEligible:
		return "the node is not eligible for scheduling"
	}
	return ""
}

// lacks names the first resource of which there is too little; format has what is
// needed, and its name.
func lacks(need, have pal.Resources, format string) string {
	for _, r := range []struct {
		name       string
		need, have int
	}{{"MHz of CPU", need.CPU, have.CPU}, {"MB of memory", need.MemoryMB, have.MemoryMB}, {"MB of disk", need.DiskMB, have.DiskMB}} {
		if r.need > r.have {
			return fmt.Sprintf(format, r.need, r.name)
		}
	}
	return ""
}

// freeOn is the largest number of free GPUs that the ask could get of one device
// group.
func (v *View) freeOn(a gpuRequest, groups []int, sparing pal.AppClass) int {
	most := 0
	for _, gi := range groups {
		if !a.serves(v.devices[gi]) {
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
