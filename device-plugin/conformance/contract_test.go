// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// fast makes changes visible quickly.
const fast = `fingerprint_period = "200ms"`

func TestPluginInfo(t *testing.T) {
	w := start(t, nvmltest.H200(1), "")
	got, err := w.Base.PluginInfo()
	if err != nil {
		t.Fatal(err)
	}
	if got.Type != base.PluginTypeDevice {
		t.Errorf("type %q, want %q", got.Type, base.PluginTypeDevice)
	}
	if !slices.Contains(got.PluginApiVersions, device.ApiVersion010) {
		t.Errorf("API versions %v lack %s", got.PluginApiVersions, device.ApiVersion010)
	}
	if got.Name == "" || got.PluginVersion == "" {
		t.Errorf("name %q and version %q must not be empty", got.Name, got.PluginVersion)
	}
}

// Nomad's loader keeps only the higher version of a name, so the two plugins never run side
// by side on the same GPUs.
func TestNameOfTheIncumbentWithAHigherVersion(t *testing.T) {
	ours(t)
	w := start(t, nvmltest.H200(1), "")
	got, err := w.Base.PluginInfo()
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "nvidia-gpu" || !strings.HasPrefix(got.PluginVersion, "2.") {
		t.Errorf("got %s %s, want nvidia-gpu 2.x", got.Name, got.PluginVersion)
	}
}

