// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package constraint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// If no node meets a constraint, the constraint is usually a mistake. This file finds the mistake.
// The file compares the constraint with the nodes' attributes by the rules of Nomad 1.11.3 (package
// scheduler/feasible, and Attribute in plugins/shared/structs).

// FaultKind is a kind of reason why no node can meet a constraint.
type FaultKind string

// The kinds of faults. If a constraint has different faults on different GPUs, the fault whose kind
// comes last in [FaultKinds] counts.
const (
	FaultOperator  FaultKind = "operator"  // there is no such operator
	FaultWord      FaultKind = "word"      // neither side refers to anything
	FaultPlace     FaultKind = "place"     // the reference is valid only in another block
	FaultInstance  FaultKind = "instance"  // the constraint names single GPUs
	FaultAttribute FaultKind = "attribute" // no node publishes the attribute
	FaultPattern   FaultKind = "pattern"   // the value is not a regular expression or version
	FaultType      FaultKind = "type"      // the value has another type or unit
	FaultValue     FaultKind = "value"     // no node has the value
)

// FaultKinds lists all kinds. The later a kind comes, the closer the constraint is to a match.
var FaultKinds = []FaultKind{FaultOperator, FaultWord, FaultPlace, FaultInstance, FaultAttribute, FaultPattern, FaultType, FaultValue}

// Fault says why no node can meet a constraint as its author wrote it.
type Fault struct {
	// Kind is what is wrong: operator, word, place, instance, attribute, pattern, type or value.
	Kind FaultKind `json:"kind"`
	// Subject is the text of the faulty operator, attribute or value.
	Subject string `json:"subject"`
	// Is describes the attribute: "text", "a number", "a number of <unit>", "true or false" or "a
	// version". If the kind is pattern, Is describes what the subject should be: a "version",
	// "condition on a version" or "regular expression".
	Is string `json:"is,omitempty"`
	// Have lists some of the values on the nodes.
	Have []string `json:"have,omitempty"`
	// Write is a constraint that the author could write instead, or nil if there is no suggestion.
	Write *Condition `json:"write,omitempty"`
	// In is the block (group or device) in which the author should write the constraint.
	In string `json:"in,omitempty"`
}

// String returns the fault in words.
func (f *Fault) String() string {
	switch f.Kind {
	case FaultOperator:
		return fmt.Sprintf("Nomad has no operator %q", f.Subject)
	case FaultWord:
		return fmt.Sprintf("%q is a plain word, which Nomad compares literally", f.Subject)
	case FaultPlace:
		return fmt.Sprintf("Nomad resolves %s only in the constraints of a %s", f.Subject, map[string]string{"device": "device", "group": "job, group or task"}[f.In])
	case FaultInstance:
		return fmt.Sprintf("%s is not an attribute: the ids of GPUs are in ${device.ids}, and the placer chooses among them", f.Subject)
	case FaultAttribute:
		return fmt.Sprintf("no node has %s", f.Subject)
	case FaultPattern:
		return fmt.Sprintf("%q is not a %s", f.Subject, f.Is)
	case FaultType:
		kind := kindOf(structs.ParseAttribute(f.Subject))
		if strings.HasPrefix(f.Is, kind+" of ") {
			kind += " without a unit"
		}
		return fmt.Sprintf("the attribute is %s, but Nomad reads %q as %s", f.Is, f.Subject, kind)
	}
	if len(f.Have) == 0 {
		return "no node has that value"
	}
	return "nodes have " + strings.Join(f.Have, ", ")
}

// Advice returns a sentence that tells the author what to do, or "" if there is no advice.
func (f *Fault) Advice() string {
	switch {
	case f.Kind == FaultInstance:
		return "Leave out this constraint: the placer chooses the GPU. To use one GPU by its id, write " + f.Write.hcl() + " and run the job without the placer (nomad job run)."
	case f.Write == nil:
		return ""
	case f.In == "group":
		return "Write the constraint in a block of the group, not of the device: " + f.Write.hcl() + "."
	case f.In == "device":
		return "Write the constraint in a block of the device, not of the job, group or task: " + f.Write.hcl() + "."
	}
	return "Write " + f.Write.hcl() + "."
}

