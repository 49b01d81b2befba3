// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// passingFilters are parts of the scheduler's messages about filtered nodes, for causes that can
// end by themselves, when allocations end or a plugin comes back.
var passingFilters = []string{
	api.ConstraintDistinctHosts, api.ConstraintDistinctProperty, "is unhealthy on client", "has the maximum number of volumes",
	"has exhausted its available", "CSI volume lookup failed",
}

// knownOfGPUs are parts of the scheduler's messages about filtered nodes. For groups with GPUs, the
// view knows more than these messages: for example, whether a driver is missing or only unhealthy.
var knownOfGPUs = []string{"missing devices", "missing drivers", "missing compatible host volumes"}

// NeverPlaced returns one reason that contains all of the obstacles.
func NeverPlaced(found []palapi.Obstacle) reason.Reason {
	r := reason.Reason{Kind: reason.Never}
	for _, o := range found {
		why := o.Reason()
		why.Kind = reason.NeverGroup
		r = r.Over(why)
	}
	return r
}

// sameClass is the scheduler's message about a node if it has already filtered another node of the
// same computed class.
const sameClass = "computed class ineligible"

// Never returns what keeps groups of a job off every node that Nomad evaluated in a dry run of the
// job as its author wrote it. Never leaves out groups for which some node lacks only free
// resources. Never returns nil if every group can start later.
func Never(author *api.Job, failed map[string]*api.AllocationMetric) (found []palapi.Obstacle) {
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		g, m := author.LookupTaskGroup(name), failed[name]
		if g == nil || m == nil || m.NodesExhausted > 0 || len(m.QuotaExhausted) > 0 || m.NodesFiltered < m.NodesEvaluated {
			continue
		}
		if m.NodesEvaluated == 0 {
			found = append(found, ofNomad(g, "no node is ready in its datacenters and node pool", palapi.Obstacle{}))
			continue
		}
		found = append(found, filteredOn(g, m)...)
	}
	return found
}

func ofNomad(g *api.TaskGroup, what string, o palapi.Obstacle) palapi.Obstacle {
	o.Group = *g.Name
	o.Lack = palapi.Lack{Kind: LackNomad, Name: what}
	o.What = what
	return o
}

// filteredOn returns why the scheduler filtered all nodes, or nil if some of its reasons can end by
// themselves.
func filteredOn(g *api.TaskGroup, m *api.AllocationMetric) (found []palapi.Obstacle) {
	withGPUs, counts := rewrite.GPUsPerMember(g) > 0, map[string]int{}
	for what, nodes := range m.ConstraintFiltered {
		passes := func(filter string) bool { return strings.Contains(what, filter) }
		if slices.ContainsFunc(passingFilters, passes) || withGPUs && slices.ContainsFunc(knownOfGPUs, passes) {
			return nil
		}
		what, _, _ = strings.Cut(what, " from client ")
		if what != sameClass { // the reason may contain the node's id, which is cut off
			counts[what] += nodes
		}
	}
	rest := m.NodesFiltered
	if len(counts) == 1 { // a single reason also applies to the uncounted nodes, which are of the same computed classes
		for what := range counts {
			counts[what] = rest
		}
	}
	for what, nodes := range counts {
		found = append(found, ofNomad(g, what, palapi.Obstacle{Nodes: nodes, Total: m.NodesEvaluated}))
	}
	if len(found) == 0 {
		found = append(found, ofNomad(g, "Nomad gives no reason", palapi.Obstacle{Nodes: m.NodesFiltered, Total: m.NodesEvaluated}))
	}
	slices.SortFunc(found, func(a, b palapi.Obstacle) int { return cmp.Or(b.Nodes-a.Nodes, cmp.Compare(a.What, b.What)) })
	return found
}
