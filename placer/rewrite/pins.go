// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Mark, or one of the marks below, which begin with Mark, is the first element of each list that
// the placer writes. A mark is no id, so it selects nothing. A mark prevents no match either,
// because set_contains_any is true if any element matches.
const Mark = "nomad-pal"

// Marks of [ModeClass] pins with a class ceiling and without one, and of the constraint on the
// whole job.
const (
	markClass = Mark + "/class"
	markNodes = Mark + "/nodes"
	markJob   = Mark + "/job"
)

// markSpread follows the mark of a group to which a spread block was added.
const markSpread = Mark + "/spread"

const (
	nodeTarget  = "${node.unique.id}"
	idsTarget   = "${device.ids}"
	containsAny = "set_contains_any"
)

// Mode is how tightly a job is tied to the GPUs chosen for it (`pal_pin`).
type Mode string

// The pin modes.
const (
	// ModeGPU pins to exactly the chosen GPUs; for gangs.
	ModeGPU Mode = "gpu"
	// ModeClass pins to nodes and to a ceiling of the variability class, so that Nomad can
	// reschedule by itself; for services, elastic gangs and jobs with [ReplaceMember].
	ModeClass Mode = "class"
	// ModePrefer writes affinities only and never keeps a job from running.
	ModePrefer Mode = "prefer"
)

// ParseMode reads a pin mode.
func ParseMode(s string) (Mode, error) {
	return pal.ParseName("pin mode", s, ModeGPU, ModeClass, ModePrefer)
}

// Pins tie a job to GPUs.
type Pins struct {
	Mode Mode
	// Class and Ceiling are the application class and the highest variability class allowed (1 is
	// the fastest; 0: any). Only for ModeClass.
	Class   pal.AppClass `json:",omitempty"`
	Ceiling int          `json:",omitempty"`
	// Groups are sorted by name.
	Groups []GroupPins
}

// GroupPins are the pins of one task group. In Nomad all allocations of a group have the same spec,
// so the pins are the union over the allocations. The pins are exact nevertheless, because on every
// node the group needs as many GPUs as its pins name on that node.
type GroupPins struct {
	Group string
	Nodes []string // node ids, sorted
	// GPUs are instance ids, sorted. With ModeClass, nil allows any GPU of the nodes; otherwise
	// GPUs lists the allowed ones.
	GPUs []string `json:",omitempty"`
	// Count is how many members an elastic gang should have; 0 for other gangs.
	Count int `json:",omitempty"`
	// Spread reports whether Nomad should spread the members evenly over the nodes.
	Spread bool `json:",omitempty"`
}

// Racks are the racks of all nodes in a job's pins.
type Racks struct {
	Meta string // the node meta key that names a node's rack
	// Names are sorted. Names is empty if the rack of a node is unknown, or if the racks hold many
	// of the cluster's GPU nodes.
	Names []string
}

// GPUs returns the instance ids of all groups, sorted.
func (p Pins) GPUs() []string { return p.all(func(g GroupPins) []string { return g.GPUs }) }

// Nodes returns the node ids of all groups, sorted.
func (p Pins) Nodes() []string { return p.all(func(g GroupPins) []string { return g.Nodes }) }

