// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

// A job that Nomad filters on every node for lasting reasons never starts. It waits if nodes
// are only in use, or may come back.
func TestNever(t *testing.T) {
	gpu := &api.Task{Name: "t", Driver: "docker", Resources: &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu"}}}}
	job := &api.Job{TaskGroups: []*api.TaskGroup{
		{Name: new("gpus"), Count: new(1), Tasks: []*api.Task{gpu}},
		{Name: new("web"), Count: new(1), Tasks: []*api.Task{{Name: "w", Driver: "java", Resources: &api.Resources{}}}, Networks: []*api.NetworkResource{{Mode: "bridge"}}},
	}}
	filtered := func(group, what string, nodes int) map[string]*api.AllocationMetric {
		return map[string]*api.AllocationMetric{group: {NodesEvaluated: 3, NodesFiltered: nodes, NodesExhausted: 3 - nodes, ConstraintFiltered: map[string]int{what: nodes}}}
	}
	for _, c := range []struct {
		failed map[string]*api.AllocationMetric
		want   string
	}{
		{filtered("web", "missing drivers", 3), `Nomad cannot place group "web" on any node: missing drivers (3 of 3 nodes)`},
		{filtered("web", "missing network", 3), `Nomad cannot place group "web" on any node: missing network (3 of 3 nodes)`},
		{filtered("gpus", "missing CSI Volume models", 3), `Nomad cannot place group "gpus" on any node: missing CSI Volume models (3 of 3 nodes)`},
		{filtered("gpus", "${attr.vault.version} semver >= 0.6.1", 3), `Nomad cannot place group "gpus" on any node: ${attr.vault.version} semver >= 0.6.1 (3 of 3 nodes)`},
		{filtered("web", "missing drivers", 2), ""},                             // nodes are full
		{filtered("gpus", "missing devices", 3), ""},                            // the devices may only be unhealthy: the view knows
		{filtered("web", "distinct_hosts", 3), ""},                              // other jobs have the nodes
		{filtered("gpus", "CSI plugin ebs is unhealthy on client 0123", 3), ""}, // the plugin may recover
		{filtered("web", "CSI volume x has exhausted its available writer claims", 3), ""},
		{map[string]*api.AllocationMetric{"web": {}}, `Nomad cannot place group "web" on any node: no node is ready in its datacenters and node pool`},
		{map[string]*api.AllocationMetric{"web": nil}, ""},
		{map[string]*api.AllocationMetric{"web": {NodesEvaluated: 2, NodesFiltered: 2, ConstraintFiltered: map[string]int{"missing drivers": 1, "computed class ineligible": 1}}},
			`Nomad cannot place group "web" on any node: missing drivers (2 of 2 nodes)`},
		{map[string]*api.AllocationMetric{"web": {NodesEvaluated: 2, NodesFiltered: 2, ConstraintFiltered: map[string]int{"CSI plugin a is missing from client 1": 1, "CSI plugin a is missing from client 2": 1}}},
			`Nomad cannot place group "web" on any node: CSI plugin a is missing (2 of 2 nodes)`},
	} {
		if got := NeverPlaced(Never(job, c.failed)).String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.failed, got, c.want)
		}
	}
}
