// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// A service that is updated prefers the nodes of the members that its count keeps. Nomad stops those
// with the highest numbers.
func TestPrefersNodesOfMembersThatStay(t *testing.T) {
	for count, want := range map[int][]string{5: {"n0", "n1", "n2", "slow"}, 3: {"n0", "n1", "n2"}, 0: {"n0", "n1", "n2", "slow"}} {
		job := api.NewServiceJob("api", "api", "global", 50)
		task := api.NewTask("main", "raw_exec")
		task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu"}}}
		job.AddTaskGroup(api.NewTaskGroup("web", count).AddTask(task))
		var members []*cluster.Alloc
		for i, node := range []string{"n0", "n1", "n2", "slow", "slow"} {
			members = append(members, &cluster.Alloc{Group: "web", Name: fmt.Sprintf("api.web[%d]", i), Node: node})
		}
		if got := PreferHere(job, members).Nodes(); !slices.Equal(got, want) {
			t.Errorf("count %d: %q, want %q", count, got, want)
		}
	}
}
