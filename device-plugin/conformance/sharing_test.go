// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/mps/mpstest"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

// inFour shares the second of two GPUs in four parts.
const inFour = "sharing {\n  replicas = 4\n  gpus = [1]\n}\n"

func part(gpu, n int) string { return fmt.Sprint(nvmltest.UUID(gpu), "::", n) }

// all returns a condition: the four parts of GPU 1 exist, and is holds for each.
func all(is func(*device.Device) bool) func([]*device.DeviceGroup) bool {
	return func(gs []*device.DeviceGroup) bool {
		for n := range 4 {
			if d := instance(gs, part(1, n)); d == nil || !is(d) {
				return false
			}
		}
		return true
	}
}

// Shared instances follow the contract: listing, Reserve, health and statistics.
func TestSharedInstances(t *testing.T) {
	ours(t)
	w := start(t, nvmltest.H200(2), fast+"\n"+inFour)
	s := w.fingerprint()
	groups := s.until("a GPU and four parts", listed(5))
	if got, want := describe(groups[1:]), "NVIDIA H200-SHARED"; !strings.Contains(got, want) || groups[1].Type != "gpu.shared" || len(groups[1].Devices) != 4 {
		t.Errorf("groups %s, want four parts in %s", describe(groups), want)
	}
	for name, want := range map[string]string{"memory": "int 35942 MiB", "memory_total": "int 143771 MiB", "replicas": "int 4 ", "sharing": "string time-slicing"} {
		if got := attribute(groups[1], name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	res, err := w.Device.Reserve([]string{part(1, 3), part(1, 0)})
	if err != nil || res.Envs["NVIDIA_VISIBLE_DEVICES"] != nvmltest.UUID(1) {
		t.Errorf("two parts: %+v, %v; want the GPU once", res, err)
	}
	if _, err := w.Device.Reserve([]string{nvmltest.UUID(1)}); err == nil || !strings.Contains(err.Error(), "unknown device IDs") {
		t.Errorf("the whole GPU can be reserved: %v", err)
	}
	full := 0
	stats := w.statistics(func(all map[string]*device.DeviceStats) bool { return len(all) == 5 })
	for id, in := range stats {
		if strings.HasPrefix(id, nvmltest.UUID(1)) && in.Stats.Attributes["Power usage"] != nil {
			full++
		}
	}
	if full != 1 {
		t.Errorf("%d of four parts have the GPU's power, want one", full)
	}
	w.set("gpu1", "lost", "1")
	s.until("four unhealthy parts", all(func(d *device.Device) bool { return !d.Healthy && d.HealthDesc == "gpu-lost" }))
	if d := instance(s.last, nvmltest.UUID(0)); d == nil || !d.Healthy {
		t.Error("the other GPU is not healthy")
	}
	w.set("gpu1", "lost", "")
	s.until("four healthy parts", all(func(d *device.Device) bool { return d.Healthy }))
}

// An MPS control daemon outlives a killed plugin if a task may use it, and the next plugin
// adopts it. A plugin without a GPU to share ends the daemon.
func TestMPSDaemonOverPlugins(t *testing.T) {
	ours(t)
	control, err := mpstest.Install(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	config := func(sharing string) string { return fmt.Sprintf("%s\nstate_dir = %q\n%s", fast, state, sharing) }
	byMPS := fmt.Sprintf("sharing {\n  mode = \"mps\"\n  replicas = 4\n  gpus = [1]\n  control = %q\n  directory = %q\n}\n", control, dir)
	pipe := filepath.Join(dir, nvmltest.UUID(1), "pipe")
	daemon := func() (pid int) {
		text, _ := os.ReadFile(filepath.Join(pipe, "nvidia-cuda-mps-control.pid"))
		_, _ = fmt.Sscan(string(text), &pid)
		return pid
	}
	t.Cleanup(func() {
		if pid := daemon(); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	isHealthy := all(func(d *device.Device) bool { return d.Healthy })

	w := start(t, nvmltest.H200(2), config(byMPS))
	s := w.fingerprint()
	s.until("four healthy parts", isHealthy)
	res, err := w.Device.Reserve([]string{part(1, 0)})
	if err != nil || res.Envs["CUDA_MPS_PIPE_DIRECTORY"] != pipe || res.Envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] != "25" ||
		len(res.Mounts) != 1 || res.Mounts[0].HostPath != pipe {
		t.Fatalf("reservation %+v, %v", res, err)
	}
	if err := os.WriteFile(filepath.Join(pipe, "servers"), []byte("17 FAULT 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.until("a server in a fault", all(func(d *device.Device) bool { return !d.Healthy && d.HealthDesc == "mps-server" }))
	if err := os.WriteFile(filepath.Join(pipe, "servers"), []byte("17 ACTIVE 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.until("its end", isHealthy)
	pid := daemon()
	if err := syscall.Kill(w.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again := *w
	again.launch()
	if err := again.Configure(config(byMPS)); err != nil {
		t.Fatal(err)
	}
	again.fingerprint().until("four healthy parts", isHealthy)
	if got := daemon(); got != pid || pid == 0 {
		t.Errorf("daemon %d, then %d: it was not adopted", pid, got)
	}
	again.Stop()
	if daemon() != pid {
		t.Error("the daemon that a task may use ended with the plugin")
	}
	last := *w
	last.launch()
	if err := last.Configure(config("")); err != nil {
		t.Fatal(err)
	}
	s = last.fingerprint()
	s.until("parts that wait", all(func(d *device.Device) bool { return d.HealthDesc == "sharing-change" }))
	if err := statedir.Clear.Give(statedir.Dir(state), nvmltest.UUID(1)); err != nil {
		t.Fatal(err)
	}
	s.until("two GPUs", func(gs []*device.DeviceGroup) bool { return listed(2)(gs) && healthy(nvmltest.UUID(1))(gs) })
	eventually(t, "the end of the daemon", func() bool { return daemon() == 0 })
	if !slices.ContainsFunc(strings.Split(w.log.String(), "\n"), func(line string) bool {
		return strings.Contains(line, "is now published as the sharing configuration says")
	}) {
		t.Error("the log does not mention the new form")
	}
}
