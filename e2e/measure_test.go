// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// measuringBox is a client with n GPUs that drivers of our own play, the NVML
// and the CUDA part of them.
type measuringBox struct {
	*gpuBox
	settings, stateDir string
}

func newMeasuringBox(t *testing.T, n int, settings ...string) *measuringBox {
	t.Helper()
	lib, err := fakecuda.Build(t.TempDir())
	if errors.Is(err, fakecuda.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &measuringBox{settings: lib + ".settings", stateDir: t.TempDir()}
	state := nvmltest.H200(n)
	for i := range n {
		state.Set(fmt.Sprintf("gpu%d", i), "sm_mhz", "1900") // not idle's: a rate is judged by it
	}
	b.gpuBox = newGPUBox(t, state, fmt.Sprintf("state_dir = %q\nmeasure {\n  jitter = \"0s\"\n  cuda_library = %q\n  idle_for = \"2s\"\n}\n", b.stateDir, lib))
	for i := range n {
		settings = append(settings, fmt.Sprintf("uuid.%d=%s", i, b.uuid(i)))
	}
	b.tell(t, append(settings, fmt.Sprintf("gpus=%d", n))...)
	return b
}

// tell changes what the CUDA driver does.
func (b *measuringBox) tell(t *testing.T, settings ...string) {
	t.Helper()
	if err := os.WriteFile(b.settings, []byte(strings.Join(settings, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// measuring lists the GPUs that a measuring process of this machine has.
func measuring(t *testing.T, gpus []string) map[string]bool {
	t.Helper()
	matches, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, path := range matches {
		data, _ := os.ReadFile(path) // gone
		args := strings.Split(string(data), "\x00")
		for _, id := range gpus {
			if len(args) > 1 && args[1] == "measure-child" && strings.Contains(string(data), "\x00"+id+"\x00") {
				out[id] = true
			}
		}
	}
	return out
}

// h200 is an attribute of the group of H200s, "" for none.
func h200(attributes map[string]*api.Attribute, name string) string {
	if a := attributes["NVIDIA H200 "+name]; a != nil {
		return a.String()
	}
	return ""
}

// A real client's plugin measures its idle GPUs by itself, publishes what it
// found, flags the bad one, and lets go of all of them when a job comes.
func TestPluginMeasuresIdleGPUs(t *testing.T) {
	t.Parallel()
	box := newMeasuringBox(t, 3, "slow.2=2.5")
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{box.Client}})
	node := c.Clients()[0].Name
	untilGPUs(t, c, node, "three GPUs", count(3))
	ids := []string{box.uuid(0), box.uuid(1), box.uuid(2)}

	clustertest.Until(t, c, "the measurements reach the server", func(ctx context.Context) (string, error) {
		_, attributes, err := gpusOf(ctx, c, node)
		if err != nil {
			return "", err
		}
		raw := h200(attributes, "unique.variability_raw")
		if got := strings.Count(raw, "key=wgmma1/700W/ecc/r580/"); got != 3 {
			return fmt.Sprintf("%d of 3 GPUs measured: %s", got, raw), nil
		}
		return "", nil
	})
	_, attributes, err := gpusOf(t.Context(), c, node)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"unique.degraded": ids[2], "degraded_count": "1", "variability_a_le_4_count": "2", "variability_a_le_5_count": "3"} {
		if got := h200(attributes, name); got != want {
			t.Errorf("attribute %s is %q, want %q", name, got, want)
		}
	}

	// Sessions now take their real time, so that a job finds them under way.
	box.tell(t, "gpus=3", "scale=1", "uuid.0="+ids[0], "uuid.1="+ids[1], "uuid.2="+ids[2])
	for _, id := range ids {
		if out, err := exec.Command(devicePlugin(t), "remeasure", "-state-dir="+box.stateDir, id).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	clustertest.Until(t, c, "all are measured again", func(context.Context) (string, error) {
		if got := measuring(t, ids); len(got) < 3 {
			return fmt.Sprint(got), nil
		}
		return "", nil
	})
	begin := time.Now()
	register(t, c, gpuJob("train", 2))
	mine := deviceIDs(running(t, c, "train"))
	t.Logf("from registration to a running task on two GPUs that were being measured: %s", time.Since(begin).Round(10*time.Millisecond))
	if got := measuring(t, mine); len(mine) != 2 || len(got) > 0 {
		t.Errorf("the task has %v; still being measured: %v", mine, got)
	}
	if got := measuring(t, ids); len(got) != 1 {
		t.Errorf("being measured: %v, want the GPU that the task has not", got)
	}
	stop(t, c, "train")
}
