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

// Mark is the first element of each list that the placer writes. Some lists begin with one of the
// longer marks below, all of which begin with Mark. A mark is not the id of any node or GPU, so it
// adds nothing to a list. A mark does not keep the constraint from matching, because
// set_contains_any needs only one matching element.
const Mark = "nomad-pal"

// These marks begin the lists of [ModeClass] pins with a class ceiling (markClass) or without one
// (markNodes), and the list of the constraint on the whole job (markJob).
const (
	markClass = Mark + "/class"
	markNodes = Mark + "/nodes"
	markJob   = Mark + "/job"
)

// markLeft ends the mark of pins that stay in a job after [HandOver].
const markLeft = "/released"

// markSpread is the second element of the list if the placer has added a spread block to the group.
const markSpread = Mark + "/spread"

const (
	nodeTarget  = "${node.unique.id}"
	idsTarget   = "${device.ids}"
	containsAny = "set_contains_any"
)

// Mode says how tightly pins tie a job to the chosen GPUs (`pal_pin`).
type Mode string

// The pin modes.
const (
	// ModeGPU ties the job to exactly the chosen GPUs. Most gangs have this mode.
	ModeGPU Mode = "gpu"
	// ModeClass ties the job to nodes, and to GPUs up to a variability class. Elastic gangs have
	// this mode, and services that are gangs.
	ModeClass Mode = "class"
	// ModePrefer adds only affinities for nodes, so the pins never keep Nomad from placing a member.
	// Jobs whose members work independently have this mode ([Hints.Independent]).
	ModePrefer Mode = "prefer"
)

// ParseMode parses a mode.
func ParseMode(s string) (Mode, error) {
	return pal.ParseName("pin mode", s, ModeGPU, ModeClass, ModePrefer)
}

// Pins tie a job to GPUs.
type Pins struct {
	Mode Mode
	// Class is the application class. Ceiling is the highest variability class that the pins allow;
	// class 1 is the fastest. If Ceiling is 0, the pins allow any class. Both are only for
	// ModeClass.
	Class   pal.AppClass `json:",omitempty"`
	Ceiling int          `json:",omitempty"`
	// Groups are sorted by name.
	Groups []GroupPins
}

// GroupPins are the pins of one task group. In Nomad, all allocations of a group have the same
// specification, so the pins of a group contain the nodes and GPUs of all its allocations. The pins
// are nevertheless exact: on every node, the group needs as many GPUs as its pins name there.
type GroupPins struct {
	Group string
	Nodes []string // node ids, sorted
	// GPUs are instance ids, sorted. With ModeClass, GPUs is nil if the pins allow all GPUs of the
	// nodes. With ModePrefer, GPUs is nil: an affinity cannot choose a GPU within a node.
	GPUs []string `json:",omitempty"`
	// Count is the number of members that an elastic gang should have, or 0 for other gangs.
	Count int `json:",omitempty"`
	// Spread reports whether Nomad should spread the members evenly over the nodes.
	Spread bool `json:",omitempty"`
}

