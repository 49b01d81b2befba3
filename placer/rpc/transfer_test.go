// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rpc

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// onServer is a job as a server sends it, with an unknown field.
const onServer = `{
  "ID": "train/dispatch-1", "ParentID": "train", "Dispatched": true, "Payload": "\u0000", "Future": {"x": [1]},
  "Constraints": [{"LTarget": "${meta.pal_gate}", "RTarget": "open", "Operand": "="}],
  "TaskGroups": [{
    "Name": "g", "Count": 4, "Constraints": null, "Unknown": 7, "Scaling": {"Min": 4, "Max": 8},
    "Tasks": [
      {"Name": "side", "Resources": {"CPU": 10, "Devices": null}},
      {"Name": "main", "Resources": {"CPU": 10, "Devices": [{"Name": "nvidia/gpu", "Count": 2, "Constraints": null}]}}
    ]
  }]
}`

func serverJob(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(onServer), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func pinned() *api.Job {
	pin := func(l, r string) []*api.Constraint {
		return []*api.Constraint{{LTarget: l, RTarget: r, Operand: "set_contains_any"}}
	}
	id, name, count, members, least := "train/dispatch-1", "g", uint64(2), 6, int64(4)
	return &api.Job{ID: &id, TaskGroups: []*api.TaskGroup{{
		Name: &name, Count: &members, Scaling: &api.ScalingPolicy{Min: &least}, Constraints: pin("${node.unique.id}", "nomad-pal,n1"),
		Tasks: []*api.Task{
			{Name: "side", Resources: &api.Resources{}},
			{Name: "main", Resources: &api.Resources{Devices: []*api.RequestedDevice{
				{Name: "nvidia/gpu", Count: &count, Constraints: pin("${device.ids}", "nomad-pal,G1,G2")},
			}}},
		},
	}}}
}

func TestTransfer(t *testing.T) {
	got := serverJob(t)
	if err := transfer(got, pinned()); err != nil {
		t.Fatal(err)
	}
	pin := func(l, r string) []any {
		return []any{map[string]any{"LTarget": l, "RTarget": r, "Operand": "set_contains_any"}}
	}
	want := serverJob(t)
	want["Constraints"] = nil
	group := want["TaskGroups"].([]any)[0].(map[string]any)
	group["Constraints"], group["Affinities"], group["Count"] = pin("${node.unique.id}", "nomad-pal,n1"), nil, 6.0
	task := group["Tasks"].([]any)[1].(map[string]any)
	device := task["Resources"].(map[string]any)["Devices"].([]any)[0].(map[string]any)
	device["Constraints"], device["Affinities"] = pin("${device.ids}", "nomad-pal,G1,G2"), nil
	if d := cmp.Diff(want, plain(t, got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// In the dry run of the members on one node, count is their number, and there is no scaling
// block: Nomad refuses a job with fewer members than the block's min.
func TestTransferAlone(t *testing.T) {
	got, job := serverJob(t), pinned()
	alone, err := rewrite.PinAlone(job, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{
		{Group: "g", Nodes: []string{"n1", "n2"}, GPUs: []string{"G1", "G2"}},
	}}, "n1", map[string]int{"g": 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := transfer(got, alone); err != nil {
		t.Fatal(err)
	}
	group := plain(t, got)["TaskGroups"].([]any)[0].(map[string]any)
	if group["Count"] != 1.0 || group["Scaling"] != nil {
		t.Errorf("count %v, scaling %v, want 1 and none", group["Count"], group["Scaling"])
	}
}

// plain is m with the types that JSON has.
func plain(t *testing.T, m map[string]any) map[string]any {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTransferRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(server map[string]any)
	}{
		{"another group", `group "g" is named h on the server`, func(m map[string]any) {
			m["TaskGroups"].([]any)[0].(map[string]any)["Name"] = "h"
		}},
		{"no groups", "has 0 TaskGroups, want 1", func(m map[string]any) { m["TaskGroups"] = nil }},
		{"a task less", "has 1 Tasks, want 2", func(m map[string]any) {
			g := m["TaskGroups"].([]any)[0].(map[string]any)
			g["Tasks"] = g["Tasks"].([]any)[1:]
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := serverJob(t)
			c.change(m)
			if err := transfer(m, pinned()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestDropEmptyPayload(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload any
		refused bool
	}{
		{"none", nil, false},
		{"empty", "", false},
		{"nothing, compressed", "\x00", false},
		{"as bytes", []byte{0}, false},
		{"something", "\x05\x10hello", true},
		{"something as bytes", []byte("\x01\x00x"), true},
		{"of a strange kind", 7, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := map[string]any{"Payload": c.payload}
			err := dropEmptyPayload(job)
			if errors.Is(err, cluster.ErrPayload) != c.refused {
				t.Errorf("error %v", err)
			}
			if !c.refused && job["Payload"] != nil {
				t.Errorf("payload %q is still there", job["Payload"])
			}
			if c.refused && job["Payload"] == nil {
				t.Error("the payload is missing")
			}
		})
	}
}
