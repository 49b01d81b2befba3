// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// The defects of nomad-device-nvidia, by number. Each test fails if the plugin has the
// defect. U16 (a goroutine leak) is tested inside the plugin's package.

func TestU01PowerIsTheEnforcedLimit(t *testing.T) {
	w := start(t, nvmltest.H200(1), fast)
	g := w.fingerprint().until("a GPU", listed(1))[0]
	if got, want := attribute(g, "power"), "int 700 W"; got != want {
		t.Errorf("power: got %q, want %q (it draws 75 W)", got, want)
	}
}

func TestU02PowerUsageIsInWatts(t *testing.T) {
	w, _ := follow(t, 1, fast)
	got := w.statistics(func(all map[string]*device.DeviceStats) bool { return len(all) == 1 })[nvmltest.UUID(0)]
	if got, want := statValue(got.Stats.Attributes["Power usage"]), "int 75/700 W"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestU03ClocksAreTheMaximum(t *testing.T) {
	w := start(t, nvmltest.H200(1), fast)
	g := w.fingerprint().until("a GPU", listed(1))[0]
	if got := attribute(g, "cores_clock"); got != "int 1980 MHz" {
		t.Errorf("cores_clock %q of an idle GPU, want its maximum", got)
	}
}

// For generations 3 and 4 the plugin publishes nomad-device-nvidia's rounded rates, because
// jobs may require them.
func TestU04PCIeBandwidthOfEveryGeneration(t *testing.T) {
	state := nvmltest.H200(7)
	for i := range 7 {
		state.Set(fmt.Sprintf("gpu%d", i), "name", fmt.Sprintf("gen%d", i+1))
		state.Set(fmt.Sprintf("gpu%d", i), "pcie_gen", fmt.Sprint(i+1))
	}
	w := start(t, state, fast)
	want := []string{"int 4000 MB/s", "int 8000 MB/s", "int 16384 MB/s", "int 32768 MB/s", "int 63008 MB/s", "int 121008 MB/s", "absent"}
	for i, g := range w.fingerprint().until("seven models", listed(7)) {
		if got := attribute(g, "pci_bandwidth"); got != want[i] {
			t.Errorf("%s: got %q, want %q", g.Name, got, want[i])
		}
	}
}

func TestU05BusIDAsSysfsSpellsIt(t *testing.T) {
	w := start(t, nvmltest.H200(1), fast)
	g := w.fingerprint().until("a GPU", listed(1))[0]
	if got, want := g.Devices[0].HwLocality.PciBusID, "0000:1a:00.0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The numbers of GPUs are nvidia-smi's, whatever the order of UUIDs. A GPU that the driver no longer
// lists has no number, because the driver may give its number to another GPU.
func TestIndexesAreTheDrivers(t *testing.T) {
	ours(t)
	state := nvmltest.H200(3)
	for i := range 3 {
		state.Set(fmt.Sprintf("gpu%d", i), "uuid", nvmltest.UUID(9-i))
	}
	w := start(t, state, fast)
	s := w.fingerprint()
	want := fmt.Sprintf("string %s=2,%s=1,%s=0", nvmltest.UUID(7), nvmltest.UUID(8), nvmltest.UUID(9))
	if got := attribute(s.until("three GPUs", listed(3))[0], "unique.gpu_indexes"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	delete(w.state, "gpu2")
	w.write()
	want = fmt.Sprintf("string %s=1,%s=0", nvmltest.UUID(8), nvmltest.UUID(9))
	s.until("no number of the lost GPU", func(groups []*device.DeviceGroup) bool {
		return len(groups) == 1 && attribute(groups[0], "unique.gpu_indexes") == want
	})
}

func TestU06StatesAreWords(t *testing.T) {
	w := start(t, nvmltest.H200(1), fast)
	g := w.fingerprint().until("a GPU", listed(1))[0]
	for name, want := range map[string]string{"display_state": "string Disabled", "persistence_mode": "string Enabled"} {
		if got := attribute(g, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestU07DriverThatComesLater(t *testing.T) {
	state := nvmltest.H200(2)
	state.Set("sys", "init", "9")
	w := start(t, state, fast)
	s := w.fingerprint()
	if got := s.next(); devices(got) != 0 {
		t.Fatalf("devices without a driver: %s", describe(got))
	}
	w.set("sys", "init", "")
	s.until("the GPUs of the driver that came", listed(2))
}

func TestU07LibraryThatComesLater(t *testing.T) {
	w := driverless(t, nvmltest.H200(2))
	dir := t.TempDir()
	w.env[1] = "LD_LIBRARY_PATH=" + dir
	w.launch()
	if err := w.Configure(fast); err != nil {
		t.Fatal(err)
	}
	s := w.fingerprint()
	if got := s.next(); devices(got) != 0 {
		t.Fatalf("devices without a library: %s", describe(got))
	}
	if err := os.Symlink(filepath.Join(library, "libnvidia-ml.so.1"), filepath.Join(dir, "libnvidia-ml.so.1")); err != nil {
		t.Fatal(err)
	}
	s.until("the GPUs", listed(2))
}

func TestU08OneLostGPUTakesNoOtherWithIt(t *testing.T) {
	w, s := follow(t, 8, fast)
	w.set("gpu3", "lost", "1")
	got := s.until("a lost GPU", unhealthy(nvmltest.UUID(3)))
	if devices(got) != 8 {
		t.Fatalf("got %s, want all eight listed", describe(got))
	}
	for i := range 8 {
		if d := instance(got, nvmltest.UUID(i)); i != 3 && !d.Healthy {
			t.Errorf("GPU %d is unhealthy: %s", i, d.HealthDesc)
		}
	}
	w.set("gpu3", "lost", "")
	s.until("the GPU back", healthy(nvmltest.UUID(3)))
}

func TestU09StatisticsFieldByField(t *testing.T) {
	state := nvmltest.H200(3)
	for _, key := range []string{"utilization", "encoder", "decoder"} {
		state.Set("gpu1", key, "")
	}
	w := start(t, state, fast)
	w.fingerprint().until("three GPUs", listed(3))
	w.set("gpu2", "lost", "1")
	got := w.statistics(func(all map[string]*device.DeviceStats) bool { return all[nvmltest.UUID(1)] != nil })
	for name, want := range map[string]string{"Encoder utilization": "string N/A %", "GPU utilization": "string N/A %", "Temperature": "int 31 C"} {
		if got := statValue(got[nvmltest.UUID(1)].Stats.Attributes[name]); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got, want := statValue(got[nvmltest.UUID(0)].Stats.Attributes["Encoder utilization"]), "int 0 %"; got != want {
		t.Errorf("of the GPU that supports it: got %q, want %q", got, want)
	}
}

// If the driver answers NOT_SUPPORTED to the MIG questions, the GPU is not in MIG mode.
func TestU10GPUWithoutMIG(t *testing.T) {
	state := nvmltest.H200(1)
	state.Set("gpu0", "mig", "")
	state.Set("gpu0", "ret.nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "3")
	state.Set("gpu0", "ret.nvmlDeviceIsMigDeviceHandle", "3")
	w := start(t, state, fast)
	w.fingerprint().until("a GPU", healthy(nvmltest.UUID(0)))
}

func TestU11UnknownMIGModeKeepsWhatWasKnown(t *testing.T) {
	state := nvmltest.H200(1)
	state.Split(0, 3)
	w := start(t, state, fast)
	s := w.fingerprint()
	s.until("three MIG instances", listed(3))
	w.set("gpu0", "ret.nvmlDeviceGetMigMode", "999")
	got := s.until("the same instances, degraded", degraded(nvmltest.MIGUUID(0, 0), "nvml:nvmlDeviceGetMigMode=999 unknown error"))
	if devices(got) != 3 {
		t.Errorf("%d devices, want the three instances", devices(got))
	}
}

func TestU12UnhealthyIsSaid(t *testing.T) {
	w, s := follow(t, 2, fast)
	w.set("gpu1", "remap", "2")
	got := s.until("an unhealthy GPU", unhealthy(nvmltest.UUID(1)))
	if d := instance(got, nvmltest.UUID(1)); d.HealthDesc == "" {
		t.Error("no reason is given")
	}
}

func TestU13AttributesThatChangeArePublished(t *testing.T) {
	w, s := follow(t, 1, fast)
	w.set("gpu0", "limit_mw", "500000")
	s.until("the new power limit", func(gs []*device.DeviceGroup) bool { return attribute(gs[0], "power") == "int 500 W" })
	w.set("sys", "driver", "590.1.2")
	s.until("the new driver", func(gs []*device.DeviceGroup) bool { return attribute(gs[0], "driver_version") == "string 590.1.2" })
}

func TestU14NoGPUsIsAMessageToo(t *testing.T) {
	for name, tc := range map[string]struct {
		gpus   int
		config string
	}{
		"none":        {0, fast},
		"all ignored": {1, fast + "\nignored_gpu_ids = [\"" + nvmltest.UUID(0) + "\"]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, nvmltest.H200(tc.gpus), tc.config)
			if got := w.fingerprint().next(); devices(got) != 0 {
				t.Errorf("got %s, want none", describe(got))
			}
		})
	}
}

func TestU15SecondStreamOfOneProcess(t *testing.T) {
	w, first := follow(t, 2, fast)
	first.cancel()
	w.fingerprint().until("two GPUs", listed(2))
}

func TestU17ConfigReplacesConfig(t *testing.T) {
	w := start(t, nvmltest.H200(2), `ignored_gpu_ids = ["`+nvmltest.UUID(0)+`"]`)
	if err := w.Configure(fast + "\nignored_gpu_ids = [\"" + nvmltest.UUID(1) + `"]`); err != nil {
		t.Fatal(err)
	}
	got := w.fingerprint().until("one GPU", listed(1))
	if instance(got, nvmltest.UUID(0)) == nil {
		t.Errorf("got %s: the first config's ignored GPU is still ignored", describe(got))
	}
	if err := w.Configure(`fingerprint_period = "0s"`); err == nil {
		t.Error("a period of 0 is accepted: a busy loop")
	}
}

// The plugin does not use the driver before the handshake, and not until the first stream.
func TestU18HungDriverDoesNotHoldUpTheAgent(t *testing.T) {
	state := nvmltest.H200(1)
	state.Set("sys", "hang", "1")
	w := driverless(t, state)
	took := patience.Stopwatch()
	w.launch() // handshake, schema, config
	if err := w.Configure(fast); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Base.PluginInfo(); err != nil {
		t.Fatal(err)
	}
	if took := took(); took > 5*time.Second {
		t.Errorf("a plugin over a hung driver took %s to be configured", took)
	}
}

func TestU19OldDriverWithoutNewFunctions(t *testing.T) {
	w := driverless(t, nvmltest.H200(2))
	dir := t.TempDir()
	hide := []string{"nvmlDeviceGetFieldValues", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetRemappedRows",
		"nvmlDeviceGetMigMode", "nvmlDeviceGetNvLinkState", "nvmlGpm*", "nvmlEventSet*", "nvmlDeviceGetArchitecture",
		"nvmlDeviceGetNumGpuCores", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetEncoderUtilization"}
	if _, err := nvmltest.Build(dir, hide...); err != nil {
		t.Fatal(err)
	}
	w.env[1] = "LD_LIBRARY_PATH=" + dir
	w.launch()
	if err := w.Configure(fast); err != nil {
		t.Fatal(err)
	}
	s := w.fingerprint()
	s.until("two GPUs", listed(2))
	got := w.statistics(func(all map[string]*device.DeviceStats) bool { return len(all) == 2 })
	if got, want := statValue(got[nvmltest.UUID(0)].Stats.Attributes["Temperature"]), "int 31 C"; got != want {
		t.Errorf("temperature: got %q, want %q", got, want)
	}
	if w.Exited() {
		t.Error("the plugin died")
	}
}

func TestU20IgnoringAGPUIgnoresItsMIGInstances(t *testing.T) {
	state := nvmltest.H200(2)
	state.Split(0, 4)
	w := start(t, state, fast+"\nignored_gpu_ids = [\""+nvmltest.UUID(0)+"\"]")
	got := w.fingerprint().next()
	if devices(got) != 1 || instance(got, nvmltest.UUID(1)) == nil {
		t.Errorf("got %s, want only the other GPU", describe(got))
	}
}

func TestU21UnsupportedECCIsNotZero(t *testing.T) {
	state := nvmltest.H200(1)
	for _, key := range []string{"ecc", "ecc_l1", "ecc_l2", "ecc_memory"} {
		state.Set("gpu0", key, "")
	}
	w := start(t, state, fast)
	w.fingerprint().until("a GPU", listed(1))
	got := w.statistics(func(all map[string]*device.DeviceStats) bool { return len(all) == 1 })[nvmltest.UUID(0)].Stats.Attributes
	if got, want := statValue(got["ECC memory errors"]), "string N/A #"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestU22IsolationWithoutAContainer(t *testing.T) {
	config := fast
	if isOurs {
		config += "\nreserve {\n device_nodes = true\n cuda_visible_devices = true\n}"
	}
	w, _ := follow(t, 2, config)
	res, err := w.Device.Reserve([]string{nvmltest.UUID(1)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := res.Envs["CUDA_VISIBLE_DEVICES"], nvmltest.UUID(1); got != want {
		t.Errorf("CUDA_VISIBLE_DEVICES=%q, want %q", got, want)
	}
	var nodes []string
	for _, d := range res.Devices {
		nodes = append(nodes, d.HostPath)
	}
	want := "/dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools /dev/nvidia1"
	if got := strings.Join(nodes, " "); got != want {
		t.Errorf("device nodes %q, want %q", got, want)
	}
}

func TestU23StatisticsDoNotFingerprintAgain(t *testing.T) {
	w := driverless(t, nvmltest.H200(2))
	calls := filepath.Join(t.TempDir(), "calls")
	w.env = append(w.env, "FAKE_NVML_CALLS="+calls)
	w.launch()
	if err := w.Configure(`fingerprint_period = "1h"`); err != nil {
		t.Fatal(err)
	}
	w.fingerprint().until("two GPUs", listed(2))
	n := 0
	w.statistics(func(map[string]*device.DeviceStats) bool { n++; return n >= 10 })
	data, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(data), "nvmlDeviceGetName\n"); got != 2 {
		t.Errorf("the names of 2 GPUs were asked for %d times while 10 statistics were sent", got)
	}
	if !strings.Contains(string(data), "nvmlDeviceGetTemperature\n") {
		t.Error("the driver was never asked for the temperature: the statistics are invented")
	}
}

func TestU24UnifiedMemoryWithoutBAR1(t *testing.T) {
	state := nvmltest.H200(1)
	for _, key := range []string{"memory_mib", "bar1_mib", "max_mem_mhz"} {
		state.Set("gpu0", key, "")
	}
	w := start(t, state, fast)
	g := w.fingerprint().until("a GPU", healthy(nvmltest.UUID(0)))[0]
	if got := attribute(g, "bar1"); got != "absent" {
		t.Errorf("bar1: got %q, want none", got)
	}
	if got := attribute(g, "memory"); !strings.HasPrefix(got, "int ") || got == "int 0 MiB" {
		t.Errorf("memory: got %q, want the machine's", got)
	}
}

// doctor explains a machine without a driver.
func TestU25DoctorExplains(t *testing.T) {
	ours(t)
	t.Parallel()
	if library == "" {
		t.Skip("gcc is not installed")
	}
	cmd := exec.Command(binary, "doctor")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH=")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("doctor reports no problem on a machine without a driver:\n%s", out)
	}
	for _, want := range []string{"libnvidia-ml.so.1", "plugin_dir", "nomad-device-pal"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("doctor does not mention %s:\n%s", want, out)
		}
	}
}
