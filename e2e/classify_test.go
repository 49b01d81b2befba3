// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// The application class of a job follows from the load on its GPUs: first for a job that draws
// full power, then for one that streams memory. classify prints the line to write.
func TestClassify(t *testing.T) {
	t.Parallel()
	box := newGPUBox(t, nvmltest.H200(2), "")
	box.Client.HCL = `telemetry { collection_interval = "500ms" }`
	c := clustertest.Start(t, cluster.Options{Bin: binaries(t), Clients: []cluster.Client{box.Client}})
	untilGPUs(t, c, c.Clients()[0].Name, "two GPUs", count(2))
	b := &bed{Cluster: c, t: t}
	if out, code := b.pal("classify", "-for=1s", "train"); code != 1 || !strings.Contains(out, `job "train" in namespace "default" has no running allocation with GPUs`) {
		t.Errorf("a job that does not exist: exit code %d\n%s", code, out)
	}
	register(t, c, gpuJob("train", 2))
	running(t, c, "train")
	if out, code := b.pal("classify", "-for=3s", "train"); code != 1 || !strings.Contains(out, "only 0 readings of working GPUs, but at least 10 are needed") {
		t.Errorf("a job that does nothing: exit code %d\n%s", code, out)
	}
	for _, step := range []struct {
		values map[string]string
		want   string
	}{
		{map[string]string{"utilization": "99", "power_mw": "680000", "gpm.5": "75", "gpm.10": "20"}, "Application class = A"},
		{map[string]string{"utilization": "99", "power_mw": "400000", "gpm.5": "3", "gpm.10": "88"}, "Application class = C"},
	} {
		for i := range 2 {
			for k, v := range step.values {
				box.set(fmt.Sprintf("gpu%d", i), k, v)
			}
		}
		var out string
		var code int
		for patience := 12 * time.Second; patience <= 2*time.Minute; patience *= 2 {
			out, code = b.pal("classify", "-for="+patience.String(), "train")
			if !strings.Contains(out, "readings of working GPUs, but at least 10 are needed") { // a busy machine reads less often
				break
			}
		}
		if code != 0 || !strings.Contains(out, step.want) || !strings.Contains(out, "To use this class: meta { pal_class = ") {
			t.Errorf("%v: exit code %d\n%s", step.values, code, out)
		}
	}
	stop(t, c, "train")
}
