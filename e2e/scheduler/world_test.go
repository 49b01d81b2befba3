// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/hashicorp/nomad/nomad/mock"
	"github.com/hashicorp/nomad/nomad/structs"
	psstructs "github.com/hashicorp/nomad/plugins/shared/structs"
)

// classes is the number of variability classes.
const classes = 5

// reset reads the cluster, and returns the nodes by computed class.
func (w *world) reset(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	*w = world{}
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		name, rack, _ := strings.Cut(fields[0], "/")
		n := gpuNode(t, name, rack, fields[1:], d.HasArg("companions"))
		w.nodes = append(w.nodes, n)
	}
	byClass := map[string][]string{}
	for _, n := range w.nodes {
		byClass[n.ComputedClass] = append(byClass[n.ComputedClass], n.Name)
	}
	var lines []string
	for _, names := range byClass {
		lines = append(lines, "class of "+strings.Join(names, " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// gpuNode is a node with one device group, whose attributes have the names in pal/attr. Its rack
// may be "".
func gpuNode(t *testing.T, name, rack string, gpus []string, companions bool) *structs.Node {
	t.Helper()
	n := mock.Node()
	n.ID = fmt.Sprintf("%08x-0000-0000-0000-000000000000", []byte(name))
	n.Name = name
	n.Attributes = map[string]string{"kernel.name": "linux", "nomad.version": "1.11.3", "unique.hostname": name}
	n.Drivers = map[string]*structs.DriverInfo{"raw_exec": {Detected: true, Healthy: true}}
	n.Meta, n.Links = nil, nil
	if rack != "" {
		n.Meta = map[string]string{"rack": rack}
	}
	n.NodeResources.Memory.MemoryMB = 1 << 20
	group := &structs.NodeDeviceResource{
		Vendor: "nvidia", Type: "gpu", Name: "NVIDIA H200", Attributes: map[string]*psstructs.Attribute{},
	}
	lists := make([][]string, classes+1)
	healthy := 0
	for _, spec := range gpus {
		spec, unhealthy := strings.CutSuffix(spec, "!")
		id, classText, given := strings.Cut(spec, ":")
		class := classes
		if given {
			var err error
			if class, err = strconv.Atoi(classText); err != nil || class < 1 || class > classes {
				t.Fatalf("GPU %q: class %q is not 1 to %d", id, classText, classes)
			}
		}
		group.Instances = append(group.Instances, &structs.NodeDevice{ID: id, Healthy: !unhealthy})
		if unhealthy {
			continue
		}
		healthy++
		for k := class; k <= classes; k++ {
			lists[k] = append(lists[k], id)
		}
	}
	for k := 1; k <= classes; k++ {
		list := fmt.Sprintf("variability_a_le_%d", k)
		group.Attributes["unique."+list] = psstructs.NewStringAttribute(strings.Join(lists[k], ","))
		if companions {
			group.Attributes[list+"_count"] = psstructs.NewIntAttribute(int64(len(lists[k])), "")
		}
	}
	if companions {
		group.Attributes["count"] = psstructs.NewIntAttribute(int64(len(gpus)), "")
		group.Attributes["healthy_count"] = psstructs.NewIntAttribute(int64(healthy), "")
	}
	n.NodeResources.Devices = []*structs.NodeDeviceResource{group}
	if err := n.ComputeClass(); err != nil {
		t.Fatal(err)
	}
	return n
}

// hold adds allocations of another job: one for each line, with its node and GPUs.
func (w *world) hold(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		i := slices.IndexFunc(w.nodes, func(n *structs.Node) bool { return n.Name == fields[0] })
		if i < 0 {
			t.Fatalf("%s: no node %q", d.Pos, fields[0])
		}
		a := mock.Alloc()
		a.NodeID, a.NodeName = w.nodes[i].ID, fields[0]
		a.ClientStatus = structs.AllocClientStatusRunning
		a.AllocatedResources.Tasks["web"].Networks = nil
		a.AllocatedResources.Shared.Networks, a.AllocatedResources.Shared.Ports = nil, nil
		a.AllocatedResources.Tasks["web"].Devices = []*structs.AllocatedDeviceResource{{
			Vendor: "nvidia", Type: "gpu", Name: "NVIDIA H200", DeviceIDs: fields[1:],
		}}
		w.other = append(w.other, a)
	}
	return ""
}

// store stores the world and the job in a new state.
func (w *world) store(t *testing.T, h *harness, job *structs.Job) {
	t.Helper()
	for _, n := range w.nodes {
		if err := h.State.UpsertNode(structs.MsgTypeTestSetup, h.NextIndex(), n.Copy()); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range w.other {
		if err := h.State.UpsertJob(structs.MsgTypeTestSetup, h.NextIndex(), nil, a.Job.Copy()); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.other) > 0 {
		allocs := make([]*structs.Allocation, len(w.other))
		for i, a := range w.other {
			allocs[i] = a.Copy()
		}
		if err := h.State.UpsertAllocs(structs.MsgTypeTestSetup, h.NextIndex(), allocs); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.State.UpsertJob(structs.MsgTypeTestSetup, h.NextIndex(), nil, job); err != nil {
		t.Fatal(err)
	}
}
