// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

// Only a client knows some facts about its networks: the placer asks for a dry run before
// it writes such a job.
func TestModelled(t *testing.T) {
	for name, tc := range map[string]struct {
		network *api.NetworkResource
		want    bool
	}{
		"none":                   {nil, true},
		"a port":                 {&api.NetworkResource{DynamicPorts: []api.Port{{Label: "a"}}}, true},
		"the usual network":      {&api.NetworkResource{DynamicPorts: []api.Port{{Label: "a", HostNetwork: "default"}}}, true},
		"another network":        {&api.NetworkResource{DynamicPorts: []api.Port{{Label: "a"}, {Label: "b", HostNetwork: "fabric"}}}, false},
		"a port of the author's": {&api.NetworkResource{ReservedPorts: []api.Port{{Label: "a", Value: 80}}}, false},
		"a bridge":               {&api.NetworkResource{Mode: "bridge"}, false},
	} {
		g := api.NewTaskGroup("workers", 1)
		task := api.NewTask("work", "exec")
		task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: new(uint64(1))}}}
		g.Tasks = []*api.Task{task}
		if tc.network != nil {
			g.Networks = []*api.NetworkResource{tc.network}
		}
		if got := modelled(&api.Job{TaskGroups: []*api.TaskGroup{g}}); got != tc.want {
			t.Errorf("%s: modelled %v, want %v", name, got, tc.want)
		}
	}
}