// Condition is a constraint as an author writes it.
type Condition struct {
	Attribute string `json:"attribute"` // left side, such as ${attr.kernel.name}
	Operator  string `json:"operator"`  // such as regexp; "" means =
	Value     string `json:"value"`     // right side
}

// String returns the condition in the form that Nomad uses.
func (c Condition) String() string {
	return fmt.Sprintf("%q", strings.TrimSpace(strings.Join([]string{c.Attribute, cmp.Or(c.Operator, "="), c.Value}, " ")))
}

// hcl returns the condition as one line of a jobspec.
func (c Condition) hcl() string {
	text := fmt.Sprintf("attribute = %q, ", c.Attribute)
	if op := cmp.Or(c.Operator, "="); op != "=" {
		text += fmt.Sprintf("operator = %q, ", op)
	}
	if c.Value == "" {
		return strings.TrimSuffix(text, ", ")
	}
	return text + fmt.Sprintf("value = %q", c.Value)
}

// operators are Nomad's operators; meantOperator maps operators of other tools to them.
var operators = []string{
	"=", "==", "is", "!=", "not", "<", "<=", ">", ">=", api.ConstraintVersion, api.ConstraintSemver, api.ConstraintRegex,
	api.ConstraintSetContains, api.ConstraintSetContainsAll, api.ConstraintSetContainsAny, api.ConstraintAttributeIsSet, api.ConstraintAttributeIsNotSet,
}

var meantOperator = map[string]string{"contains": api.ConstraintRegex, "matches": api.ConstraintRegex, "=~": api.ConstraintRegex, "in": api.ConstraintSetContainsAny}

// operatorFault returns the fault of a constraint whose operator Nomad does not know, or nil if
// Nomad knows the operator.
func operatorFault(c *api.Constraint) *Fault {
	if c.Operand == "" || slices.Contains(operators, c.Operand) || c.Operand == api.ConstraintDistinctHosts || c.Operand == api.ConstraintDistinctProperty {
		return nil
	}
	f := &Fault{Kind: FaultOperator, Subject: c.Operand}
	if meant := cmp.Or(meantOperator[c.Operand], nearest.Name(c.Operand, operators)); meant != "" {
		f.Write = &Condition{c.LTarget, meant, c.RTarget}
		if meant == api.ConstraintRegex {
			f.Write.Value = asPattern(c.RTarget)
		}
	}
	return f
}

// patternFault returns the fault of an invalid regular expression or version condition, or nil if
// it is valid.
func patternFault(c *api.Constraint) *Fault {
	if strings.HasPrefix(c.RTarget, "${") {
		return nil
	}
	switch c.Operand {
	case api.ConstraintRegex:
		if _, err := compiled(c.RTarget); err != nil && !errors.Is(err, errPattern) {
			return &Fault{Kind: FaultPattern, Subject: c.RTarget, Is: "regular expression", Write: &Condition{c.LTarget, c.Operand, asPattern(regexp.QuoteMeta(strings.Trim(c.RTarget, "*")))}}
		}
	case api.ConstraintVersion:
		if _, err := version.NewConstraint(c.RTarget); err != nil {
			return &Fault{Kind: FaultPattern, Subject: c.RTarget, Is: "condition on a version"}
		}
	}
	return nil
}

// asPattern returns a regular expression that matches the same texts as p but does not look like a
// number. Nomad reads texts such as 4090 or 80GB as numbers, and a pattern that is a number matches
// nothing.
func asPattern(p string) string {
	if _, text := structs.ParseAttribute(p).GetString(); text {
		return p
	}
	return ".*" + p + ".*"
}

// fixedOfDevices lists the properties that each device has in addition to its attributes.
var fixedOfDevices = []string{"model", "vendor", "type", "ids"}

