// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

const (
	modelFast = "NVIDIA A100-SXM4-40GB" // GPU-f-0 … 3
	modelSlow = "Tesla T4"              // GPU-s-0 … 3
)

// twoModels: the model of node 0's four GPUs does ten times as much work per second as that of
// node 1's four. The PM scores are equal.
func twoModels() []string {
	inventory := func(model, id string, rate float64) string {
		var s strings.Builder
		for k := range 4 {
			fmt.Fprintf(&s, "gpu \"GPU-%s-%d\" {\n  model = %q\n  key = \"k\"\n  times = { A = 1, B = 1, C = 1, D = 1 }\n  rates = { A = %v, B = %v, C = %v, D = %v }\n}\n",
				id, k, model, rate, rate, rate, rate)
		}
		return s.String()
	}
	return []string{inventory(modelFast, "f", 100), inventory(modelSlow, "s", 10)}
}

// TestPlacerSpeeds: which GPU model a job gets, on a cluster with two models.
func TestPlacerSpeeds(t *testing.T) {
	t.Parallel()
	b := newBedOf(t, twoModels(), cluster.Options{})
	b.tell([]scene{
		{"the model that is measured to be fast for its class", "", testMeasuredSpeed},
		{"a constraint of its author holds", "", testSpeedAndConstraint},
		{"a wait for the better model is told", "", testWaitForModel},
	})
	b.tellLong([]scene{
		{"the model that its author says it is fast on", "", testSaidSpeed},
		{"a gang stays on one model", "", testGangOnOneModel},
	})
}

// onModel waits until a job runs on n GPUs, and checks that they are of this model, by the
// letter in their names.
func (b *bed) onModel(id, letter string, n int) {
	b.t.Helper()
	if got := b.untilGPUs(id, n); slices.ContainsFunc(got, func(gpu string) bool { return gpu[4:5] != letter }) {
		b.t.Errorf("%s runs on %v, want GPU-%s-…", id, got, letter)
	}
}

// speeds are hints: the speeds that an author states, and the job's run time.
func speeds(fast, slow float64) string {
	return fmt.Sprintf("pal_speed = \"%s=%v, %s=%v\"\n    pal_duration = \"10h\"", modelFast, fast, modelSlow, slow)
}

func testSaidSpeed(t *testing.T, b *bed) {
	for letter, meta := range map[string]string{"f": speeds(1, 0.2), "s": speeds(0.5, 1)} {
		j := gang("said-"+letter, 2, 1)
		j.meta = meta
		b.run(j.hcl())
		b.onModel(j.id, letter, 2)
	}
	b.says("explain -verbose said-s", "Speed known from", "pal_speed", "chosen", "has room")
	b.purge("said-f", "said-s")
}

func testMeasuredSpeed(t *testing.T, b *bed) {
	j := gang("measured", 2, 1)
	b.run(j.hcl())
	b.onModel(j.id, "f", 2)
	b.says("explain -verbose measured", "class A, measured on 4 GPUs")
	b.purge(j.id)
}

func testSpeedAndConstraint(t *testing.T, b *bed) {
	for name, device := range map[string][2]string{
		"named":       {"nvidia/gpu/" + modelSlow, ""},
		"constrained": {"nvidia/gpu", fmt.Sprintf("constraint {\n  attribute = \"${device.model}\"\n  value = %q\n}\n", modelSlow)},
	} {
		j := asks(name, 2, 1, device[0], device[1])
		j.meta = speeds(1, 0.1)
		b.run(j.hcl())
		b.onModel(name, "s", 2)
	}
	b.purge("named", "constrained")
}

// Three members would fit on the two free fast GPUs and a slow one, but the gang runs on three slow
// ones.
func testGangOnOneModel(t *testing.T, b *bed) {
	b.run(asks("holder", 2, 1, "nvidia/gpu/"+modelFast, "").hcl())
	b.onModel("holder", "f", 2)
	j := gang("three", 3, 1)
	j.meta = speeds(1, 0.95)
	b.run(j.hcl())
	b.onModel(j.id, "s", 3)
	b.purge("holder", "three")
}

// All fast GPUs are in use. A job that is ten times as fast there waits for them, and explain says
// so. It gets the fast ones when they become free.
func testWaitForModel(t *testing.T, b *bed) {
	holder := asks("holder", 4, 1, "nvidia/gpu/"+modelFast, "")
	holder.meta = `pal_duration = "2h"`
	end := filepath.Join(t.TempDir(), "end")
	holder.script = "until [ -e " + end + " ]; do sleep 0.2; done"
	b.run(holder.hcl())
	b.onModel("holder", "f", 4)
	patient := gang("patient", 2, 1)
	patient.meta = speeds(1, 0.1)
	b.run(patient.hcl())
	b.untilWaits("patient", "faster")
	if err := os.WriteFile(end, nil, 0o600); err != nil { // it ends by itself: after a purge, the placer would not know when its GPUs are free
		t.Fatal(err)
	}
	b.onModel("patient", "f", 2)
	b.purge("holder", "patient")
}
