// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// model has figures of a GPU model from NVIDIA's data sheet: TFLOP/s without sparsity, and memory
// bandwidth in GB/s. The TFLOP/s are for the default format of training frameworks: TF32 if the
// tensor cores support it, otherwise FP32. A K80 is one of the two GPUs of its board.
type model struct{ tflops, gbs float64 }

// dataSheets has the models that the generator of mixed workloads knows.
var dataSheets = map[string]model{
	"K80": {4.4, 240}, "P100": {10.6, 732}, "V100": {15.7, 900}, "T4": {8.1, 320}, "A10": {62.5, 600},
	"L4": {60, 300}, "L40S": {183, 864}, "A100": {156, 1555}, "H100": {495, 3350}, "H200": {495, 4800},
}

// application is a made-up application: the shares of its time on a V100 for compute, for memory,
// and for work that no GPU speeds up (input, host, latency).
type application struct {
	name                  string
	class                 pal.AppClass
	compute, memory, host float64
}

// applications have speeds that vary as Gavel (OSDI'20) and Sia (SOSP'23) measured. For example, a
// recommendation job hardly gains from a newer GPU, and a language model gains most.
var applications = []application{
	{"language", pal.ClassB, 0.70, 0.25, 0.05},
	{"vision", pal.ClassA, 0.60, 0.30, 0.10},
	{"speech", pal.ClassB, 0.40, 0.40, 0.20},
	{"graph", pal.ClassC, 0.10, 0.60, 0.30},
	{"recommendation", pal.ClassD, 0.05, 0.25, 0.70},
	{"simulation", pal.ClassD, 0.05, 0.05, 0.90},
}

// Applications returns the made-up applications, with their speeds on these GPU models.
func Applications(models []string) ([]App, error) {
	v100 := dataSheets["V100"]
	for _, m := range models {
		if _, ok := dataSheets[m]; !ok {
			return nil, fmt.Errorf("the speed of the generated jobs on GPU model %q is unknown; known models: %s", m, strings.Join(slices.Sorted(maps.Keys(dataSheets)), ", "))
		}
	}
	var apps []App
	for _, a := range applications {
		rates := map[string]float64{}
		for _, m := range models {
			d := dataSheets[m]
			rates[m] = 1 / (a.compute*v100.tflops/d.tflops + a.memory*v100.gbs/d.gbs + a.host)
		}
		apps = append(apps, App{a.name, a.class, pal.SpeedsOf(rates)})
	}
	return apps, nil
}

// nodeGPUs is the maximum number of GPUs per member of a generated job; a member is on one node.
const nodeGPUs = 8

// Mixed generates jobs of the given applications on the given GPU models. Sizes and run times are
// as in [SiaPhilly]. The run times are for a GPU with the mean speed of the models.
func Mixed(seed uint64, shape Shape, models []string, apps []App) Trace {
	t := SiaPhilly(seed, shape)
	t.Name = fmt.Sprintf("mixed seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0x51a))
	for i := range t.Jobs {
		j, app := &t.Jobs[i], apps[rng.IntN(len(apps))]
		mean := 0.0
		for _, m := range models {
			mean += app.Speeds.On(m) / float64(len(models))
		}
		j.Name, j.Class, j.Speeds, j.MemberGPUs = ofGPUs(app.Name, j.GPUs), app.Class, app.Speeds, min(j.GPUs, nodeGPUs)
		j.IterTimeS *= mean
	}
	return t
}