// Racks describes the racks of the nodes in a job's pins.
type Racks struct {
	Meta string // the key of node meta that names a node's rack
	// Names lists the racks in alphabetical order. Names is empty if the rack of a node is unknown,
	// or if the racks contain a large part of the cluster's GPU nodes.
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

// Pin returns the author's job with exactly these pins and without the gate. Every group in p must
// exist in the job. Every group of the job that requests GPUs and has a count above 0 must have
// pins.
//
// If all groups are pinned to nodes, the whole job also gets a constraint. The constraint allows
// only the racks of these nodes. If the racks are not known, the constraint allows only the nodes.
// The job's constraint excludes no node that the constraints of the groups allow. Nomad checks the
// job's constraint first, and so rejects thousands of other nodes several times as fast. For a
// constraint on racks, Nomad caches the result by computed node class, and reuses the result for
// the next member. For a constraint on single nodes, Nomad does not cache results.
//
// The constraint on the job cannot replace the constraints of the groups. Without the groups'
// constraints, Nomad would check the devices of one node and assume the same result for all nodes
// of the computed class. Nomad could then reject the pinned nodes because another node lacks the
// pinned GPUs. A group constraint on ${node.unique.id} prevents this mistake (seen on 1.11.3).
func Pin(job *api.Job, p Pins, in Racks) (*api.Job, error) {
	out := Author(job)
	seen := 0
	var err error
	out.TaskGroups = mapGroups(out.TaskGroups, func(g *api.TaskGroup) {
		gp, ok := p.Of(*g.Name)
		asks := slices.ContainsFunc(g.Tasks, asksGPU)
		switch {
		case ok && asks:
			seen++
			pinGroup(g, p, gp)
			if gp.Count > 0 {
				g.Count = &gp.Count
			}
		case !ok && g.Count != nil && *g.Count == 0:
			// nothing to place
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

// PinAlone is like [Pin], but only for the members on one node, as if the job had no other members.
// members maps each group to the number of its members on this node. Dry runs use PinAlone.
func PinAlone(job *api.Job, p Pins, node string, members map[string]int) (*api.Job, error) {
	alone := *job
	alone.TaskGroups = mapGroups(job.TaskGroups, func(g *api.TaskGroup) {
		g.Count, g.Scaling = new(members[*g.Name]), nil // a scaling block could require more members
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

// pinGroup adds the pins of one group to the group. The mark tells [Pinned] the mode of the pins.
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
		// Nomad scores even spreads without their weight, so the lowest leaves the author's own nearly their full one.
		g.Spreads = append(slices.Clone(g.Spreads), &api.Spread{Attribute: nodeTarget, Weight: new(int8(1))})
	}
	if p.Mode == ModePrefer {
		g.Affinities = append(slices.Clone(g.Affinities), prefer(markedList(mark, nodes)), everywhere(gp.Spread))
		return
	}
	g.Constraints = append(slices.Clone(g.Constraints), constraint(nodeTarget, markedList(mark, nodes)))
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
				// The placer swaps the two sides of the constraint, so that it differs from the
				// constraint that authors copy from the docs.
				own = append(own, constraint(classTarget(p.Class, p.Ceiling), idsTarget))
			}
			d.Constraints = own
		}
	})
}

// classTarget returns the attribute of a node that lists the GPUs whose variability class is at
// most the ceiling. A GPU matches if its id is in the list.
func classTarget(c pal.AppClass, ceiling int) string {
	return "${device.attr." + attr.List(c, ceiling) + "}"
}

// markedList returns the right side of the placer's constraints and affinities: the mark, and then
// the ids.
func markedList(mark string, ids []string) string {
	return mark + "," + strings.Join(ids, ",")
}

// constraint returns a constraint that requires any of the values in r.
func constraint(l, r string) *api.Constraint {
	return &api.Constraint{LTarget: l, RTarget: r, Operand: containsAny}
}

// prefer returns an affinity for the nodes in the list. everywhere returns an affinity for or against
// all nodes.
//
// A node's score is the mean of its partial scores. Affinities are one of them: the sum of the
// weights that match the node, divided by the sum of all weights. With prefer alone, a chosen node
// would get 1 and another node no such partial score, so its mean would have fewer parts. Then Nomad
// would often prefer a chosen node that already runs a replica to an empty node.
//
// Replicas are spread: with an even spread, a node without a replica gets 1, and others get -1. With 1
// for chosen nodes and 1/2 for others, Nomad prefers empty chosen nodes to other empty nodes, and
// these to nodes with replicas. This is so even if Nomad counts a node with a replica as empty. It
// does so in the first evaluation after the node was lost and came back (seen on 1.11.3).
// TestPlacerServiceBesidePlain compares a service with plain Nomad's on a real cluster.
//
// The members of a batch job may share a node. With 1/3 for chosen nodes and -1/3 for others, Nomad
// fills the chosen nodes first.
func prefer(nodes string) *api.Affinity {
	return &api.Affinity{LTarget: nodeTarget, RTarget: nodes, Operand: containsAny, Weight: new(int8(100))}
}

func everywhere(spread bool) *api.Affinity {
	weight := int8(-50)
	if spread {
		weight = 100
	}
	return &api.Affinity{LTarget: Mark, RTarget: Mark, Operand: "=", Weight: &weight}
}

// isOverNodes reports whether a spread block is the one that [Pin] adds.
func isOverNodes(s *api.Spread) bool {
	return s.Attribute == nodeTarget && s.Weight != nil && *s.Weight == 1 && len(s.SpreadTarget) == 0
}

// eachDevice replaces each GPU request of the group by a copy, and calls f with the copy.
// eachDevice also copies the tasks and resources that contain the request, because other jobs may
// share them.
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

// asksGPU reports whether the task requests GPUs that the placer manages.
func asksGPU(t *api.Task) bool { return len(GPURequests(t)) > 0 }

// GPURequests returns the task's requests for GPUs.
func GPURequests(t *api.Task) []*api.RequestedDevice {
	if t.Resources == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.Resources.Devices), func(d *api.RequestedDevice) bool { return !IsGPU(d.Name) })
}

// atMost is the limit for numbers from a jobspec. A larger number is replaced by atMost, because
// the exact number of GPUs does not matter if it exceeds the largest possible gang. Nomad accepts
// counts up to 2^64-1 (seen on 1.11.3), and sums of such counts would overflow.
const atMost = pal.MaxGPUs + 1

// GPUs returns the number of GPUs of a device request. As in Nomad, a request without a count is
// for one GPU. A number above [pal.MaxGPUs] becomes MaxGPUs + 1.
func GPUs(d *api.RequestedDevice) int {
	if d.Count == nil {
		return 1
	}
	return int(min(*d.Count, atMost))
}

// Members returns the number of allocations that the group requests, but at most the maximum of
// [GPUs].
func Members(g *api.TaskGroup) int {
	if g.Count == nil {
		return 1
	}
	return max(0, min(*g.Count, atMost))
}

// GPUsPerMember returns the number of GPUs of one allocation of the group, but at most the maximum
// of [GPUs].
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

// IsGPU reports whether a device request is for GPUs that the placer manages. Requests for whole
// GPUs name "gpu", "nvidia/gpu" or "nvidia/gpu/<model>". Requests for parts of GPUs name
// "gpu.shared" instead of "gpu".
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

// OtherDevices returns the names of the requested devices that the placer does not manage. Each
// name appears once.
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

// AsksParts reports whether a task of the groups requests parts of GPUs.
func AsksParts(groups ...*api.TaskGroup) bool {
	return slices.ContainsFunc(groups, func(g *api.TaskGroup) bool {
		return slices.ContainsFunc(g.Tasks, func(t *api.Task) bool {
			return slices.ContainsFunc(GPURequests(t), func(d *api.RequestedDevice) bool { return IsPart(d.Name) })
		})
	})
}

// AsksGPUs reports whether a task of the job requests GPUs.
func AsksGPUs(job *api.Job) bool {
	return slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool {
		return slices.ContainsFunc(g.Tasks, asksGPU)
	})
}
