// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// models are nodes of one model each, with four GPUs.
func models(names ...string) *cluster.State {
	s := world(len(names))
	for i, name := range names {
		n := s.Nodes[fmt.Sprintf("id-%d", i)]
		n.NodeResources.Devices[0].Name = name
		if i > 0 {
			n.Meta["speed"] = "high"
		}
	}
	return s
}

// Where a job may go, and where it goes: nodes by number. Node -1 is none.
func TestAffinitiesAndMIG(t *testing.T) {
	const slice = "A100 MIG 1g.5gb"
	device := func(extra string) string { return "device \"nvidia/gpu\" {\n" + extra }
	for _, tc := range []struct {
		name, replace, extra string
		models               []string
		avoid                []int // nodes
		gpus                 int
		eligible             []bool
		on                   int // node, -1: nowhere
	}{
		{name: "open", models: []string{"A100", "H200"}, gpus: 4, eligible: []bool{true, true}, on: 0},
		{name: "likes a model", replace: device("affinity {\n attribute = \"${device.model}\"\n value = \"H200\"\n }\n"),
			models: []string{"A100", "H200"}, gpus: 4, eligible: []bool{true, true}, on: 1},
		{name: "dislikes a model", replace: device("affinity {\n attribute = \"${device.model}\"\n value = \"A100\"\n weight = -20\n }\n"),
			models: []string{"A100", "H200"}, gpus: 4, eligible: []bool{true, true}, on: 1},
		{name: "likes a node", extra: "affinity {\n attribute = \"${meta.speed}\"\n value = \"high\"\n }\n",
			models: []string{"A100", "A100"}, gpus: 4, eligible: []bool{true, true}, on: 1},
		{name: "likes what it may not have", replace: device("affinity {\n attribute = \"${device.model}\"\n value = \"H200\"\n }\nconstraint {\n attribute = \"${device.model}\"\n value = \"A100\"\n }\n"),
			models: []string{"A100", "H200"}, gpus: 4, eligible: []bool{true, false}, on: 0},
		{name: "avoids a node", models: []string{"A100", "A100"}, avoid: []int{0}, gpus: 4, eligible: []bool{true, true}, on: 1},
		{name: "avoids all nodes", models: []string{"A100", "A100"}, avoid: []int{0, 1}, gpus: 4, eligible: []bool{true, true}, on: 0},
		{name: "avoids what it likes", extra: "affinity {\n attribute = \"${meta.speed}\"\n value = \"high\"\n }\n",
			models: []string{"A100", "A100", "A100"}, avoid: []int{1}, gpus: 4, eligible: []bool{true, true, true}, on: 2},
		{name: "avoids all that it likes", extra: "affinity {\n attribute = \"${meta.speed}\"\n value = \"high\"\n }\n",
			models: []string{"A100", "A100"}, avoid: []int{1}, gpus: 4, eligible: []bool{true, true}, on: 0},
		{name: "no slice for who asks for any", models: []string{slice, "A100"}, gpus: 4, eligible: []bool{false, true}, on: 1},
		{name: "slices only", models: []string{slice, slice}, gpus: 4, eligible: []bool{true, true}, on: 0},
		{name: "a slice by name", replace: "device \"nvidia/gpu/" + slice + "\" {\n", models: []string{"A100", slice}, gpus: 4, eligible: []bool{false, true}, on: 1},
		{name: "a slice by constraint", replace: device("constraint {\n attribute = \"${device.model}\"\n value = \"" + slice + "\"\n }\n"),
			models: []string{"A100", slice}, gpus: 4, eligible: []bool{false, true}, on: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := models(tc.models...)
			hcl := clustertest.Jobspec("j", 1, tc.gpus, tc.extra)
			if tc.replace != "" {
				hcl = strings.Replace(hcl, device(""), tc.replace, 1)
			}
			v := view(t, s)
			r, err := v.Request(addJob(t, s, hcl, 5))
			if err != nil {
				t.Fatal(err)
			}
			if tc.avoid != nil {
				nodes := map[string]bool{}
				for _, n := range tc.avoid {
					nodes[s.Nodes[fmt.Sprintf("id-%d", n)].Name] = true
				}
				v.Avoid(&r, nodes)
			}
			if d := cmp.Diff(tc.eligible, r.Gang.MemberSets[0].Eligible); d != "" {
				t.Errorf("eligible (-want +got):\n%s", d)
			}
			on := -1
			if pl, ok := pal.Place(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL}); ok {
				on, _ = v.Cluster.Group(pl.Members[0].Group)
			}
			if on != tc.on {
				t.Errorf("on node %d, want %d", on, tc.on)
			}
		})
	}
}
