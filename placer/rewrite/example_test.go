// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite_test

import (
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A job waits behind the gate until the placer has GPUs for it. Then pins replace
// the gate. Author gives back what the author wrote, from any form of the job.
func Example() {
	train := api.NewTask("train", "docker")
	train.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu"}}}
	job := api.NewBatchJob("train", "train", "global", 50).
		AddTaskGroup(api.NewTaskGroup("workers", 2).AddTask(train))

	gated := rewrite.Gate(job)
	fmt.Println("gated:", *gated.Constraints[0])

	pinned, err := rewrite.Pin(gated, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{
		Group: "workers", Nodes: []string{"node-1"}, GPUs: []string{"GPU-a", "GPU-b"},
	}}}, rewrite.Racks{})
	if err != nil {
		panic(err)
	}
	workers := pinned.TaskGroups[0]
	fmt.Println("job:", *pinned.Constraints[0])
	fmt.Println("group:", *workers.Constraints[0])
	fmt.Println("device:", *workers.Tasks[0].Resources.Devices[0].Constraints[0])

	author := rewrite.Author(pinned)
	fmt.Println("author's constraints:", len(author.Constraints)+len(author.TaskGroups[0].Constraints))
	// Output:
	// gated: {${meta.pal_gate} waiting in nomad-pal's queue (type: nomad-pal explain JOB) =}
	// job: {${node.unique.id} nomad-pal/job,node-1 set_contains_any}
	// group: {${node.unique.id} nomad-pal,node-1 set_contains_any}
	// device: {${device.ids} nomad-pal,GPU-a,GPU-b set_contains_any}
	// author's constraints: 0
}