// meantName maps names that other tools use to properties and attributes of GPUs.
var meantName = map[string]string{"name": "model", "compute_capability": attr.ComputeMajor, "cuda_version": attr.CUDADriverMajor, "vram": "memory", "driver": "driver_version"}

// instanceNames lists the names that other tools use for ids of single GPUs.
var instanceNames = []string{"uuid", "id", "ids", "gpu_uuid", "gpu_id", "index", "minor", "serial", "bus_id", "pci_bus_id"}

// DeviceFault returns why no device group can meet a constraint of a device request. DeviceFault
// returns nil if a group can meet it, or if there are no groups. If the fault suggests another
// constraint, at least one group meets the suggested constraint.
func DeviceFault(c *api.Constraint, devices []*api.NodeDeviceResource) *Fault {
	return unlessMet(c, devices, DeviceMeets, deviceFault)
}

// unlessMet returns the fault of a constraint that no node or device meets. unlessMet returns nil
// if a node or device meets the constraint, or if the list is empty. unlessMet drops a suggested
// constraint that no node or device meets.
func unlessMet[T any](c *api.Constraint, all []T, meets func(*api.Constraint, T) bool, fault func(*api.Constraint, []T) *Fault) *Fault {
	met := func(c *api.Constraint) bool {
		return slices.ContainsFunc(all, func(one T) bool { return meets(c, one) })
	}
	if len(all) == 0 || met(c) {
		return nil
	}
	return fault(c, all).unlessVain(met)
}

func deviceFault(c *api.Constraint, devices []*api.NodeDeviceResource) *Fault {
	if f := operatorFault(c); f != nil {
		return f
	}
	if !strings.HasPrefix(c.LTarget, "${") && !strings.HasPrefix(c.RTarget, "${") {
		word := strings.ToLower(strings.Trim(c.LTarget, "${} "))
		word = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(word, "device."), "attr."), "unique.")
		return wordFault(c, meantTarget(word, devices))
	}
	var nearer *Fault
	for _, d := range devices {
		f := faultOn(c, d, devices)
		if nearer == nil || slices.Index(FaultKinds, f.Kind) > slices.Index(FaultKinds, nearer.Kind) {
			nearer = f
		}
	}
	if nearer.Kind == FaultValue {
		return valueFault(c, devices)
	}
	return nearer
}

// wordFault returns the fault of a constraint that has no reference on either side. meant is the
// reference that the left side probably means, or "" if this is unknown.
func wordFault(c *api.Constraint, meant string) *Fault {
	f := &Fault{Kind: FaultWord, Subject: c.LTarget}
	if meant != "" {
		f.Write = &Condition{meant, c.Operand, c.RTarget}
	}
	return f
}

// meantTarget guesses the reference that a word in a device constraint means. meantTarget returns
// "" if there is no guess.
func meantTarget(word string, devices []*api.NodeDeviceResource) string {
	all := append(slices.Clone(fixedOfDevices), attributesOf(devices)...)
	meant := cmp.Or(meantName[word], word)
	if !slices.Contains(all, meant) {
		meant = nearest.Name(word, all)
	}
	switch {
	case meant == "":
		return ""
	case slices.Contains(fixedOfDevices, meant):
		return "${device." + meant + "}"
	}
	return "${device.attr." + meant + "}"
}

