// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/constraint"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// spreads converts the spread blocks of the job and of one of its groups into the core's form.
// spreads ignores the values of nodes that cannot serve the group.
//
// As in Nomad, a block without targets requests the same number of members for each value. If the
// percentages of the targets sum to less than 100, the remainder is the target of each value
// without a target.
func (v *View) spreads(job *api.Job, a gpuRequest, e eligibility) []pal.SpreadOver {
	var out []pal.SpreadOver
	for _, sp := range slices.Concat(job.Spreads, a.group.Spreads) {
		o := pal.SpreadOver{Weight: float64(weight(sp.Weight))}
		in := v.attributeValues(sp.Attribute, e)
		o.Values = in.of
		o.Targets = spreadTargets(sp, in.names, float64(rewrite.Members(a.group)))
		out = append(out, o)
	}
	return out
}

// attributeValues holds the values of an attribute on the nodes that may serve a request.
// names[of[i]] is the value on the node of device group i. of[i] is -1 if this node has no value or
// cannot serve the request.
type attributeValues struct {
	names []string
	of    []int
}

func (v *View) attributeValues(attribute string, e eligibility) attributeValues {
	if in, ok := e.values[attribute]; ok {
		return in
	}
	in := attributeValues{of: make([]int, len(v.Devices))}
	numbers := map[string]int{}
	for i := range in.of {
		value, there := constraint.NodeTarget(attribute, v.GroupNode(i))
		in.of[i] = -1
		if !e.may[i] || !there {
			continue
		}
		n, ok := numbers[value]
		if !ok {
			n = len(in.names)
			numbers[value], in.names = n, append(in.names, value)
		}
		in.of[i] = n
	}
	e.values[attribute] = in
	return in
}

// spreadTargets returns, for each value, how many of count members should be on nodes with this
// value.
func spreadTargets(sp *api.Spread, values []string, count float64) []float64 {
	targets := make([]float64, len(values))
	rest := 100.0
	for _, t := range sp.SpreadTarget {
		rest -= float64(t.Percent)
	}
	for i, value := range values {
		at := slices.IndexFunc(sp.SpreadTarget, func(t *api.SpreadTarget) bool { return t.Value == value })
		switch {
		case at >= 0:
			targets[i] = count * float64(sp.SpreadTarget[at].Percent) / 100
		case len(sp.SpreadTarget) == 0:
			targets[i] = count / float64(len(values))
		default:
			targets[i] = count * max(0, rest) / 100
		}
	}
	return targets
}
