// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// machine returns a root with these files. Regular files in dev act as device files.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// minors is the driver's list of device files for the MIG instances of two GPUs.
const minors = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi11/access 66\n" +
	"gpu0/gi11/ci1/access 68\ngpu1/gi1/access 147\ngpu1/gi1/ci0/access 148\n"

func TestDeviceNodes(t *testing.T) {
	driver := map[string]string{"/dev/nvidiactl": "", "/proc/driver/nvidia/version": ""}
	tools := map[string]string{"/dev/nvidiactl": "", "/dev/nvidia-uvm-tools": ""}
	caps := map[string]string{"/dev/nvidiactl": "", migMinors: minors}
	wsl := map[string]string{"/dev/dxg": "", "/usr/lib/wsl/lib/libcuda.so.1": ""}
	whole := func(minor int) gpu.Device { return gpu.Device{Place: gpu.Place{Minor: minor}} }
	mig := func(minor, gi, ci int) gpu.Device {
		return gpu.Device{ID: "MIG-x", Parent: "GPU-x", Place: gpu.Place{Minor: minor}, MIG: gpu.MIG{GPUInstance: gi, ComputeInstance: ci}}
	}
	const common = "nvidiactl nvidia-uvm "
	for _, tc := range []struct {
		name  string
		files map[string]string
		gpus  []gpu.Device
		want  string
	}{
		{"two GPUs", driver, []gpu.Device{whole(3), whole(0)}, common + "nvidia3 nvidia0"},
		{"profilers", tools, []gpu.Device{whole(0)}, common + "nvidia-uvm-tools nvidia0"},
		{"no driver yet: Nomad says what is missing", nil, []gpu.Device{whole(0)}, common + "nvidia-uvm-tools nvidia0"},
		{"a MIG instance", caps, []gpu.Device{mig(0, 1, 0)}, common + "nvidia0 nvidia-caps/nvidia-cap12 nvidia-caps/nvidia-cap13"},
		{"two of one GPU instance", caps, []gpu.Device{mig(0, 11, 1), mig(0, 1, 0)},
			common + "nvidia0 nvidia-caps/nvidia-cap66 nvidia-caps/nvidia-cap68 nvidia-caps/nvidia-cap12 nvidia-caps/nvidia-cap13"},
		{"of another GPU", caps, []gpu.Device{mig(1, 1, 0)}, common + "nvidia1 nvidia-caps/nvidia-cap147 nvidia-caps/nvidia-cap148"},
		{"whole beside divided", caps, []gpu.Device{whole(1)}, common + "nvidia1"},
		{"MIG before R450", driver, []gpu.Device{mig(0, 1, 0)}, common + "nvidia0"},
		{"WSL2", wsl, []gpu.Device{whole(-1)}, "dxg"},
		{"WSL2, two GPUs", wsl, []gpu.Device{whole(-1), whole(-1)}, "dxg"},
	} {
		got, err := deviceNodes(machine(t, tc.files), tc.gpus)
		var paths []string
		for _, d := range got {
			if d.HostPath != d.TaskPath || d.CgroupPerms != "rw" {
				t.Errorf("%s: %+v", tc.name, d)
			}
			paths = append(paths, strings.TrimPrefix(d.HostPath, "/dev/"))
		}
		if text := strings.Join(paths, " "); err != nil || text != tc.want {
			t.Errorf("%s: %q, %v; want %q", tc.name, text, err, tc.want)
		}
	}
	if _, err := deviceNodes(machine(t, driver), []gpu.Device{{ID: "GPU-x", Place: gpu.Place{Minor: -1}}}); err == nil || !strings.Contains(err.Error(), `device file of GPU "GPU-x"`) {
		t.Errorf("a GPU without a number: %v, want an error, because the task would start without its GPU", err)
	}
	if _, err := deviceNodes(machine(t, caps), []gpu.Device{mig(0, 9, 0)}); err == nil || !strings.Contains(err.Error(), `MIG instance "MIG-x": /proc/driver/nvidia-caps/mig-minors has no line "gpu0/gi9/access"`) {
		t.Errorf("an instance without device files: %v", err)
	}
}

// A device that cannot be used is published as unhealthy and never reserved, whatever the
// operator ignores or allows.
func TestUnusableDevices(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Health.Ignore = []string{reasonLost, reasonNVML, reasonUnanswered}
	p, s, log, _ := onStage(2, cfg)
	s.inv.Devices[1].Unusable = gpu.MIGEmpty
	s.inv.Hidden = []gpu.Hidden{{Index: 2, Code: 999, Why: "nvmlDeviceGetHandleByIndex=999 unknown error"}}
	c, end := fingerprints(t, p)
	defer end()
	g := next(t, c)[0]
	if d := g.Devices[1]; d.Healthy || d.HealthDesc != gpu.MIGEmpty || !g.Devices[0].Healthy {
		t.Errorf("devices %+v %+v", g.Devices[0], d)
	}
	if got := *g.Attributes["unique.hidden"].String; got != "GPU 2: nvmlDeviceGetHandleByIndex=999 unknown error" {
		t.Errorf("hidden: %q", got)
	}
	if _, err := p.Reserve([]string{"GPU-1"}); err == nil || !strings.Contains(err.Error(), gpu.MIGEmpty) {
		t.Errorf("Reserve: %v", err)
	}
	if _, err := p.Reserve([]string{"GPU-0"}); err != nil {
		t.Errorf("Reserve of the other: %v", err)
	}
	if text := log.String(); !strings.Contains(text, "nvidia-smi mig -i GPU-1 -cgi PROFILE -C") || !strings.Contains(text, "nvidia-smi -i GPU-1 -mig 0") ||
		!strings.Contains(text, "GPU 2: nvmlDeviceGetHandleByIndex=999 unknown error: remedy=\"nvidia-smi -L shows") {
		t.Errorf("the log does not name the commands to type:\n%s", text)
	}
}
