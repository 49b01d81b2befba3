// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/plugins/shared/structs"
)

// target is what one side of a constraint refers to. ok is false where it
// refers to something that is not there.
type target[T any] struct {
	value T
	ok    bool
}

// nodeTarget resolves one side of a node constraint as Nomad does
// (https://developer.hashicorp.com/nomad/docs/runtime/interpolation).
func nodeTarget(s string, n *api.Node) target[string] {
	inner, ok := interpolation(s)
	if !ok {
		return target[string]{s, true}
	}
	switch inner {
	case "node.unique.id":
		return target[string]{n.ID, true}
	case "node.unique.name":
		return target[string]{n.Name, true}
	case "node.datacenter":
		return target[string]{n.Datacenter, true}
	case "node.class":
		return target[string]{n.NodeClass, true}
	case "node.pool":
		return target[string]{n.NodePool, true}
	}
	from := n.Attributes
	key, isAttr := strings.CutPrefix(inner, "attr.")
	if !isAttr {
		var isMeta bool
		if key, isMeta = strings.CutPrefix(inner, "meta."); !isMeta {
			return target[string]{}
		}
		from = n.Meta
	}
	v, found := from[key]
	return target[string]{v, found}
}

// interpolation is what stands within ${…}; ok is false for a literal.
func interpolation(s string) (string, bool) {
	inner, ok := strings.CutPrefix(s, "${")
	return strings.TrimSuffix(inner, "}"), ok
}

// nodeMeets says whether the node meets a constraint of a job, a group or a
// task, by Nomad's rules: an operator needs both sides, but "!=" also holds if one side is
// missing. distinct_hosts and distinct_property concern several allocations: they
// are met by every single node.
func nodeMeets(c *api.Constraint, n *api.Node) bool {
	l, r := nodeTarget(c.LTarget, n), nodeTarget(c.RTarget, n)
	both := l.ok && r.ok
	switch c.Operand {
	case api.ConstraintDistinctHosts, api.ConstraintDistinctProperty:
		return true
	case "=", "==", "is", "":
		return both && l.value == r.value
	case "!=", "not":
		return l != r
	case "<", "<=", ">", ">=":
		return both && ordered(c.Operand, compareText(l.value, r.value))
	case api.ConstraintAttributeIsSet:
		return l.ok
	case api.ConstraintAttributeIsNotSet:
		return !l.ok
	}
	return both && matches(c.Operand, l.value, r.value)
}

// matches are the operators that nodes and devices share.
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
		return containsAll(l, r)
	case api.ConstraintSetContainsAny:
		return containsAny(l, r)
	}
	return false
}

// versionMatches has go-version's rule that a prerelease meets no constraint
// that names none.
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
		met := order == 0
		if operand == "!=" {
			met = order != 0
		} else if operand != "" && operand != "=" {
			met = ordered(operand, order)
		}
		if !met {
			return false
		}
	}
	return true
}

// compareText compares as integers, else as numbers, else as text.
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

func set(s string) map[string]bool {
	m := map[string]bool{}
	for _, e := range strings.Split(s, ",") {
		m[strings.TrimSpace(e)] = true
	}
	return m
}

func containsAll(l, r string) bool {
	have := set(l)
	for e := range set(r) {
		if !have[e] {
			return false
		}
	}
	return true
}

func containsAny(l, r string) bool {
	have := set(l)
	for e := range set(r) {
		if have[e] {
			return true
		}
	}
	return false
}

// deviceTarget resolves one side of a device constraint.
func deviceTarget(s string, d *api.NodeDeviceResource) target[*structs.Attribute] {
	inner, ok := interpolation(s)
	if !ok {
		return target[*structs.Attribute]{structs.ParseAttribute(s), true}
	}
	switch inner {
	case "device.ids":
		ids := make([]string, len(d.Instances))
		for i, in := range d.Instances {
			ids[i] = in.ID
		}
		return target[*structs.Attribute]{structs.NewStringAttribute(strings.Join(ids, ",")), true}
	case "device.model":
		return target[*structs.Attribute]{structs.NewStringAttribute(d.Name), true}
	case "device.vendor":
		return target[*structs.Attribute]{structs.NewStringAttribute(d.Vendor), true}
	case "device.type":
		return target[*structs.Attribute]{structs.NewStringAttribute(d.Type), true}
	}
	key, ok := strings.CutPrefix(inner, "device.attr.")
	a, found := d.Attributes[key]
	if !ok || !found || a == nil {
		return target[*structs.Attribute]{}
	}
	return target[*structs.Attribute]{
		&structs.Attribute{Float: a.FloatVal, Int: a.IntVal, String: a.StringVal, Bool: a.BoolVal, Unit: a.Unit}, true,
	}
}

// deviceMeets says whether the device group meets a constraint of a request.
func deviceMeets(c *api.Constraint, d *api.NodeDeviceResource) bool {
	l, r := deviceTarget(c.LTarget, d), deviceTarget(c.RTarget, d)
	both := l.ok && r.ok
	switch c.Operand {
	case "!=", "not":
		if l.ok != r.ok {
			return true
		}
		if !both {
			return false
		}
		order, comparable := l.value.Compare(r.value)
		return comparable && order != 0
	case "=", "==", "is", "", "<", "<=", ">", ">=":
		if !both {
			return false
		}
		order, comparable := l.value.Compare(r.value)
		if strings.ContainsAny(c.Operand, "<>") {
			return comparable && ordered(c.Operand, order)
		}
		return comparable && order == 0
	case api.ConstraintAttributeIsSet:
		return l.ok
	case api.ConstraintAttributeIsNotSet:
		return !l.ok
	}
	if !both {
		return false
	}
	ls, ok1 := asText(l.value)
	rs, ok2 := asText(r.value)
	return ok1 && ok2 && matches(c.Operand, ls, rs)
}

// asText is the text of a string attribute; versions may also be plain numbers.
func asText(a *structs.Attribute) (string, bool) {
	if s, ok := a.GetString(); ok {
		return s, true
	}
	if i, ok := a.GetInt(); ok && a.Unit == "" {
		return strconv.FormatInt(i, 10), true
	}
	return "", false
}
