// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Pinned returns the job's pins, and whether the job has pins. Pinned reads exactly what [Pin]
// wrote. So a new placer can tell from the job alone where its gang was placed.
func Pinned(job *api.Job) (Pins, bool) {
	var p Pins
	e, elastic := ElasticOf(job)
	for _, g := range job.TaskGroups {
		mode, mark, nodes := groupPin(g)
		if mode != "" && !strings.HasSuffix(mark, markLeft) {
			p.Mode = mode
			gp := GroupPins{Group: *g.Name, Nodes: nodes}
			if len(nodes) > 0 && nodes[0] == markSpread {
				gp.Nodes, gp.Spread = nodes[1:], true
			}
			for _, t := range g.Tasks {
				for _, d := range GPURequests(t) {
					readDevice(d, mark, &p, &gp)
				}
			}
			if elastic && e.Group == *g.Name {
				gp.Count = Members(g)
			}
			p.Groups = append(p.Groups, gp)
		}
	}
	slices.SortFunc(p.Groups, func(a, b GroupPins) int { return strings.Compare(a.Group, b.Group) })
	return p, len(p.Groups) > 0
}

// groupPin finds the pin that ties the group to nodes, and returns its mode. groupPin returns "" if
// there is no such pin. The list of nodes can begin with [markSpread]. ModeGPU and ModePrefer have
// the same mark. A pin of ModeGPU is a constraint, and a pin of ModePrefer is an affinity.
func groupPin(g *api.TaskGroup) (mode Mode, mark string, nodes []string) {
	for _, c := range g.Constraints {
		mark, nodes, ok := splitMarked(c.LTarget, c.Operand, c.RTarget, nodeTarget)
		if ok {
			return modeOf(mark, ModeGPU), mark, nodes
		}
	}
	for _, a := range g.Affinities {
		mark, nodes, ok := splitMarked(a.LTarget, a.Operand, a.RTarget, nodeTarget)
		if ok {
			return modeOf(mark, ModePrefer), mark, nodes
		}
	}
	return "", "", nil
}

// modeOf returns the mode of pins with this mark. [Mark] stands for two modes, so modeOf then
// returns plain.
func modeOf(mark string, plain Mode) Mode {
	if strings.TrimSuffix(mark, markLeft) == Mark {
		return plain
	}
	return ModeClass
}

// readDevice adds the pins in a device request to the pins of the group that contains the request.
func readDevice(d *api.RequestedDevice, mark string, p *Pins, gp *GroupPins) {
	if p.Mode == ModePrefer {
		return
	}
	for _, c := range d.Constraints {
		_, ids, ok := splitMarked(c.LTarget, c.Operand, c.RTarget, idsTarget)
		if ok {
			gp.GPUs = ids
		}
		class, ceiling, ok := ceilingOf(c)
		if ok && mark == markClass {
			p.Class, p.Ceiling = class, ceiling
		}
	}
}

// splitMarked parses a list that the placer wrote into a constraint or an affinity.
func splitMarked(l, operand, r, target string) (mark string, ids []string, ok bool) {
	if l != target || operand != containsAny {
		return "", nil, false
	}
	all := strings.Split(r, ",")
	switch strings.TrimSuffix(all[0], markLeft) {
	case Mark, markClass, markNodes:
		return all[0], all[1:], true
	}
	return "", nil, false
}

// ceilingOf reads a class ceiling from a constraint. The constraint contains no mark, because its
// list is an attribute of the node. The group's mark shows whether the placer wrote the constraint.
func ceilingOf(c *api.Constraint) (pal.AppClass, int, bool) {
	if c.RTarget != idsTarget || c.Operand != containsAny {
		return "", 0, false
	}
	for _, class := range pal.AppClasses() {
		prefix, suffix, _ := strings.Cut(classTarget(class, 0), "0}")
		number, ok := strings.CutPrefix(c.LTarget, prefix)
		if !ok {
			continue
		}
		k, err := strconv.Atoi(strings.TrimSuffix(number, "}"+suffix))
		return class, k, err == nil
	}
	return "", 0, false
}

// unpin returns the job without pins. If the job has no pins, unpin returns the job itself.
func unpin(job *api.Job) *api.Job {
	rest := without(job.Constraints, isJobPin)
	if !slices.ContainsFunc(job.TaskGroups, hasPins) && len(rest) == len(job.Constraints) {
		return job
	}
	out := *job
	out.Constraints = rest
	out.TaskGroups = mapGroups(job.TaskGroups, unpinGroup)
	return &out
}

// isJobPin reports whether a constraint of the whole job is the placer's.
func isJobPin(c *api.Constraint) bool {
	return c.Operand == containsAny && strings.HasPrefix(c.RTarget, markJob+",")
}

