// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/plugins/shared/structs"
)

// The code below follows Nomad's documentation and the code of Nomad's scheduler. The code shares
// nothing with placer/nomad and placer/request, because it tests them.

// ready reports whether Nomad places new allocations on the node.
func ready(n *api.Node) bool {
	return n.Status == api.NodeStatusReady && n.SchedulingEligibility == api.NodeSchedulingEligible && !n.Drain
}

// feasible returns the reason why the node cannot run an allocation of the group, in Nomad's words.
// feasible returns "" if the node can run the allocation. feasible does not check whether resources
// are free.
func feasible(j *api.Job, g *api.TaskGroup, n *api.Node) (why string) {
	if !slices.ContainsFunc(j.Datacenters, func(p string) bool { ok, _ := path.Match(p, n.Datacenter); return ok }) {
		return "datacenter"
	}
	if pool := value(j.NodePool); pool != "" && pool != "all" && pool != n.NodePool {
		return "node pool"
	}
	sets := [][]*api.Constraint{j.Constraints, g.Constraints}
	for _, t := range g.Tasks {
		sets = append(sets, t.Constraints)
		if d := n.Drivers[t.Driver]; d == nil || !d.Detected || !d.Healthy {
			return "missing drivers"
		}
	}
	for _, cs := range sets {
		for _, c := range cs {
			if !nodeMeets(c, n) {
				return c.LTarget + " " + c.Operand + " " + c.RTarget
			}
		}
	}
	for _, v := range g.Volumes {
		if v.Type == "host" && !v.PerAlloc && n.HostVolumes[v.Source] == nil {
			return "missing compatible host volumes"
		}
		if v.Type == "csi" { // the model has no CSI volumes
			return "missing CSI Volume " + v.Source
		}
	}
	if !hasDevices(g, n) {
		return "missing devices"
	}
	return ""
}

// hasDevices reports whether the node has enough devices for all tasks of the group. Devices that
// are in use count, too.
func hasDevices(g *api.TaskGroup, n *api.Node) bool {
	used := map[*api.NodeDeviceResource]int{}
	for _, t := range g.Tasks {
		for _, r := range t.Resources.Devices {
			need := deviceCount(r)
			for _, d := range n.NodeResources.Devices {
				if !deviceNamed(r.Name, d) || slices.ContainsFunc(r.Constraints, func(c *api.Constraint) bool { return !deviceMeets(c, d) }) {
					continue
				}
				healthy := 0
				for _, in := range d.Instances {
					if in.Healthy {
						healthy++
					}
				}
				takes := max(0, min(need, healthy-used[d]))
				need, used[d] = need-takes, used[d]+takes
			}
			if need > 0 {
				return false
			}
		}
	}
	return true
}

func nodeMeets(c *api.Constraint, n *api.Node) bool {
	if c.Operand == api.ConstraintDistinctHosts || c.Operand == api.ConstraintDistinctProperty {
		return true // depends on other allocations, see plan.distinctHosts
	}
	l, lok := nodeTarget(c.LTarget, n)
	r, rok := nodeTarget(c.RTarget, n)
	return constraintHolds(c.Operand, l, lok, r, rok)
}

func nodeTarget(text string, n *api.Node) (string, bool) {
	inner, ok := strings.CutPrefix(text, "${")
	if !ok {
		return text, true
	}
	inner = strings.TrimSuffix(inner, "}")
	switch inner {
	case "node.unique.id":
		return n.ID, true
	case "node.unique.name":
		return n.Name, true
	case "node.datacenter":
		return n.Datacenter, true
	case "node.class":
		return n.NodeClass, true
	case "node.pool":
		return n.NodePool, true
	}
	if key, ok := strings.CutPrefix(inner, "attr."); ok {
		v, found := n.Attributes[key]
		return v, found
	}
	key, _ := strings.CutPrefix(inner, "meta.")
	v, found := n.Meta[key]
	return v, found
}

