// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// Commands show and accept nvidia-smi's numbers, which differ from the order of UUIDs. If the
// device plugin does not publish the numbers, as nomad-device-nvidia, commands show PCI addresses,
// and invent no number.
func TestGPUsByPlace(t *testing.T) {
	c := newCluster(t)
	numbered, plain := nomadtest.GPUNode(2, 3), nomadtest.GPUNode(3, 2)
	indexes := map[string]int{}
	for k, in := range numbered.NodeResources.Devices[0].Instances {
		in.Locality = &api.NodeDeviceLocality{PciBusID: fmt.Sprintf("0000:%02x:00.0", 0x1a+2-k)}
		indexes[in.ID] = 2 - k
	}
	text := attr.FormatIndexes(indexes)
	numbered.NodeResources.Devices[0].Attributes[attr.Indexes] = &api.Attribute{StringVal: &text}
	for k, in := range plain.NodeResources.Devices[0].Instances {
		in.Locality = &api.NodeDeviceLocality{PciBusID: fmt.Sprintf("00000000:%02X:00.0\x00\x00", 0x1a+3*k)}
	}
	c.nomad.AddNode(numbered)
	c.nomad.AddNode(plain)
	c.agent("", "http {\n  bind_port = 0\n}\n")

	var gpus []palapi.GPU
	if _, out, said := c.does("gpus", "-json", "-node", "node-2", "-node", "node-3"); json.Unmarshal([]byte(out), &gpus) != nil {
		t.Fatal(out, said)
	}
	var got []string
	for _, g := range gpus {
		got = append(got, strings.Join([]string{g.ID, indexOf(g), g.BusID}, " "))
	}
	want := []string{"GPU-2-2 0 0000:1a:00.0", "GPU-2-1 1 0000:1b:00.0", "GPU-2-0 2 0000:1c:00.0", "GPU-3-0 - 0000:1a:00.0", "GPU-3-1 - 0000:1d:00.0"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for name, want := range map[string]string{
		"node-2:2":                "GPU-2-0, nvidia/gpu/NVIDIA H200 of node node-2, GPU 2 in nvidia-smi (0000:1c:00.0), is free.",
		"node-2:00000000:1C:00.0": "GPU-2-0, ",
		"1c:00.0":                 "GPU-2-0, ",
		"node-3:1d:00.0":          "GPU-3-1, nvidia/gpu/NVIDIA H200 of node node-3, 0000:1d:00.0, is free.",
		"1a:00.0":                 `"1a:00.0" matches 2 GPUs and nodes: type a longer prefix (GPU-2-2, GPU-3-0)`,
		"node-3:0":                "no job \"node-3:0\"",
	} {
		if _, out, said := c.does("explain", name); !strings.Contains(out+said, want) {
			t.Errorf("explain %s: %q is not in\n%s%s", name, want, out, said)
		}
	}
	for _, name := range []string{"node-2:2", "1c:00.0", "GPU-2-0"} {
		if _, out, said := c.does("quarantine", "-reason", "fan is replaced", name); out != "In quarantine: GPU-2-0\n" {
			t.Errorf("quarantine %s: %s%s", name, out, said)
		}
		if _, out, said := c.does("quarantine", "-lift", name); out != "Lifted the quarantine of GPU-2-0\n" {
			t.Errorf("quarantine -lift %s: %s%s", name, out, said)
		}
	}
	if code, out, said := c.does("quarantine", "-reason", "fan is replaced", "node-3:0"); code == 0 || !strings.Contains(said, "matches no GPU") {
		t.Errorf("a number that no plugin published: exit code %d\n%s%s", code, out, said)
	}
	if _, out, _ := c.does("gpus", "-node", "node-2"); !strings.Contains(out, "GPU      Node    Index  Model") {
		t.Errorf("the table has no indexes:\n%s", out)
	}
}