// hasPins reports whether the group has pins, even pins that [HandOver] left.
func hasPins(g *api.TaskGroup) bool {
	mode, _, _ := groupPin(g)
	return mode != ""
}

// HandOver returns the job as Nomad alone can manage it, without a restart of running members: not
// gated, and not pinned for the placer. Nomad updates constraints of jobs and groups in place, but
// restarts members whose device blocks change. So pins of this kind stay in the job, with a mark that only [Author] heeds.
// All other jobs become as their authors wrote them.
func HandOver(job *api.Job) *api.Job {
	author := Author(job)
	if reflect.DeepEqual(restarting(author), restarting(job)) {
		return author
	}
	out := Open(job)
	out.Constraints = without(out.Constraints, isJobPin)
	out.TaskGroups = mapGroups(out.TaskGroups, func(g *api.TaskGroup) {
		_, mark, _ := groupPin(g)
		left := func(target, list string) string {
			if target == nodeTarget && mark != "" && strings.HasPrefix(list, mark+",") {
				return mark + markLeft + strings.TrimPrefix(list, mark)
			}
			return list
		}
		g.Constraints, g.Affinities = slices.Clone(g.Constraints), slices.Clone(g.Affinities)
		for i, c := range g.Constraints {
			g.Constraints[i] = &api.Constraint{LTarget: c.LTarget, RTarget: left(c.LTarget, c.RTarget), Operand: c.Operand}
		}
		for i, a := range g.Affinities {
			g.Affinities[i] = &api.Affinity{LTarget: a.LTarget, RTarget: left(a.LTarget, a.RTarget), Operand: a.Operand, Weight: a.Weight}
		}
	})
	return out
}

// restarting returns the parts of the job whose change by the placer can restart members.
func restarting(job *api.Job) (parts []any) {
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			parts = append(parts, GPURequests(t))
		}
	}
	return parts
}

// Tied reports whether [HandOver] left pins in the job.
func Tied(job *api.Job) bool {
	_, pinned := Pinned(job)
	return !pinned && slices.ContainsFunc(job.TaskGroups, hasPins)
}

// unpinGroup removes the placer's constraints and affinities from a copy of the group. If the group
// has no pin to nodes, the placer wrote nothing into the group. Any constraints and affinities on
// the group's devices then come from the author, even if they look like the placer's.
func unpinGroup(g *api.TaskGroup) {
	mode, mark, nodes := groupPin(g)
	if mode == "" {
		return
	}
	if len(nodes) > 0 && nodes[0] == markSpread {
		g.Spreads = withoutLastSpread(g.Spreads)
	}
	ours := func(target string) func(*api.Constraint) bool {
		return func(c *api.Constraint) bool {
			_, _, ok := splitMarked(c.LTarget, c.Operand, c.RTarget, target)
			return ok
		}
	}
	if mode == ModePrefer {
		g.Affinities = without(g.Affinities, func(a *api.Affinity) bool {
			_, _, ok := splitMarked(a.LTarget, a.Operand, a.RTarget, nodeTarget)
			return ok || a.LTarget == Mark && a.RTarget == Mark
		})
		return
	}
	g.Constraints = without(g.Constraints, ours(nodeTarget))
	eachDevice(g, func(d *api.RequestedDevice) {
		d.Constraints = without(d.Constraints, ours(idsTarget))
		if strings.TrimSuffix(mark, markLeft) == markClass {
			d.Constraints = withoutLastCeiling(d.Constraints)
		}
	})
}

// Wrote reports whether a constraint or an affinity with these sides is the gate or a pin.
func Wrote(left, right string) bool {
	return left == GateTarget || right == idsTarget || right == Mark || strings.HasPrefix(right, Mark+",") || strings.HasPrefix(right, Mark+"/")
}

// withoutLastCeiling removes the placer's class ceiling. The author may have written the same
// constraint. The placer's ceiling is the last one in the list, because the placer appends it.
func withoutLastCeiling(cs []*api.Constraint) []*api.Constraint {
	for _, c := range slices.Backward(cs) {
		_, _, ok := ceilingOf(c)
		if ok {
			last := c
			return without(cs, func(c *api.Constraint) bool { return c == last })
		}
	}
	return cs
}

// withoutLastSpread removes the placer's spread block. The author may have written the same block.
// The placer's block is the last one of this form, because the placer appends it.
func withoutLastSpread(all []*api.Spread) []*api.Spread {
	for i, s := range slices.Backward(all) {
		if isOverNodes(s) {
			return without(all, func(o *api.Spread) bool { return o == all[i] })
		}
	}
	return all
}
