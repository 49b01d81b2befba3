// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/pal"
)

// The GPU models of -models, as NVML names them.
const (
	v100 = "Tesla V100-SXM2-16GB"
	k80  = "Tesla K80"
)

func modelNames() []string { return []string{v100, k80} }

// gavelApps are applications with speeds like those that Gavel (OSDI'20) measured for one job alone
// on one GPU. Each speed is the rate on a K80 divided by the rate on a V100, as the rounded
// geometric mean over the application's batch sizes. Source: stanford-futuredata/gavel,
// scheduler/simulation_throughputs.json.
func gavelApps() []workload.App {
	app := func(name string, class pal.AppClass, onK80 float64) workload.App {
		return workload.App{Name: name, Class: class, Speeds: pal.SpeedsOf(map[string]float64{v100: 1, k80: onK80})}
	}
	return []workload.App{
		app("a3c", pal.ClassD, 0.5),
		app("cyclegan", pal.ClassA, 0.1),
		app("lm", pal.ClassB, 0.25),
		app("recommendation", pal.ClassD, 1.3),
		app("resnet", pal.ClassA, 0.16),
		app("transformer", pal.ClassB, 0.28),
	}
}

// twoModels changes the GPUs of every second node to the other model. The PM scores stay the same,
// because they compare GPUs of one model.
func twoModels(g *replay.GPUs, nodes int) (*replay.GPUs, error) {
	if nodes%2 != 0 {
		return nil, fmt.Errorf("-models needs an even number of -nodes, not %d", nodes)
	}
	all := slices.Clone(g.All)
	for i := range all {
		all[i].Model, all[i].Rates = v100, [pal.NumClasses]float64{} // speeds depend on the application, not on its class
		if all[i].Node%2 == 1 {
			all[i].Model, all[i].Key, all[i].MemoryMiB = k80, "k80/emulated", 11441
		}
	}
	two, err := replay.NewGPUs(all)
	if err == nil {
		two.Apps = gavelApps()
	}
	return two, err
}

// choice is the way in which a job's GPU model is chosen; "" if the cluster has only one model.
type choice string

const (
	anyModel     choice = "any"     // the job runs on any model with enough free GPUs
	fastestModel choice = "fastest" // a constraint restricts the job to its fastest model
	saidSpeeds   choice = "speed"   // nomad-pal chooses, by the speeds that the author states (pal_speed)
)

// tell adds the constraint or hint about the GPU model to the job.
func (c choice) tell(j *replay.Job) {
	for _, a := range gavelApps() {
		if a.Name != j.App {
			continue
		}
		switch c {
		case fastestModel:
			j.Only = slices.MaxFunc(modelNames(), func(x, y string) int { return int(1000 * (a.Speeds[x] - a.Speeds[y])) })
		case saidSpeeds:
			for i, model := range slices.Sorted(maps.Keys(a.Speeds)) {
				if i > 0 {
					j.Speed += ", "
				}
				j.Speed += fmt.Sprintf("%s=%v", model, a.Speeds[model])
			}
		}
	}
}
