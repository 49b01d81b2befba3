// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

const (
	modelH200 = "NVIDIA H200"
	modelA100 = "NVIDIA A100-SXM4-40GB"
	sliceA100 = modelA100 + " MIG 1g.5gb" // the name that nomad-device-nvidia uses
)

// mixedCluster: node 0 has A100s, node 1 H200s, node 2 one A100 cut into seven
// instances and one whole A100. Times are relative to each model's own median:
// the A100s take three times as long as the H200s. The best A100 has a better
// score than any H200, and beats the other A100s by more than the placer gives
// up to leave room for wide gangs.
func mixedCluster() []string {
	return []string{
		modelInventory(modelA100, 40960, map[string]float64{"GPU-a-0": 3.0, "GPU-a-1": 2.6, "GPU-a-2": 3.0, "GPU-a-3": 3.6}),
		modelInventory(modelH200, 143771, map[string]float64{"GPU-h-0": 1.0, "GPU-h-1": 1.0, "GPU-h-2": 1.2, "GPU-h-3": 1.0}),
		modelInventory(modelA100, 40960, map[string]float64{"GPU-m-0": 3.0}) + slices1g("GPU-m-1", 7),
	}
}

func modelInventory(model string, memory int, times map[string]float64) string {
	var s strings.Builder
	for id, x := range times {
		fmt.Fprintf(&s, "gpu %q {\n  model = %q\n  memory_mib = %d\n  key = \"k\"\n  times = { A = %v, B = %v, C = %v, D = %v }\n}\n", id, model, memory, x, x, x, x)
	}
	return s.String()
}

// slices1g are the MIG instances of an A100.
func slices1g(parent string, n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "gpu \"MIG-%d\" {\n  model = %q\n  mig_profile = \"1g.5gb\"\n  mig_parent = %q\n  memory_mib = 4864\n}\n", i, modelA100, parent)
	}
	return s.String()
}

// TestPlacerModels: a cluster with two models and MIG instances.
func TestPlacerModels(t *testing.T) {
	t.Parallel()
	b := newBedOf(t, mixedCluster(), cluster.Options{})
	b.tell([]scene{
		{"memory at least", "", testMemory},
		{"MIG instances", "", testMIG},
	})
}

// asks is a gang whose device block has this name and more.
func asks(id string, count, gpus int, device, wants string) job {
	j := gang(id, count, gpus)
	j.groups[0].device, j.groups[0].wants = device, wants
	return j
}

// The placer understands a device constraint with a unit as Nomad does.
func testMemory(t *testing.T, b *bed) {
	const atLeast = "constraint {\n  attribute = \"${device.attr.memory}\"\n  operator = \">=\"\n  value = \"80 GiB\"\n}\n"
	b.run(asks("large", 1, 3, "nvidia/gpu", atLeast).hcl())
	same(t, "the best GPUs with enough memory", []string{"GPU-h-0", "GPU-h-1", "GPU-h-3"}, b.untilGPUs("large", 3))
	b.run(asks("larger", 1, 3, "nvidia/gpu", atLeast).hcl())
	b.untilWaits("larger")
	b.waitsOn("larger")
	b.purge("large", "larger")
}

// A job that names MIG instances is pinned to them. No instance is given twice.
func testMIG(t *testing.T, b *bed) {
	got := b.runs(asks("sliced", 5, 1, "nvidia/gpu/"+sliceA100, ""), 5)
	b.untilExplained("sliced", got)
	same(t, "each once", 5, len(slices.Compact(slices.Clone(got))))
	rest := b.runs(asks("rest", 2, 1, "nvidia/gpu/"+sliceA100, ""), 2)
	all := append(slices.Clone(got), rest...)
	slices.Sort(all)
	same(t, "all instances", []string{"MIG-0", "MIG-1", "MIG-2", "MIG-3", "MIG-4", "MIG-5", "MIG-6"}, all)
	b.run(asks("none", 1, 1, "nvidia/gpu/"+sliceA100, "").hcl())
	b.untilWaits("none")
	b.purge("sliced", "rest", "none")
}