// constraintHolds evaluates a constraint whose sides are texts.
func constraintHolds(operand, l string, lok bool, r string, rok bool) bool {
	switch operand {
	case "=", "==", "is", "":
		return lok && rok && l == r
	case "!=", "not":
		return lok != rok || l != r
	case api.ConstraintAttributeIsSet:
		return lok
	case api.ConstraintAttributeIsNotSet:
		return !lok
	}
	if !lok || !rok {
		return false
	}
	switch operand {
	case "<", "<=", ">", ">=":
		return inOrder(operand, cmp.Compare(l, r))
	case api.ConstraintRegex:
		re, err := regexp.Compile(r)
		return err == nil && re.MatchString(l)
	case api.ConstraintSetContains, api.ConstraintSetContainsAll:
		have := split(l)
		return !slices.ContainsFunc(split(r), func(e string) bool { return !slices.Contains(have, e) })
	case api.ConstraintSetContainsAny:
		have := split(l)
		return slices.ContainsFunc(split(r), func(e string) bool { return slices.Contains(have, e) })
	}
	if operand == api.ConstraintVersion || operand == api.ConstraintSemver {
		v, err1 := version.NewVersion(l)
		want, err2 := version.NewConstraint(r)
		return err1 == nil && err2 == nil && want.Check(v)
	}
	return false // an unknown operator
}

// inOrder evaluates a comparison operator. order is the order of the two values.
func inOrder(operand string, order int) bool {
	switch operand {
	case "!=", "not":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	}
	return order == 0
}

func split(text string) []string {
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// deviceNamed reports whether the name in a request matches the device group.
func deviceNamed(request string, d *api.NodeDeviceResource) bool {
	switch parts := strings.SplitN(request, "/", 3); len(parts) {
	case 1:
		return parts[0] == d.Type
	case 2:
		return parts[0] == d.Vendor && parts[1] == d.Type
	default:
		return parts[0] == d.Vendor && parts[1] == d.Type && parts[2] == d.Name
	}
}

// deviceMeets reports whether the device group meets a constraint of a request.
func deviceMeets(c *api.Constraint, d *api.NodeDeviceResource) bool {
	l, r := deviceTarget(c.LTarget, d), deviceTarget(c.RTarget, d)
	if l == nil || r == nil || c.Operand == api.ConstraintAttributeIsSet || c.Operand == api.ConstraintAttributeIsNotSet {
		return constraintHolds(c.Operand, "", l != nil, "", r != nil)
	}
	switch c.Operand {
	case "=", "==", "is", "", "!=", "not", "<", "<=", ">", ">=":
		order, ok := l.Compare(r)
		return ok && inOrder(c.Operand, order)
	}
	lt, lok := l.GetString()
	rt, rok := r.GetString()
	return lok && rok && constraintHolds(c.Operand, lt, true, rt, true)
}

func deviceTarget(text string, d *api.NodeDeviceResource) *structs.Attribute {
	inner, ok := strings.CutPrefix(text, "${")
	if !ok {
		return structs.ParseAttribute(text)
	}
	inner = strings.TrimSuffix(inner, "}")
	switch inner {
	case "device.ids":
		var ids []string
		for _, in := range d.Instances {
			ids = append(ids, in.ID)
		}
		return structs.NewStringAttribute(strings.Join(ids, ","))
	case "device.model":
		return structs.NewStringAttribute(d.Name)
	case "device.vendor":
		return structs.NewStringAttribute(d.Vendor)
	case "device.type":
		return structs.NewStringAttribute(d.Type)
	}
	key, _ := strings.CutPrefix(inner, "device.attr.")
	a := d.Attributes[key]
	if a == nil {
		return nil
	}
	return &structs.Attribute{Float: a.FloatVal, Int: a.IntVal, String: a.StringVal, Bool: a.BoolVal, Unit: a.Unit}
}

// instanceMeets reports whether a GPU meets constraints on device.ids.
func instanceMeets(id string, cs []*api.Constraint, d *api.NodeDeviceResource) bool {
	const ids = "${device.ids}"
	for _, c := range cs {
		var list *structs.Attribute
		switch ids {
		case c.LTarget:
			list = deviceTarget(c.RTarget, d)
		case c.RTarget:
			list = deviceTarget(c.LTarget, d)
		default:
			continue
		}
		if list == nil {
			return false
		}
		if text, ok := list.GetString(); !ok || !slices.Contains(split(text), id) {
			return false
		}
	}
	return true
}
