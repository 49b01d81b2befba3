// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package constraint evaluates the constraints of jobs. The package reports whether a node or a
// device group meets a constraint, by the rules of Nomad's scheduler. The package explains
// constraints that no node meets, and limits how many constraints a job may have. The package reads
// the nodes' attributes, but does not know which job holds which GPU.
//
// What must stay true when you change this package: NodeMeets and DeviceMeets agree with Nomad's
// scheduler (package scheduler/feasible, Nomad 1.11.3) about each operator and each missing
// attribute. If the placer accepts a node that Nomad does not accept, Nomad refuses the placer's
// choice; in the opposite case, a job waits although it could run.
package constraint

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/plugins/shared/structs"
)

// NodeTarget resolves one side of a node constraint as Nomad does
// (https://developer.hashicorp.com/nomad/docs/runtime/interpolation). ok is false if the reference
// does not exist.
func NodeTarget(s string, n *api.Node) (value string, ok bool) {
	inner, ok := interpolation(s)
	if !ok {
		return s, true
	}
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
		value, ok = n.Attributes[key]
		return value, ok
	}
	if key, ok := strings.CutPrefix(inner, "meta."); ok {
		value, ok = n.Meta[key]
		return value, ok
	}
	return "", false
}

// interpolation returns the text within ${…}. ok is false if s is a literal.
func interpolation(s string) (string, bool) {
	inner, ok := strings.CutPrefix(s, "${")
	return strings.TrimSuffix(inner, "}"), ok
}

// NodeMeets reports whether the node meets a constraint of a job, group or task. The constraints
// distinct_hosts and distinct_property apply to several allocations together, so any single node
// meets them.
func NodeMeets(c *api.Constraint, n *api.Node) bool {
	if c.Operand == api.ConstraintDistinctHosts || c.Operand == api.ConstraintDistinctProperty {
		return true
	}
	l, lok := NodeTarget(c.LTarget, n)
	r, rok := NodeTarget(c.RTarget, n)
	return holds(c.Operand, lok, rok, func() (int, bool) {
		if strings.ContainsAny(c.Operand, "<>") {
			return compareText(l, r), true
		}
		return strings.Compare(l, r), true
	}, func() (string, string, bool) { return l, r, true })
}

// holds reports whether a constraint with this operator holds by Nomad's rules. l and r say whether
// the left and the right side exist. Most operators need both sides, but "!=" also holds if one
// side is missing. order compares the two sides. texts returns the two sides as strings. ok is
// false if the sides are not texts.
func holds(operator string, l, r bool, order func() (int, bool), texts func() (l, r string, ok bool)) bool {
	switch operator {
	case api.ConstraintAttributeIsSet:
		return l
	case api.ConstraintAttributeIsNotSet:
		return !l
	}
	if !l || !r {
		return l != r && (operator == "!=" || operator == "not")
	}
	switch operator {
	case "=", "==", "is", "", "!=", "not", "<", "<=", ">", ">=":
		o, ok := order()
		return ok && ordered(operator, o)
	}
	left, right, ok := texts()
	return ok && matches(operator, left, right)
}

// matches evaluates the operators that apply only to texts: version, semver, regexp and
// set_contains. [holds] evaluates the other operators.
func matches(operand, l, r string) bool {
	switch operand {
	case api.ConstraintVersion:
		return versionMatches(l, r)
	case api.ConstraintSemver:
		return semverMatches(l, r)
	case api.ConstraintRegex:
		re, err := compiled(r)
		return err == nil && re.MatchString(l)
	case api.ConstraintSetContains, api.ConstraintSetContainsAll:
		have := elements(l)
		return !slices.ContainsFunc(elements(r), func(e string) bool { return !slices.Contains(have, e) })
	case api.ConstraintSetContainsAny:
		have := elements(l)
		return slices.ContainsFunc(elements(r), func(e string) bool { return slices.Contains(have, e) })
	}
	return false
}

