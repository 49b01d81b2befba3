// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"fmt"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Waits for better GPUs cost little where most GPUs are of a fast model, and gangs of many sizes
// compete for the GPUs. Without these waits, a gang takes the best GPUs that are free.
func TestWaitingForFasterModelsCostsLittle(t *testing.T) {
	average := map[bool]float64{}
	for seed := range uint64(20) {
		jobs := trace.SiaPhilly(seed, trace.Shape{Jobs: 60, MaxGPUs: 48}).Jobs
		for i := range jobs {
			slow := map[pal.AppClass]float64{pal.ClassA: 0.7, pal.ClassB: 0.6, pal.ClassC: 0.5}[jobs[i].Class]
			jobs[i].Speeds = pal.Speeds{"nvidia/gpu/fast": 1, "nvidia/gpu/slow": slow}
			jobs[i].MemberGPUs = min(4, jobs[i].GPUs)
			jobs[i].SubmitS /= 4
		}
		for _, waits := range []bool{true, false} {
			rules := queue.Default()
			rules.LocalityWait = waits
			out, err := Config{Jobs: jobs, Cluster: twoModels(t, 13, 3), Queue: rules, RestartS: 60}.Run()
			if err != nil {
				t.Fatal(err)
			}
			average[waits] += FiguresOf(out.Jobs).AvgJCT / 20
		}
	}
	t.Logf("average completion time: %.0f s with waits, %.0f s without", average[true], average[false])
	if average[true] > 1.03*average[false] {
		t.Errorf("waits make the average completion time %.2f times as long", average[true]/average[false])
	}
}

// twoModels is a cluster with nodes of four GPUs of the models fast and slow.
func twoModels(t *testing.T, fast, slow int) *pal.Cluster {
	t.Helper()
	var nodes []pal.Node
	for i := range fast + slow {
		model := "fast"
		if i >= fast {
			model = "slow"
		}
		g := pal.DeviceGroup{Name: "nvidia/gpu/" + model}
		for u := range 4 {
			g.GPUs = append(g.GPUs, pal.GPU{ID: fmt.Sprintf("%d-%d", i, u)})
		}
		nodes = append(nodes, pal.Node{ID: fmt.Sprint(i), Name: fmt.Sprint(i), Groups: []pal.DeviceGroup{g}})
	}
	c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
