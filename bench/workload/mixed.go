// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package workload

import (
	"fmt"
	"math/rand/v2"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// App is an application. Speeds names GPU models without their vendor and type.
type App struct {
	Name   string
	Class  pal.AppClass
	Speeds pal.Speeds
}

// nodeGPUs is the maximum number of GPUs per member of a generated job; a member is on one node.
const nodeGPUs = 8

// Mixed generates jobs of the given applications on the given GPU models. Sizes and run times are
// as in [trace.SiaPhilly]. The run times are for a GPU with the mean speed of the models. A job's
// name is the application, "×" and the number of GPUs.
func Mixed(seed uint64, shape trace.Shape, models []string, apps []App) trace.Trace {
	t := trace.SiaPhilly(seed, shape)
	t.Name = fmt.Sprintf("mixed seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0x51a))
	for i := range t.Jobs {
		j, app := &t.Jobs[i], apps[rng.IntN(len(apps))]
		mean := 0.0
		for _, m := range models {
			mean += app.Speeds.On(m) / float64(len(models))
		}
		j.Name, j.Class, j.Speeds, j.MemberGPUs = fmt.Sprintf("%s×%d", app.Name, j.GPUs), app.Class, app.Speeds, min(j.GPUs, nodeGPUs)
		j.IterTimeS *= mean
	}
	return t
}
