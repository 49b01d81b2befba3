// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package constraint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
)

// If no node meets a constraint, the constraint is usually a mistake. This file says what the nodes
// have instead.

// NodeFault returns what the nodes lack for a constraint of a job, group or task: the attribute, or
// the value. NodeFault returns "" if a node meets the constraint, or if there are no nodes.
func NodeFault(c *api.Constraint, nodes []*api.Node) string {
	names := map[string]bool{"${node.unique.id}": true, "${node.unique.name}": true, "${node.datacenter}": true, "${node.class}": true, "${node.pool}": true}
	for _, n := range nodes {
		for name := range n.Attributes {
			names["${attr."+name+"}"] = true
		}
		for name := range n.Meta {
			names["${meta."+name+"}"] = true
		}
	}
	return fault(c, "node", nodes, names, NodeMeets, NodeTarget)
}

// DeviceFault returns what the GPUs lack for a constraint of a device request, as [NodeFault] does
// for nodes.
func DeviceFault(c *api.Constraint, devices []*api.NodeDeviceResource) string {
	names := map[string]bool{"${device.model}": true, "${device.vendor}": true, "${device.type}": true}
	for _, d := range devices {
		for name := range d.Attributes {
			if !strings.HasPrefix(name, "unique.") { // lists of GPUs
				names["${device.attr."+name+"}"] = true
			}
		}
	}
	return fault(c, "GPU", devices, names, DeviceMeets, func(s string, d *api.NodeDeviceResource) (string, bool) {
		a := deviceTarget(s, d)
		if a == nil {
			return "", false
		}
		return a.GoString(), true
	})
}

// fault returns what all of the nodes or device groups lack. names are the references that at least
// one of them resolves.
func fault[T any](c *api.Constraint, what string, all []T, names map[string]bool, meets func(*api.Constraint, T) bool, value func(string, T) (string, bool)) string {
	if len(all) == 0 || slices.ContainsFunc(all, func(one T) bool { return meets(c, one) }) {
		return ""
	}
	target, wanted := c.LTarget, c.RTarget
	if !refers(target) && refers(wanted) {
		target, wanted = wanted, target
	}
	for _, side := range []string{target, wanted} {
		if (side == target || refers(side)) && !names[side] {
			return fmt.Sprintf("no %s has %s%s", what, side, question(side, names))
		}
	}
	values := map[string]bool{}
	for _, one := range all {
		if v, ok := value(target, one); ok {
			values[v] = true
		}
	}
	have := slices.Sorted(maps.Keys(values))
	return fmt.Sprintf("%ss have %s%s", what, some(have), nearest.Question(wanted, have))
}

func refers(side string) bool { return strings.HasPrefix(side, "${") }

// question asks whether the author meant one of the names. The names are compared without their
// prefixes, because authors also confuse these: ${device.memory} is ${device.attr.memory}.
func question(target string, names map[string]bool) string {
	of := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		of[bare(name)] = name
	}
	near := nearest.Name(bare(target), slices.Sorted(maps.Keys(of)))
	if near != "" {
		return fmt.Sprintf(" (did you mean %q?)", of[near])
	}
	return ""
}

func bare(target string) string {
	name := strings.Trim(target, "${} ")
	for _, prefix := range []string{"device.", "attr.", "meta.", "node.", "unique."} {
		name = strings.TrimPrefix(name, prefix)
	}
	return name
}

// mostValues is the maximum number of values that a fault names, and mostLetters limits their
// lengths.
const (
	mostValues  = 4
	mostLetters = 60
)

func some(values []string) string {
	more := ""
	n := len(values) - mostValues
	if n > 0 {
		values, more = values[:mostValues], fmt.Sprintf(", %d more", n)
	}
	short := make([]string, len(values))
	for i, v := range values {
		short[i] = fmt.Sprintf("%.*s", mostLetters, v)
	}
	return strings.Join(short, ", ") + more
}
