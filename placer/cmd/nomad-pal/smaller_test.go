// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Job files can use NOMAD_VAR_*, as with nomad job run.
func TestJobVariables(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort)
	text := strings.Replace(jobText("default", "vars", 2), "count = 2", "count = var.gpus", 1)
	path := c.written("vars.hcl", "variable \"gpus\" {\n  type = number\n}\n"+text)
	t.Setenv("NOMAD_VAR_gpus", "3")
	if _, out, said := c.does("plan", "-verbose", path); !strings.Contains(out, "3 GPUs, application class") {
		t.Errorf("%s%s", out, said)
	}
}

// run -detach says whether the job starts, waits, or is placed by nobody.
func TestRunDetached(t *testing.T) {
	c := newCluster(t)
	if code, out, said := c.does("run", "-detach", c.job("default", "early", 1)); code != 0 || !strings.Contains(out, "waiting for nomad-pal") || !strings.Contains(said, "no agent answers") {
		t.Errorf("without a placer: %d\n%s%s", code, out, said)
	}
	text := jobText("default", "everywhere", 1)
	system := strings.Replace(text, `type      = "batch"`, "type = \"system\"\n  constraint {\n    attribute = \"${meta.pal_gate}\"\n    value     = \"open\"\n  }", 1)
	if code, out, said := c.reads(system, "run", "-detach", "-"); code != 2 || !strings.Contains(said, "a system job runs on every node") {
		t.Errorf("a system job: %d\n%s%s", code, out, said)
	}
	if _, _, err := c.client("").API().Jobs().Info("everywhere", nil); err == nil {
		t.Error("a job that no agent could serve was registered")
	}
	c.says(1, `no job "erly" with GPUs in namespace "default"`, "release", "erly")
}

// release -all applies to all namespaces unless one is given.
func TestReleaseAll(t *testing.T) {
	c := newCluster(t)
	for _, namespace := range []string{"default", "research", "product"} {
		c.must("run", "-detach", c.job(namespace, "of-"+namespace, 1))
	}
	released := func(want string, args ...string) {
		t.Helper()
		code, out, said := c.does(append([]string{"release", "-json", "-now", "-all"}, args...)...)
		if got := strings.Join(strings.Fields(out), ""); code != 0 || got != want {
			t.Errorf("%v: %d %s%s", args, code, got, said)
		}
	}
	released(`["research/of-research"]`, "-namespace=research")
	released(`["default/of-default","product/of-product"]`)
	released(`[]`, "-namespace=*")
}

// A job that waits to start again loses its pins to GPUs that it no longer has.
func TestReleaseOfALostJob(t *testing.T) {
	c := newCluster(t)
	c.must("run", "-detach", c.job("default", "lost", 1))
	k, client := cluster.JobKey{Namespace: "default", ID: "lost"}, c.client("")
	was := c.nomad.Job(k)
	group := rewrite.GroupPins{Group: *was.TaskGroups[0].Name, Nodes: []string{nomadtest.GPUNode(0, 4).ID}, GPUs: []string{"GPU-0-0"}}
	pinned, err := rewrite.Pin(was, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{group}}, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Register(t.Context(), rewrite.Gate(pinned), *was.JobModifyIndex); err != nil {
		t.Fatal(err)
	}
	c.must("release", "-now", "lost")
	if _, pinned := rewrite.Pinned(c.nomad.Job(k)); pinned || rewrite.Tied(c.nomad.Job(k)) || rewrite.Gated(c.nomad.Job(k)) {
		t.Error("the job still has its gate or pins")
	}
}
