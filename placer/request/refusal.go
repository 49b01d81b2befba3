// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// NotPlaced returns the first group, by name, that Nomad has not placed, and Nomad's reason. If
// Nomad has placed all groups, both results are empty.
func NotPlaced(failed map[string]*api.AllocationMetric) (group, why string) {
	if len(failed) == 0 {
		return "", ""
	}
	group = slices.Min(slices.Collect(maps.Keys(failed)))
	return group, Refusal(failed[group])
}

// Refusal returns Nomad's reason for not placing a group, in one line.
func Refusal(m *api.AllocationMetric) string {
	if m == nil {
		return "no reason given"
	}
	var parts []string
	add := func(counts map[string]int) {
		said := map[string]int{}
		for what, n := range counts {
			if strings.Contains(what, " "+rewrite.Mark+",") || strings.Contains(what, " "+rewrite.Mark+"/") {
				what = "not among the nodes that nomad-pal chose for the job" // the constraint is one of our pins
			}
			said[what] += n
		}
		for _, what := range slices.Sorted(maps.Keys(said)) {
			parts = append(parts, fmt.Sprintf("%s (%s)", what, reason.Counted(said[what], "node", "nodes")))
		}
	}
	add(m.ConstraintFiltered)
	add(m.DimensionExhausted)
	if len(parts) == 0 {
		return fmt.Sprintf("%d nodes evaluated, %d filtered, %d exhausted", m.NodesEvaluated, m.NodesFiltered, m.NodesExhausted)
	}
	return strings.Join(parts, ", ")
}