// versionMatches follows go-version: a prerelease meets only constraints that name a prerelease.
func versionMatches(l, r string) bool {
	v, err := version.NewVersion(l)
	if err != nil {
		return false
	}
	want, err := version.NewConstraint(r)
	return err == nil && want.Check(v)
}

// semverMatches orders prereleases as semver does: 1.2.0-beta is less than
// 1.2.0 and more than 1.1.9.
func semverMatches(l, r string) bool {
	v, err := version.NewVersion(l)
	if err != nil {
		return false
	}
	for clause := range strings.SplitSeq(r, ",") {
		clause = strings.TrimSpace(clause)
		operand := clause[:len(clause)-len(strings.TrimLeft(clause, "<>=!"))]
		want, err := version.NewSemver(strings.TrimSpace(clause[len(operand):]))
		if err != nil {
			return false
		}
		order := v.Compare(want)
		if operand == "==" || !ordered(operand, order) { // semver has no "=="
			return false
		}
	}
	return true
}

// compareText compares two texts as integers if both are integers, as numbers if both are numbers,
// and as text otherwise.
func compareText(l, r string) int {
	li, err1 := strconv.ParseInt(l, 10, 64)
	ri, err2 := strconv.ParseInt(r, 10, 64)
	if err1 == nil && err2 == nil {
		return cmp.Compare(li, ri)
	}
	lf, err1 := strconv.ParseFloat(l, 64)
	rf, err2 := strconv.ParseFloat(r, 64)
	if err1 == nil && err2 == nil {
		return cmp.Compare(lf, rf)
	}
	return strings.Compare(l, r)
}

func ordered(operand string, order int) bool {
	switch operand {
	case "=", "==", "is", "":
		return order == 0
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
	return false
}

// elements splits a list whose elements are separated by commas.
func elements(s string) []string {
	es := strings.Split(s, ",")
	for i := range es {
		es[i] = strings.TrimSpace(es[i])
	}
	return es
}

// deviceTarget resolves one side of a device constraint. deviceTarget returns nil if the reference
// does not exist.
func deviceTarget(s string, d *api.NodeDeviceResource) *structs.Attribute {
	inner, ok := interpolation(s)
	if !ok {
		return structs.ParseAttribute(s)
	}
	switch inner {
	case "device.ids":
		ids := make([]string, len(d.Instances))
		for i, in := range d.Instances {
			ids[i] = in.ID
		}
		return structs.NewStringAttribute(strings.Join(ids, ","))
	case "device.model":
		return structs.NewStringAttribute(d.Name)
	case "device.vendor":
		return structs.NewStringAttribute(d.Vendor)
	case "device.type":
		return structs.NewStringAttribute(d.Type)
	}
	key, ok := strings.CutPrefix(inner, "device.attr.")
	a, found := d.Attributes[key]
	if !ok || !found || a == nil {
		return nil
	}
	return &structs.Attribute{Float: a.FloatVal, Int: a.IntVal, String: a.StringVal, Bool: a.BoolVal, Unit: a.Unit}
}

// DeviceMeets reports whether the device group meets a constraint of a request.
func DeviceMeets(c *api.Constraint, d *api.NodeDeviceResource) bool {
	l, r := deviceTarget(c.LTarget, d), deviceTarget(c.RTarget, d)
	return holds(c.Operand, l != nil, r != nil, func() (int, bool) { return l.Compare(r) }, func() (string, string, bool) {
		left, ok1 := l.GetString()
		if c.Operand == api.ConstraintVersion || c.Operand == api.ConstraintSemver {
			left, ok1 = asText(l)
		}
		right, ok2 := r.GetString() // "4090" and "80GB" are numbers, which match nothing
		return left, right, ok1 && ok2
	})
}

// asText returns an attribute as text if the attribute can be a version: a string, or an integer
// without a unit.
func asText(a *structs.Attribute) (string, bool) {
	if s, ok := a.GetString(); ok {
		return s, true
	}
	if i, ok := a.GetInt(); ok && a.Unit == "" {
		return strconv.FormatInt(i, 10), true
	}
	return "", false
}