// attributesOf returns the names of the device groups' attributes, except attributes that list
// GPUs.
func attributesOf(devices []*api.NodeDeviceResource) []string {
	names := map[string]bool{}
	for _, d := range devices {
		for name := range d.Attributes {
			if !strings.HasPrefix(name, "unique.") {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// faultOn returns why one device group does not meet a constraint that contains a reference.
func faultOn(c *api.Constraint, d *api.NodeDeviceResource, devices []*api.NodeDeviceResource) *Fault {
	target, value, swapped := c.LTarget, c.RTarget, !strings.HasPrefix(c.LTarget, "${")
	if swapped {
		target, value = value, target
	}
	if f := targetFault(c, target, d, devices); f != nil {
		return f
	}
	if strings.HasPrefix(value, "${") {
		if f := targetFault(c, value, d, devices); f != nil {
			return f
		}
		return &Fault{Kind: FaultValue, Subject: value}
	}
	if swapped {
		return &Fault{Kind: FaultValue, Subject: value}
	}
	is, given := deviceTarget(target, d), structs.ParseAttribute(value)
	switch c.Operand {
	case api.ConstraintAttributeIsNotSet:
		return &Fault{Kind: FaultValue, Subject: target}
	case api.ConstraintVersion, api.ConstraintSemver:
		return versionFault(c, is, given)
	case api.ConstraintRegex, api.ConstraintSetContains, api.ConstraintSetContainsAll, api.ConstraintSetContainsAny:
		return textFault(c, is, given)
	}
	return typeFault(c, is, given)
}

// targetFault returns why a reference cannot be resolved, or nil if it can be resolved.
func targetFault(c *api.Constraint, target string, d *api.NodeDeviceResource, devices []*api.NodeDeviceResource) *Fault {
	if deviceTarget(target, d) != nil {
		return nil
	}
	inner, _ := interpolation(target)
	if !strings.HasPrefix(inner, "device.") {
		f := &Fault{Kind: FaultPlace, Subject: target, In: "group"}
		if slices.ContainsFunc([]string{"attr.", "meta.", "node."}, func(known string) bool { return strings.HasPrefix(inner, known) }) {
			f.Write = &Condition{c.LTarget, c.Operand, c.RTarget}
		}
		return f
	}
	name := strings.TrimPrefix(strings.TrimPrefix(inner, "device."), "attr.")
	if slices.Contains(instanceNames, strings.TrimPrefix(name, "unique.")) {
		return &Fault{Kind: FaultInstance, Subject: target, Write: &Condition{"${device.ids}", api.ConstraintSetContains, c.RTarget}}
	}
	f := &Fault{Kind: FaultAttribute, Subject: target}
	if meant := meantTarget(strings.ToLower(name), devices); meant != "" && target == c.LTarget {
		value := c.RTarget
		if major, _, dotted := strings.Cut(value, "."); dotted && strings.HasSuffix(meant, "_major}") {
			value = major
		}
		f.Write = &Condition{meant, c.Operand, value}
	}
	return f
}

// versionFault finds faults of constraints with the operators version and semver.
func versionFault(c *api.Constraint, is, given *structs.Attribute) *Fault {
	text, isText := asText(is)
	if _, err := version.NewVersion(text); !isText || err != nil {
		return &Fault{Kind: FaultPattern, Subject: cmp.Or(text, is.GoString()), Is: "version"}
	}
	if _, ok := given.GetString(); !ok { // 550 and 6.0 are numbers
		return &Fault{Kind: FaultType, Subject: c.RTarget, Is: "a version", Write: &Condition{c.LTarget, c.Operand, ">= " + c.RTarget}}
	}
	return cmp.Or(patternFault(c), &Fault{Kind: FaultValue, Subject: c.RTarget})
}

// textFault finds faults of constraints with operators that accept only texts.
func textFault(c *api.Constraint, is, given *structs.Attribute) *Fault {
	if _, ok := is.GetString(); !ok {
		return &Fault{Kind: FaultType, Subject: c.RTarget, Is: kindOf(is)}
	}
	if _, ok := given.GetString(); !ok {
		return &Fault{Kind: FaultType, Subject: c.RTarget, Is: "text", Write: &Condition{c.LTarget, api.ConstraintRegex, asPattern(regexp.QuoteMeta(c.RTarget))}}
	}
	return cmp.Or(patternFault(c), &Fault{Kind: FaultValue, Subject: c.RTarget})
}

// typeFault finds faults of constraints with comparison operators.
func typeFault(c *api.Constraint, is, given *structs.Attribute) *Fault {
	if is.Comparable(given) {
		return &Fault{Kind: FaultValue, Subject: c.RTarget}
	}
	if is.String != nil {
		return textTypeFault(c, *is.String)
	}
	f := &Fault{Kind: FaultType, Subject: c.RTarget, Is: kindOf(is)}
	if value := withUnit(c.RTarget, is.Unit); value != "" {
		f.Write = &Condition{c.LTarget, c.Operand, value}
	}
	return f
}

// textTypeFault returns the fault of a constraint that compares a text with a number or boolean.
func textTypeFault(c *api.Constraint, is string) *Fault {
	f := &Fault{Kind: FaultType, Subject: c.RTarget, Is: "text"}
	_, err := version.NewVersion(is)
	if _, given := version.NewVersion(c.RTarget); err == nil && given == nil && strings.ContainsAny(c.Operand, "<>") {
		f.Is, f.Write = "a version", &Condition{c.LTarget, api.ConstraintVersion, c.Operand + " " + c.RTarget}
	} else if !strings.ContainsAny(c.Operand, "<>!") && c.Operand != "not" {
		f.Write = &Condition{c.LTarget, api.ConstraintRegex, asPattern(regexp.QuoteMeta(c.RTarget))}
	}
	return f
}

// withUnit adds the attribute's unit to a number without a unit, and replaces a unit such as "gb",
// "G" or "Gi" by Nomad's spelling. For any other text, withUnit returns "".
func withUnit(text, own string) string {
	i := strings.LastIndexAny(text, "0123456789.") + 1
	number, unit := text[:i], strings.TrimSpace(text[i:])
	if _, err := strconv.ParseFloat(number, 64); err != nil || own == "" {
		return ""
	}
	if unit == "" {
		return number + " " + own
	}
	for _, name := range slices.Sorted(maps.Keys(structs.UnitIndex)) {
		if strings.EqualFold(name, unit) || strings.EqualFold(name, unit+"B") {
			return number + " " + name
		}
	}
	return ""
}

// kindOf describes the type of an attribute.
func kindOf(a *structs.Attribute) string {
	switch {
	case a.String != nil:
		return "text"
	case a.Bool != nil:
		return "true or false"
	case a.Unit != "":
		return "a number of " + a.Unit
	}
	return "a number"
}

// mostValues is the maximum number of values on nodes that a fault names.
const mostValues = 4

// valueFault returns the fault of a constraint whose reference is valid and whose value no device
// has.
func valueFault(c *api.Constraint, devices []*api.NodeDeviceResource) *Fault {
	target := c.LTarget
	if !strings.HasPrefix(target, "${") {
		target = c.RTarget
	}
	f := &Fault{Kind: FaultValue, Subject: c.RTarget}
	if target == "${device.ids}" {
		return f
	}
	values := map[string]bool{}
	for _, d := range devices {
		if a := deviceTarget(target, d); a != nil {
			values[a.GoString()] = true
		}
	}
	f.have(values)
	f.meant(c, values)
	return f
}

// have stores some of the values in f.Have.
func (f *Fault) have(values map[string]bool) {
	all := slices.Sorted(maps.Keys(values))
	for i, v := range all {
		if len(v) > 60 {
			all[i] = v[:60] + "…"
		}
	}
	if f.Have = all; len(all) > mostValues {
		f.Have = append(all[:mostValues:mostValues], fmt.Sprintf("%d more", len(all)-mostValues))
	}
}

// meant stores the existing value that the author probably meant, if the constraint demands
// equality.
func (f *Fault) meant(c *api.Constraint, values map[string]bool) {
	if !slices.Contains([]string{"", "=", "==", "is"}, c.Operand) || strings.HasPrefix(c.RTarget, "${") {
		return
	}
	all, given := slices.Sorted(maps.Keys(values)), strings.ToLower(c.RTarget)
	i := slices.IndexFunc(all, func(v string) bool {
		return len(given) > 2 && (strings.Contains(strings.ToLower(v), given) || strings.Contains(given, strings.ToLower(v)))
	})
	if i >= 0 {
		f.Write = &Condition{c.LTarget, c.Operand, all[i]}
	} else if near := nearest.Name(c.RTarget, all); near != "" && len(given) > 3 {
		f.Write = &Condition{c.LTarget, c.Operand, near}
	}
}

// NodeFault returns why no node can meet a constraint of a job, group or task. NodeFault returns
// nil if a node can meet it, or if there are no nodes.
func NodeFault(c *api.Constraint, nodes []*api.Node) *Fault {
	return unlessMet(c, nodes, NodeMeets, nodeFault)
}

func nodeFault(c *api.Constraint, nodes []*api.Node) *Fault {
	if f := operatorFault(c); f != nil {
		return f
	}
	targets := targetsOf(nodes)
	if !strings.HasPrefix(c.LTarget, "${") && !strings.HasPrefix(c.RTarget, "${") {
		return wordFault(c, meantOfNodes(c.LTarget, targets))
	}
	for _, side := range []string{c.LTarget, c.RTarget} {
		inner, refers := interpolation(side)
		switch {
		case !refers || slices.Contains(targets, side):
			continue
		case strings.HasPrefix(inner, "device."):
			return &Fault{Kind: FaultPlace, Subject: side, In: "device", Write: &Condition{c.LTarget, c.Operand, c.RTarget}}
		}
		f := &Fault{Kind: FaultAttribute, Subject: side}
		if meant := meantOfNodes(inner, targets); meant != "" && side == c.LTarget {
			f.Write = &Condition{meant, c.Operand, c.RTarget}
		}
		return f
	}
	return nodeValueFault(c, nodes)
}

// nodeValueFault returns the fault of a constraint if some node has the reference, but no node has
// the value.
func nodeValueFault(c *api.Constraint, nodes []*api.Node) *Fault {
	values := map[string]bool{}
	for _, n := range nodes {
		if v, ok := NodeTarget(c.LTarget, n); ok {
			values[v] = true
		}
	}
	isVersion := func(v string) bool { _, err := version.NewVersion(v); return err == nil }
	versions := c.Operand == api.ConstraintVersion || c.Operand == api.ConstraintSemver
	if f := patternFault(c); f != nil {
		return f
	}
	if all := slices.Sorted(maps.Keys(values)); versions && len(all) > 0 && !slices.ContainsFunc(all, isVersion) {
		return &Fault{Kind: FaultPattern, Subject: all[0], Is: "version"}
	}
	f := &Fault{Kind: FaultValue, Subject: c.RTarget}
	f.have(values)
	f.meant(c, values)
	return f
}

// targetsOf lists the references that a constraint on nodes can use.
func targetsOf(nodes []*api.Node) []string {
	names := map[string]bool{"${node.unique.id}": true, "${node.unique.name}": true, "${node.datacenter}": true, "${node.class}": true, "${node.pool}": true}
	for _, n := range nodes {
		for name := range n.Attributes {
			names["${attr."+name+"}"] = true
		}
		for name := range n.Meta {
			names["${meta."+name+"}"] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// meantOfNodes guesses which reference the author meant by a word, or by a reference that no node
// has. meantOfNodes returns "" if there is no guess.
func meantOfNodes(word string, targets []string) string {
	word = strings.ToLower(strings.Trim(word, "${} "))
	for _, t := range targets {
		if inner, _ := interpolation(t); inner == word || strings.HasSuffix(inner, "."+word) {
			return t
		}
	}
	inner := make([]string, len(targets))
	for i, t := range targets {
		inner[i], _ = interpolation(t)
	}
	if near := nearest.Name(word, inner); near != "" {
		return "${" + near + "}"
	}
	return ""
}

// unlessVain removes the suggested constraint if no node or device meets it.
func (f *Fault) unlessVain(met func(*api.Constraint) bool) *Fault {
	if w := f.Write; w != nil && f.In == "" && f.Kind != FaultInstance && !met(&api.Constraint{LTarget: w.Attribute, Operand: w.Operator, RTarget: w.Value}) {
		f.Write = nil
	}
	return f
}