func (p Pins) all(of func(GroupPins) []string) (all []string) {
	for _, g := range p.Groups {
		all = append(all, of(g)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Of returns the pins of one group.
func (p Pins) Of(group string) (GroupPins, bool) {
	for _, g := range p.Groups {
		if g.Group == group {
			return g, true
		}
	}
	return GroupPins{}, false
}

// Union returns pins that allow everything that p or o allows; both must be of the same job. Union
// works only for [ModeClass], and only if both p and o name GPUs or neither does, because pins
// without a list of GPUs allow any GPU.
func (p Pins) Union(o Pins) Pins {
	if p.Ceiling == 0 || o.Ceiling == 0 { // any class
		p.Class, p.Ceiling = "", 0
	} else {
		p.Ceiling = max(p.Ceiling, o.Ceiling)
	}
	groups := make([]GroupPins, len(p.Groups))
	for i, g := range p.Groups {
		if more, ok := o.Of(g.Group); ok {
			g.Nodes, g.GPUs = union(g.Nodes, more.Nodes), union(g.GPUs, more.GPUs)
		}
		groups[i] = g
	}
	p.Groups = groups
	return p
}

// union returns all elements, sorted; nil if a and b are nil.
func union(a, b []string) []string {
	if a == nil && b == nil {
		return nil
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// Pin returns the author's form of the job with exactly these pins, without the gate. Every group
// with pins must be in the job, and every group of the job that requests GPUs and has a count above
// 0 must have pins.
//
// If all groups have pins to nodes, the job also gets a constraint: to the racks of these nodes, or
// to the nodes if no racks are given. This constraint excludes no further nodes, but Nomad checks
// the job's constraints first, and so skips thousands of other nodes several times as fast. Nomad
// caches its result for racks by computed node class, and reuses it for the next member. Nomad does
// not cache results for single nodes.
//
// The job's constraint cannot replace those of the groups. With the job's constraint alone, Nomad
// would judge the devices of all nodes of a computed class by the first node it checks, and reject
// the right node because another one lacks the pinned GPUs. A group constraint on ${node.unique.id}
// prevents this mistake (seen on 1.11.3).
func Pin(job *api.Job, p Pins, in Racks) (*api.Job, error) {
	out := Author(job)
	seen := 0
	var err error
	out.TaskGroups = mapGroups(out.TaskGroups, func(g *api.TaskGroup) {
		gp, ok := p.Of(*g.Name)
		switch asks := slices.ContainsFunc(g.Tasks, asksGPU); {
		case ok && asks:
			seen++
			pinGroup(g, p, gp)
			if gp.Count > 0 {
				g.Count = &gp.Count
			}
		case !ok && g.Count != nil && *g.Count == 0:
			// There is nothing to place.
		case ok != asks && err == nil:
			err = fmt.Errorf("pinning job %q: group %q asks for GPUs: %v, has pins: %v", *job.ID, *g.Name, asks, ok)
		}
	})
	if err == nil && seen != len(p.Groups) {
		err = fmt.Errorf("pinning job %q: %d of %d pinned groups are in the job", *job.ID, seen, len(p.Groups))
	}
	if err != nil {
		return nil, err
	}
	if seen == len(out.TaskGroups) && p.Mode != ModePrefer {
		target, values := nodeTarget, p.Nodes()
		if len(in.Names) > 0 {
			target, values = "${meta."+in.Meta+"}", in.Names
		}
		out.Constraints = append(slices.Clone(out.Constraints), constraint(target, markedList(markJob, values)))
	}
	return out, nil
}

// PinAlone is [Pin] for the members on one node, as if the job had no other members. members maps
// groups to the number of their members on this node. PinAlone is for dry runs.
func PinAlone(job *api.Job, p Pins, node string, members map[string]int) (*api.Job, error) {
	alone := *job
	alone.TaskGroups = mapGroups(job.TaskGroups, func(g *api.TaskGroup) {
		g.Count, g.Scaling = new(members[*g.Name]), nil // a scaling block can require more members
	})
	there := p
	there.Groups = nil
	for _, g := range p.Groups {
		if members[g.Group] > 0 {
			there.Groups = append(there.Groups, GroupPins{Group: g.Group, Nodes: []string{node}, GPUs: g.GPUs})
		}
	}
	return Pin(&alone, there, Racks{})
}

// pinGroup writes the pins of one group. The mark records the mode, so that [Pinned] can read the
// pins back.
func pinGroup(g *api.TaskGroup, p Pins, gp GroupPins) {
	mark := Mark
	if p.Mode == ModeClass {
		mark = markClass
		if p.Ceiling == 0 {
			mark = markNodes
		}
	}
	nodes := gp.Nodes
	if gp.Spread {
		nodes = slices.Concat([]string{markSpread}, nodes)
		g.Spreads = append(slices.Clone(g.Spreads), overNodes())
	}
	if p.Mode == ModePrefer {
		g.Affinities = append(slices.Clone(g.Affinities), affinity(nodeTarget, markedList(mark, nodes)))
	} else {
		g.Constraints = append(slices.Clone(g.Constraints), constraint(nodeTarget, markedList(mark, nodes)))
	}
	eachDevice(g, func(d *api.RequestedDevice) {
		switch p.Mode {
		case ModeGPU:
			d.Constraints = append(slices.Clone(d.Constraints), constraint(idsTarget, markedList(mark, gp.GPUs)))
		case ModeClass:
			own := slices.Clone(d.Constraints)
			if gp.GPUs != nil {
				own = append(own, constraint(idsTarget, markedList(mark, gp.GPUs)))
			}
			if p.Ceiling != 0 {
				// Written in reverse order, so that it differs from the constraint that authors
				// copy from the docs.
				own = append(own, constraint(classTarget(p.Class, p.Ceiling), idsTarget))
			}
			d.Constraints = own
		case ModePrefer:
			d.Affinities = append(slices.Clone(d.Affinities), affinity(idsTarget, markedList(mark, gp.GPUs)))
		}
	})
}

// classTarget returns the attribute that lists the GPUs of a node whose variability class is at
// most the ceiling. A GPU matches if its id is in that list.
func classTarget(c pal.AppClass, ceiling int) string {
	return "${device.attr." + attr.List(c, ceiling) + "}"
}

// markedList returns the right side of our constraints and affinities: the mark, then the values.
func markedList(mark string, ids []string) string {
	return mark + "," + strings.Join(ids, ",")
}

// constraint returns a constraint for nodes, or devices, that have any of the values.
func constraint(l, r string) *api.Constraint {
	return &api.Constraint{LTarget: l, RTarget: r, Operand: containsAny}
}

// affinity returns an affinity for nodes, or devices, that have any of the values, with Nomad's
// highest weight.
func affinity(l, r string) *api.Affinity {
	return &api.Affinity{LTarget: l, RTarget: r, Operand: containsAny, Weight: new(int8(100))}
}

// overNodes returns a spread block that distributes members evenly over nodes, with Nomad's highest
// weight. Without this block, Nomad's scheduler also tends to separate the members of a group, but
// puts them on one node if they fill it well.
func overNodes() *api.Spread {
	return &api.Spread{Attribute: nodeTarget, Weight: new(int8(100))}
}

// isOverNodes reports whether a spread block is [overNodes].
func isOverNodes(s *api.Spread) bool {
	return s.Attribute == nodeTarget && s.Weight != nil && *s.Weight == 100 && len(s.SpreadTarget) == 0
}

// eachDevice calls f with a copy of each GPU request of the group, and replaces the request by the
// copy. eachDevice also copies the tasks and resources around the request, because the caller's job
// may share them.
func eachDevice(g *api.TaskGroup, f func(*api.RequestedDevice)) {
	tasks := slices.Clone(g.Tasks)
	for i, t := range tasks {
		if !asksGPU(t) {
			continue
		}
		task, res := *t, *t.Resources
		res.Devices = slices.Clone(res.Devices)
		for k, d := range res.Devices {
			if IsGPU(d.Name) {
				dev := *d
				f(&dev)
				res.Devices[k] = &dev
			}
		}
		task.Resources = &res
		tasks[i] = &task
	}
	g.Tasks = tasks
}

// asksGPU reports whether the task asks for GPUs that the placer manages.
func asksGPU(t *api.Task) bool { return len(GPURequests(t)) > 0 }

// GPURequests returns the task's requests for GPUs.
func GPURequests(t *api.Task) []*api.RequestedDevice {
	if t.Resources == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.Resources.Devices), func(d *api.RequestedDevice) bool { return !IsGPU(d.Name) })
}

// atMost is the value to which larger numbers of the author are reduced. Above the maximum that a
// gang can request, the exact number does not matter. Nomad accepts counts up to 2^64-1 (seen on
// 1.11.3), and their sums would overflow.
const atMost = pal.MaxGPUs + 1

// GPUs returns the number of GPUs of a device request; 1 if it has no count, as in Nomad. Numbers
// above [pal.MaxGPUs] are capped, but stay above [pal.MaxGPUs].
func GPUs(d *api.RequestedDevice) int {
	if d.Count == nil {
		return 1
	}
	return int(min(*d.Count, atMost))
}

// Members returns the number of allocations that the group requests, capped like [GPUs].
func Members(g *api.TaskGroup) int {
	if g.Count == nil {
		return 1
	}
	return max(0, min(*g.Count, atMost))
}

// GPUsPerMember returns the number of GPUs of one allocation of the group, capped like [GPUs].
func GPUsPerMember(g *api.TaskGroup) int {
	n := 0
	for _, t := range g.Tasks {
		for _, d := range GPURequests(t) {
			n = min(n+GPUs(d), atMost)
		}
	}
	return n
}

// AllGPUs returns the number of GPUs of all members of all groups.
func AllGPUs(job *api.Job) int {
	n := 0
	for _, g := range job.TaskGroups {
		n += Members(g) * GPUsPerMember(g)
	}
	return n
}

// IsGPU reports whether a device request is for GPUs that the placer manages: "gpu", "nvidia/gpu"
// or "nvidia/gpu/<model>", or the same with "gpu.shared" for parts of GPUs.
func IsGPU(request string) bool {
	return isOf(request, attr.Type) || IsPart(request)
}

// IsPart reports whether a device request is for parts of GPUs that several tasks share.
func IsPart(request string) bool { return isOf(request, attr.SharedType) }

func isOf(request, kind string) bool {
	vendor := attr.Vendor + "/" + kind
	return request == kind || request == vendor || strings.HasPrefix(request, vendor+"/")
}

// NamesModel reports whether a device request names a model.
func NamesModel(request string) bool { return strings.Count(request, "/") >= 2 }

// OtherDevices returns the names of the devices that the job requests and that are not GPUs of the
// placer, each once.
func OtherDevices(job *api.Job) (names []string) {
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			if t.Resources == nil {
				continue
			}
			for _, d := range t.Resources.Devices {
				if !IsGPU(d.Name) && !slices.Contains(names, d.Name) {
					names = append(names, d.Name)
				}
			}
		}
	}
	return names
}

// AsksParts reports whether some task of the groups asks for parts of GPUs.
func AsksParts(groups ...*api.TaskGroup) bool {
	return slices.ContainsFunc(groups, func(g *api.TaskGroup) bool {
		return slices.ContainsFunc(g.Tasks, func(t *api.Task) bool {
			return slices.ContainsFunc(GPURequests(t), func(d *api.RequestedDevice) bool { return IsPart(d.Name) })
		})
	})
}

// AsksGPUs reports whether any task of the job asks for GPUs.
func AsksGPUs(job *api.Job) bool {
	return slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool {
		return slices.ContainsFunc(g.Tasks, asksGPU)
	})
}