// The attributes of an H200, one by one, match the documented contract of nomad-device-nvidia.
func TestAttributesOfTheIncumbent(t *testing.T) {
	w := start(t, nvmltest.H200(2), fast)
	g := w.fingerprint().until("two GPUs", listed(2))[0]
	if got, want := g.Vendor+"/"+g.Type+"/"+g.Name, "nvidia/gpu/NVIDIA H200"; got != want {
		t.Errorf("group %q, want %q", got, want)
	}
	for name, want := range map[string]string{
		"memory":           "int 143771 MiB",
		"power":            "int 700 W",
		"bar1":             "int 262144 MiB",
		"driver_version":   "string 580.159.04",
		"cores_clock":      "int 1980 MHz",
		"memory_clock":     "int 3201 MHz",
		"pci_bandwidth":    "int 63008 MB/s",
		"display_state":    "string Disabled",
		"persistence_mode": "string Enabled",
	} {
		if got := attribute(g, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got, want := g.Devices[0].ID, nvmltest.UUID(0); got != want || !g.Devices[0].Healthy {
		t.Errorf("first instance %q healthy %v, want %q true", got, g.Devices[0].Healthy, want)
	}
}

// The statistics of an H200 match in name, unit and shape.
func TestStatisticsOfTheIncumbent(t *testing.T) {
	state := nvmltest.H200(1)
	for k, v := range map[string]string{"utilization": "80", "encoder": "3", "decoder": "4", "used_mib": "1000", "ecc_l1": "5", "ecc_l2": "6", "ecc_memory": "7"} {
		state.Set("gpu0", k, v)
	}
	w := start(t, state, fast)
	w.fingerprint().until("a GPU", listed(1))
	got := w.statistics(func(all map[string]*device.DeviceStats) bool { return len(all) == 1 })[nvmltest.UUID(0)]
	for name, want := range map[string]string{
		"Power usage":         "int 75/700 W",
		"GPU utilization":     "int 80 %",
		"Memory utilization":  "int 40 %",
		"Encoder utilization": "int 3 %",
		"Decoder utilization": "int 4 %",
		"Temperature":         "int 31 C",
		"Memory state":        "int 1000/143771 MiB",
		"BAR1 buffer state":   "int 1/262144 MiB",
		"ECC L1 errors":       "int 5 #",
		"ECC L2 errors":       "int 6 #",
		"ECC memory errors":   "int 7 #",
	} {
		if got := statValue(got.Stats.Attributes[name]); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got, want := statValue(got.Summary), "int 1000/143771 MiB"; got != want {
		t.Errorf("summary: got %q, want %q", got, want)
	}
}

func TestReserve(t *testing.T) {
	w, _ := follow(t, 3, fast)
	a, b := nvmltest.UUID(2), nvmltest.UUID(0)
	res, err := w.Device.Reserve([]string{a, b})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := res.Envs["NVIDIA_VISIBLE_DEVICES"], a+","+b; got != want {
		t.Errorf("NVIDIA_VISIBLE_DEVICES=%q, want %q", got, want)
	}
	if len(res.Mounts) != 0 {
		t.Errorf("mounts %v, want none", res.Mounts)
	}
	empty, err := w.Device.Reserve(nil)
	if err != nil || len(empty.Envs) != 0 {
		t.Errorf("reserving nothing: %+v, %v; want an empty reservation", empty, err)
	}
	_, err = w.Device.Reserve([]string{a, "GPU-x", "GPU-y"})
	if err == nil || !strings.Contains(err.Error(), "unknown device IDs: GPU-x,GPU-y") {
		t.Errorf("reserving unknown devices: error %v, want one that names GPU-x,GPU-y", err)
	}
}

func TestDisabled(t *testing.T) {
	w := start(t, nvmltest.H200(1), `enabled = false`)
	c, err := w.Device.Fingerprint(t.Context())
	if err == nil {
		m := <-c
		if m == nil || m.Error == nil {
			t.Fatal("a disabled plugin fingerprints")
		}
		err = m.Error
	}
	if !strings.Contains(err.Error(), device.ErrPluginDisabled.Error()) {
		t.Errorf("error %v, want %v", err, device.ErrPluginDisabled)
	}
}

// Nomad's client waits for the first message when it starts.
func TestFirstFingerprintWithinASecond(t *testing.T) {
	w := start(t, nvmltest.H200(8), "")
	took := patience.Stopwatch()
	s := w.fingerprint()
	s.next()
	if took := took(); took > time.Second {
		t.Errorf("the first fingerprint took %s", took)
	}
}

func TestCancelledStreamsEndAndOthersGoOn(t *testing.T) {
	w := start(t, nvmltest.H200(1), fast)
	first, second := w.fingerprint(), w.fingerprint()
	first.until("a GPU", listed(1))
	second.until("a GPU", listed(1))
	first.cancel()
	w.set("gpu0", "lost", "1")
	second.until("a lost GPU", unhealthy(nvmltest.UUID(0)))
}

func TestUnchangedIsNotSentAgain(t *testing.T) {
	_, s := follow(t, 2, fast)
	s.quiet(1500 * time.Millisecond)
}

func TestStatsIntervalAndCancel(t *testing.T) {
	w, _ := follow(t, 1, fast)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := w.Device.Stats(ctx, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if m := <-c; m == nil || m.Error != nil {
			t.Fatalf("message %+v", m)
		}
	}
	cancel()
	deadline := patience.Over(t)
	for {
		select {
		case _, open := <-c:
			if !open {
				return
			}
		case <-deadline:
			t.Fatal("a cancelled stats stream does not end")
		}
	}
}

// The same state gives the same message, whatever the order of maps.
func TestMessagesAreDeterministic(t *testing.T) {
	state := nvmltest.H200(8)
	state.Split(1, 7)
	state.Set("gpu5", "name", "NVIDIA A100-SXM4-80GB")
	w := start(t, state, fast)
	want := describe(w.fingerprint().until("14 devices", listed(14)))
	for range 5 {
		if got := describe(w.fingerprint().until("14 devices", listed(14))); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

func TestBadConfigNamesTheKeyAndThePreviousStays(t *testing.T) {
	ours(t)
	w := start(t, nvmltest.H200(2), `ignored_gpu_ids = ["`+nvmltest.UUID(1)+`"]`)
	for name, tc := range map[string]struct{ config, want string }{
		"unknown key":        {`fingerprint_perod = "1m"`, "fingerprint_perod"},
		"wrong type":         {`ignored_gpu_ids = 3`, "ignored_gpu_ids"},
		"malformed duration": {`fingerprint_period = "fast"`, `config key "fingerprint_period": "fast" is not a duration`},
		"zero duration":      {`fingerprint_period = "0s"`, `config key "fingerprint_period": 0s is below`},
		"negative duration":  {`fingerprint_period = "-1m"`, `config key "fingerprint_period": -1m0s is below`},
		"unknown backend":    {`backend = "amd"`, `config key "backend": "amd" is not one of`},
		"no inventory":       {`backend = "emulated"`, `config key "inventory"`},
		"nested key":         {"measure {\n mode = \"maybe\"\n}", `config key "measure.mode": "maybe"`},
		"reason":             {"health {\n ignore = [\"bad-mood\"]\n}", `config key "health.ignore": "bad-mood"`},
		"an Xid":             {"health {\n ignore = [\"xid:x\"]\n}", `config key "health.ignore": "xid:x"`},
		"no degradation":     {"health {\n unhealthy = [\"gpu-lost\"]\n}", `config key "health.unhealthy": "gpu-lost"`},
	} {
		err := w.Configure(tc.config)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
	got := w.fingerprint().until("one GPU", listed(1))
	if diff := cmp.Diff(nvmltest.UUID(0), got[0].Devices[0].ID); diff != "" {
		t.Error(diff)
	}
}

// A plugin does not outlive the agent that started it: agents that do not start, again
// and again, would fill the machine with plugins.
func TestPluginEndsWithItsParent(t *testing.T) {
	ours(t)
	t.Parallel()
	said := filepath.Join(t.TempDir(), "handshake")
	if err := syscall.Mkfifo(said, 0o600); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command("sh", "-c", `"$0" > "$1" 2>/dev/null & read line < "$1"; echo $!`, binary, said)
	agent.Env = append(os.Environ(), base.Handshake.MagicCookieKey+"="+base.Handshake.MagicCookieValue)
	out, err := agent.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(out))
	eventually(t, "the end of plugin "+pid, func() bool {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ") // nobody may have waited for it
	})
}
