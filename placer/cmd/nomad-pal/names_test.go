// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// Commands suggested by run name the namespace. If a job is in another namespace, the error names
// that namespace.
func TestNamesNamespace(t *testing.T) {
	c := newCluster(t)
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", atAnyPort))
	const explain = "nomad-pal explain -namespace research train"
	c.says(0, explain, "run", "-detach", "-namespace", "research", c.job("research", "train", 1))
	c.until("the agent has the job", func() bool { _, out, _ := c.does("status"); return strings.Contains(out, "train") })
	c.says(1, "namespace research has a job with this name: "+explain, "explain", "train")
}

// Each GPU counts once, whatever holds it and whatever its problems are.
func TestCountsAddUp(t *testing.T) {
	var gpus []palapi.GPU
	for _, s := range []palapi.GPUState{palapi.GPUFree, palapi.GPUAllocated, palapi.GPUUnhealthy, palapi.GPUQuarantined, palapi.GPUUnavailable} {
		gpus = append(gpus, palapi.GPU{State: s}, palapi.GPU{State: s, Job: "default/train"})
	}
	if n := countGPUs(gpus); n.Allocated+n.Free+n.Unhealthy+n.Quarantined+n.Unavailable != n.GPUs || n.GPUs != len(gpus) {
		t.Errorf("of %d GPUs: %+v", len(gpus), n)
	}
}

// A job's name may begin with a dash. Suggested commands then work as printed, and "--" ends the
// options of every command.
func TestNamesWithDash(t *testing.T) {
	c := newCluster(t)
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", atAnyPort))
	const explain = "nomad-pal explain -- -dash"
	for _, name := range []string{"train", "-dash"} {
		if code, out, said := c.does("run", "-detach", c.job("default", name, 1)); code != 0 || name == "-dash" && !strings.Contains(out, explain) {
			t.Fatalf("%d %s%s", code, out, said)
		}
	}
	c.until("the agent has the job", func() bool { code, _, _ := c.does(strings.Fields(explain)[1:]...); return code == 0 })
	if code, out, said := c.does("cancel", "--", "train", "-dash"); code != 0 || out != "Stopped default/train\nStopped default/-dash\n" {
		t.Errorf("%d %s%s", code, out, said)
	}
	c.says(1, "options go before arguments: nomad-pal cancel -mine train", "cancel", "train", "-mine")
}
