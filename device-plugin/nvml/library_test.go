// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// library is an NVML without a driver. A process binds NVML's functions once and never
// unloads them, so all tests share one library, and run one after the other.
var (
	library   string
	delivered int // number of events delivered in this process
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "nvml")
	if err == nil {
		library, err = nvmltest.Build(dir)
	}
	if err != nil && !errors.Is(err, nvmltest.ErrNoCompiler) {
		fmt.Fprintln(os.Stderr, "nvml tests:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// node is a backend with the fake library, and the library's state.
type node struct {
	t     *testing.T
	state nvmltest.State
	*Backend
}

func open(t *testing.T, state nvmltest.State) *node {
	t.Helper()
	if library == "" {
		t.Skip("gcc is not installed: no library to play the driver")
	}
	n := &node{t: t, state: state, Backend: Open(Options{Library: library, Root: sysRoot(t)})}
	n.within, n.eventsEvery = time.Second, 10*time.Millisecond
	n.write()
	t.Cleanup(func() {
		n.state = nvmltest.State{} // end hung calls
		n.write()
		n.Close()
	})
	return n
}

func (n *node) write() {
	n.t.Helper()
	if err := n.state.Write(library + ".state"); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) set(scope, key, value string) {
	n.t.Helper()
	n.state.Set(scope, key, value)
	n.write()
}

// scan makes a scan, which must succeed.
func (n *node) scan() gpu.Inventory {
	n.t.Helper()
	inv, err := n.Scan()
	if err != nil {
		n.t.Fatal(err)
	}
	return inv
}

// of returns the device with an id.
func of(t *testing.T, inv gpu.Inventory, id string) gpu.Device {
	t.Helper()
	for _, d := range inv.Devices {
		if d.ID == id {
			return d
		}
	}
	t.Fatalf("no device %s in %+v", id, inv.Devices)
	return gpu.Device{}
}

func TestH200(t *testing.T) {
	state := nvmltest.H200(8)
	state.Set("gpu0", "bus", fmt.Sprint(0x07)) // on NUMA node 3
	state.Set("gpu0", "fabric_cluster", "9")
	inv := open(t, state).scan()
	want := gpu.Device{
		ID: nvmltest.UUID(0), Model: "NVIDIA H200",
		Chip: gpu.Chip{Architecture: "hopper", ComputeMajor: 9}, Place: gpu.Place{Minor: 0, BusID: "0000:07:00.0", NUMANode: 3},
		NVLink:    gpu.NVLink{Island: 0, Active: 18, Clique: "00000000-0000-0000-0000-000000000009.7"},
		MemoryMiB: new(int64(143771)), PowerLimitW: new(int64(700)), BAR1MiB: new(int64(262144)),
		CoresClockMHz: new(int64(1980)), MemoryClockMHz: new(int64(3201)),
		PCI:          gpu.PCI{BandwidthMBPerS: new(int64(63008)), Generation: 5, Width: 16},
		DisplayState: "Disabled", PersistenceMode: "Enabled", ECC: new(true), Signals: gpu.Signals{Recovery: new(0)},
	}
	if diff := cmp.Diff(want, inv.Devices[0]); diff != "" {
		t.Error(diff)
	}
	if len(inv.Devices) != 8 || inv.DriverVersion != "580.159.04" || inv.CUDAMajor != 13 || len(inv.Warnings) != 0 {
		t.Errorf("got %d GPUs, driver %s, CUDA %d, warnings %v", len(inv.Devices), inv.DriverVersion, inv.CUDAMajor, inv.Warnings)
	}
}

// A tray of GB300 NVL72 answers as nvidia-smi has shown: a PCI domain of its own for each GPU,
// memory that is a NUMA node, no display mode ("deprecated"), a clique of the rack.
func TestGB300(t *testing.T) {
	state := nvmltest.H200(4)
	for i := range 4 {
		scope := fmt.Sprintf("gpu%d", i)
		for kv := range strings.FieldsSeq(`bus=6 pcie_gen=6 memory_mib=284208 bar1_mib=524288 limit_mw=1400000 max_sm_mhz=2070
			max_mem_mhz=3996 architecture=10 capability=103 numa=2 ret.nvmlDeviceGetDisplayMode=26 fabric_cluster=1`) {
			k, v, _ := strings.Cut(kv, "=")
			state.Set(scope, k, v)
		}
		state.Set(scope, "name", "NVIDIA GB300")
		state.Set(scope, "domain", fmt.Sprint([]int{0x8, 0x9, 0x18, 0x19}[i]))
	}
	n := open(t, state)
	bus := filepath.Join(n.opts.Root, "sys/bus/pci/devices/0018:06:00.0")
	if err := os.MkdirAll(bus, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bus, "numa_node"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	inv := n.scan()
	want := gpu.Device{
		ID: nvmltest.UUID(2), Model: "NVIDIA GB300",
		Chip: gpu.Chip{Architecture: "blackwell", ComputeMajor: 10, ComputeMinor: 3}, Place: gpu.Place{Index: 2, Minor: 2, BusID: "0018:06:00.0", NUMANode: 1},
		NVLink:    gpu.NVLink{Island: 0, Active: 18, Clique: "00000000-0000-0000-0000-000000000001.7"},
		MemoryMiB: new(int64(284208)), SystemMemory: true, PowerLimitW: new(int64(1400)), BAR1MiB: new(int64(524288)),
		CoresClockMHz: new(int64(2070)), MemoryClockMHz: new(int64(3996)), PCI: gpu.PCI{BandwidthMBPerS: new(int64(121008)), Generation: 6, Width: 16},
		PersistenceMode: "Enabled", ECC: new(true), Signals: gpu.Signals{Recovery: new(0)},
	}
	if diff := cmp.Diff(want, of(t, inv, nvmltest.UUID(2))); diff != "" || len(inv.Warnings) > 0 {
		t.Error(diff, inv.Warnings)
	}
}

// A driver can know architectures that this plugin does not know. Then the name is left out.
func TestArchitectures(t *testing.T) {
	state := nvmltest.H200(3)
	state.Set("gpu1", "architecture", "13")
	state.Set("gpu2", "architecture", "4711")
	for i, d := range open(t, state).scan().Devices {
		if want := []string{"hopper", "rubin", ""}[i]; d.Chip.Architecture != want {
			t.Errorf("%s: architecture %q, want %q", d.ID, d.Chip.Architecture, want)
		}
	}
}

// A reason that the driver knows, but not this plugin, is a reason: nothing says that no limit
// holds the clocks down.
func TestReasonNames(t *testing.T) {
	for bits, want := range map[uint64]string{
		0: "none", 1: "idle", 0x84: "power-cap,power-brake", 0x200: gpu.ThrottleOther, 0x404: "power-cap," + gpu.ThrottleOther,
	} {
		if got := reasonNames(bits); got != want {
			t.Errorf("%#x: %s, want %s", bits, got, want)
		}
	}
}

// TestSignals: a GPU's answers about its condition, one reading after the other.
func TestSignals(t *testing.T) {
	well := func(change func(*gpu.Signals)) gpu.Signals {
		s := gpu.Signals{Recovery: new(0)}
		if change != nil {
			change(&s)
		}
		return s
	}
	limits := func(all ...string) gpu.Signals { return well(func(s *gpu.Signals) { s.FabricLimits = all }) }
	failed := func(fs ...gpu.Failure) gpu.Signals { return well(func(s *gpu.Signals) { s.Failed = fs }) }
	for _, tc := range []struct {
		values string
		want   gpu.Signals
	}{
		{"lost=1", gpu.Signals{Lost: true}},
		{"ret.nvmlDeviceGetMinorNumber=16", well(func(s *gpu.Signals) { s.ResetRequired = true })},
		{"field.230=2", well(func(s *gpu.Signals) { s.Recovery = new(2) })},
		{"remap=1", well(nil)}, // rows are remapped at the next reset
		{"remap=2", well(func(s *gpu.Signals) { s.RemapFailed = true })},
		{"remap= retirement=1", well(func(s *gpu.Signals) { s.RetirementPending = true })},
		{"reasons=64", well(func(s *gpu.Signals) { s.ThermalSlowdown = true })},
		{"reasons=8", well(func(s *gpu.Signals) { s.ThermalSlowdown = true })},
		{"reasons=136", well(func(s *gpu.Signals) { s.PowerBrake = true })},
		{"pcie_width_now=4", well(func(s *gpu.Signals) { s.PCIeDegraded = true })},
		{"pcie_width_now=2 pcie_gen=6", well(nil)}, // an idle Vera Rubin
		{"nvlinks=17", well(func(s *gpu.Signals) { s.NVLinkDown = true })},
		{"fabric_state=2", limits(gpu.FabricNotReady)},
		{"fabric_status=999", limits(gpu.FabricFailed)},
		{"fabric_health=0x200", limits("incorrect-sysguid")},
		{"fabric_health=0xf00", limits("config-15")},
		{"fabric_health=0x2100", limits("no-partition")},
		{"fabric_health=0x2101", limits("bandwidth", "no-partition")},
		{"fabric_health=0x11a6", limits("route-recovery")},
		{"fabric_health=0x1150", limits("access-timeout-recovery", "route-unhealthy")},
		{"fabric_health=0x500", limits("insufficient-nvlinks")},
		{"fabric_state=0 fabric_status=999", well(nil)},
		{"ret.nvmlDeviceGetTemperature=999", failed(gpu.Failure{Function: "nvmlDeviceGetTemperature", Code: 999})},
		{"ret.nvmlDeviceGetPowerUsage=10 ret.nvmlDeviceGetTemperature=1", failed(gpu.Failure{Function: "nvmlDeviceGetTemperature", Code: 1}, gpu.Failure{Function: "nvmlDeviceGetPowerUsage", Code: 10})},
		{"ret.nvmlDeviceGetClockInfo=3 ret.nvmlDeviceGetUtilizationRates=4 ret.nvmlDeviceGetDisplayMode=999", well(nil)},
		{"ret.nvmlDeviceGetMaxClockInfo=999", failed(gpu.Failure{Function: "nvmlDeviceGetMaxClockInfo", Code: 999})},
		{"ret.nvmlDeviceGetHandleByIndex_v2=999", gpu.Signals{Unanswered: true, Failed: []gpu.Failure{{Function: "nvmlDeviceGetHandleByIndex", Code: 999}}}},
		{"ret.nvmlDeviceGetHandleByIndex_v2=4", gpu.Signals{Unanswered: true, Failed: []gpu.Failure{{Function: "nvmlDeviceGetHandleByIndex", Code: 4}}}},
		{"ret.nvmlDeviceGetName=3", gpu.Signals{Unanswered: true, Failed: []gpu.Failure{{Function: "nvmlDeviceGetName", Code: 3}}}},
	} {
		t.Run(tc.values, func(t *testing.T) {
			state := nvmltest.H200(2)
			n := open(t, state)
			n.scan()
			for kv := range strings.FieldsSeq(tc.values) {
				k, v, _ := strings.Cut(kv, "=")
				n.set("gpu1", k, v)
			}
			inv := n.scan()
			if diff := cmp.Diff(tc.want, of(t, inv, nvmltest.UUID(1)).Signals); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(well(nil), of(t, inv, nvmltest.UUID(0)).Signals); diff != "" {
				t.Errorf("the other GPU is touched:\n%s", diff)
			}
		})
	}
}

// A hidden GPU is reported with the failed question and NVML's code.
func TestHiddenGPUs(t *testing.T) {
	for _, code := range []string{"2", "3", "4", "15", "17", "999"} {
		for _, call := range []string{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName"} {
			state := nvmltest.H200(3)
			state.Set("gpu1", "ret."+call, code)
			inv := open(t, state).scan()
			want := fmt.Sprintf("GPU 1: %s=%s ", gpu.BaseName(call), code)
			if len(inv.Devices) != 2 || len(inv.Hidden) != 1 || !strings.HasPrefix(inv.Hidden[0].String(), want) {
				t.Errorf("%s=%s: %d GPUs, hidden %v; want two, and %q", call, code, len(inv.Devices), inv.Hidden, want)
			}
			if lost := inv.Unidentified() == 0; lost != (code == "15") {
				t.Errorf("%s=%s: it counts as lost: %v", call, code, lost)
			}
			if len(inv.Warnings) != 0 {
				t.Errorf("%s=%s: warnings %v", call, code, inv.Warnings)
			}
		}
	}
}

// Two GPUs with one UUID cannot be distinguished. They form one instance, which no job can
// use. A GPU that is read twice because the indexes changed counts as one GPU.
func TestTwoGPUsWithOneUUID(t *testing.T) {
	state := nvmltest.H200(3)
	state.Set("gpu2", "uuid", nvmltest.UUID(0))
	n := open(t, state)
	inv := n.scan()
	want := "the GPUs at 0000:1a:00.0 and 0000:1c:00.0 both have the UUID " + nvmltest.UUID(0)
	if len(inv.Devices) != 2 || of(t, inv, nvmltest.UUID(0)).Unusable != gpu.SameUUID || of(t, inv, nvmltest.UUID(1)).Unusable != "" {
		t.Errorf("devices %+v", inv.Devices)
	}
	if !slices.ContainsFunc(inv.Warnings, func(w string) bool { return strings.HasPrefix(w, want) }) {
		t.Errorf("warnings %v, want %q", inv.Warnings, want)
	}
	n.set("gpu2", "bus", n.state["gpu0"]["bus"])
	if d := of(t, n.scan(), nvmltest.UUID(0)); d.Unusable != "" {
		t.Errorf("one GPU that is read twice is %s", d.Unusable)
	}
}

// A GPU in MIG mode is never reserved as a whole, whatever its instances answer. A known
// instance stays while it cannot be read.
func TestMIGInstancesThatCannotBeRead(t *testing.T) {
	for _, tc := range []struct{ scope, key, value, unusable, warning string }{
		{"mig1.0", "ret.nvmlDeviceGetUUID", "999", "", "MIG instance 0 is hidden: nvmlDeviceGetUUID=999 unknown error"},
		{"mig1.0", "ret.nvmlDeviceGetName", "3", "", "MIG instance 0 is hidden: nvmlDeviceGetName=3 not supported"},
		{"gpu1", "ret.nvmlDeviceGetMigDeviceHandleByIndex", "4", gpu.MIGUnread, "nvmlDeviceGetMigDeviceHandleByIndex=4 no permission; the plugin keeps the last known instances; run Nomad's client as root"},
		{"gpu1", "ret.nvmlDeviceGetMaxMigDeviceCount", "999", gpu.MIGUnread, "reading the number of MIG instances"},
	} {
		state := nvmltest.H200(2)
		state.Split(1, 2)
		state.Set(tc.scope, tc.key, tc.value)
		n := open(t, state)
		inv := n.scan()
		if !strings.Contains(strings.Join(inv.Warnings, ";"), tc.warning) {
			t.Errorf("%s: warnings %v, want %q", tc.key, inv.Warnings, tc.warning)
		}
		if d := inv.Devices[len(inv.Devices)-1]; d.Unusable != tc.unusable || (tc.unusable == "") != (d.ID == nvmltest.MIGUUID(1, 1)) {
			t.Errorf("%s, at first: %+v", tc.key, d)
		}
		n.set(tc.scope, tc.key, "")
		n.scan()
		n.set(tc.scope, tc.key, tc.value)
		if inv := n.scan(); len(inv.Devices) != 3 || of(t, inv, nvmltest.MIGUUID(1, 0)).Unusable != "" || len(inv.Devices[1].Signals.Failed)+len(inv.Devices[2].Signals.Failed) > 2 {
			t.Errorf("%s, later: %+v", tc.key, inv.Devices)
		}
	}
}

// If one MIG instance does not answer a question, only that instance lacks the answer.
func TestMIGInstanceWithAFailure(t *testing.T) {
	state := nvmltest.H200(1)
	state.Split(0, 2)
	state.Set("mig0.1", "ret.nvmlDeviceGetMemoryInfo", "999")
	inv := open(t, state).scan()
	if a, b := of(t, inv, nvmltest.MIGUUID(0, 0)), of(t, inv, nvmltest.MIGUUID(0, 1)); len(a.Signals.Failed) != 0 || len(b.Signals.Failed) != 1 {
		t.Errorf("failures: %v and %v", a.Signals.Failed, b.Signals.Failed)
	}
}

// A MIG mode that waits for a reset is reported.
func TestMIGModeThatIsPending(t *testing.T) {
	state := nvmltest.H200(1)
	state.Set("gpu0", "mig_pending", "1")
	inv := open(t, state).scan()
	if len(inv.Warnings) != 1 || !strings.Contains(inv.Warnings[0], "MIG mode is off now, and will be on after the next reset") || inv.Devices[0].Unusable != "" {
		t.Errorf("warnings %v, device %+v", inv.Warnings, inv.Devices[0])
	}
}

// A missing permission is reported, but is not a fault of the GPU.
func TestQuestionsThatAreNotAllowed(t *testing.T) {
	state := nvmltest.H200(1)
	state.Set("gpu0", "ret.nvmlDeviceGetTemperature", "4")
	state.Set("gpu0", "ret.nvmlDeviceGetPowerUsage", "4")
	inv := open(t, state).scan()
	if len(inv.Devices[0].Signals.Failed) != 0 || len(inv.Warnings) != 1 || !strings.Contains(inv.Warnings[0], "nvmlDeviceGetTemperature=4 no permission, nvmlDeviceGetPowerUsage=4 no permission") {
		t.Errorf("failed %v, warnings %v", inv.Devices[0].Signals.Failed, inv.Warnings)
	}
}

// once is a device for which a question fails one time.
type once struct {
	nvml.Device
	code  nvml.Return
	asked int
}

func (o *once) GetTemperature(s nvml.TemperatureSensors) (uint32, nvml.Return) {
	if o.asked++; o.asked == 1 {
		return 0, o.code
	}
	return o.Device.GetTemperature(s)
}

// A failed question is repeated at once.
func TestQuestionThatFailsOnce(t *testing.T) {
	n := open(t, nvmltest.H200(1))
	n.scan()
	for _, code := range []nvml.Return{nvml.ERROR_UNKNOWN, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_TIMEOUT} {
		o := &once{Device: n.physical[nvmltest.UUID(0)], code: code}
		r := &reader{sym: n.symbols}
		vitals(r, o)
		if o.asked != 2 || len(r.failed) > 0 || r.lost || r.reset {
			t.Errorf("%d: asked %d times, failed %v, lost %v, reset %v", code, o.asked, r.failed, r.lost, r.reset)
		}
	}
}

// Each question that affects health is really asked.
func TestQuestionsOfTheTable(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(f, "_test.go") {
			source.Write(data)
		}
	}
	for _, q := range gpu.Questions() {
		if !strings.Contains(source.String(), `"`+q.Function) {
			t.Errorf("%s is not asked", q.Function)
		}
	}
}

// A GPU whose calls hang is reported as not answering, keeps its known values, and blocks no other
// GPU. When the calls return, the plugin asks it again.
func TestHungGPU(t *testing.T) {
	n := open(t, nvmltest.H200(3))
	n.scan()
	n.set("gpu1", "hang", "1")
	var asked chan found
	for range 2 {
		inv := n.scan()
		if asked != nil && n.slots[1].reading != asked {
			t.Error("a GPU is asked again though its calls hang")
		}
		asked = n.slots[1].reading
		if d := of(t, inv, nvmltest.UUID(1)); !d.Signals.Unanswered || *d.MemoryMiB != 143771 {
			t.Errorf("got %+v", d.Signals)
		}
		if of(t, inv, nvmltest.UUID(2)).Signals.Unanswered {
			t.Error("a GPU that answers is reported as not answering")
		}
	}
	if got := n.Sample([]string{nvmltest.UUID(0), nvmltest.UUID(1), nvmltest.UUID(2)}); len(got) != 2 {
		t.Errorf("%d samples while a GPU is not asked, want 2", len(got))
	}
	n.set("gpu1", "hang", "")
	patience.Eventually(t, "the GPU is asked again", func() bool {
		return !of(t, n.scan(), nvmltest.UUID(1)).Signals.Unanswered
	})
}

// An answer that comes too late for its scan counts in the next one, so a GPU that is always slow
// does not count as hung.
func TestAnswersThatComeLate(t *testing.T) {
	n := open(t, nvmltest.H200(2))
	n.scan()
	n.within = 50 * time.Millisecond
	n.set("gpu1", "hang", "1")
	if !of(t, n.scan(), nvmltest.UUID(1)).Signals.Unanswered {
		t.Error("a GPU that hangs is reported as answering")
	}
	n.set("gpu1", "remap", "2") // time since the GPU was asked
	n.set("gpu1", "hang", "")
	patience.Eventually(t, "the late answer", func() bool { return len(n.slots[1].reading) > 0 })
	n.set("gpu1", "remap", "0")
	n.set("gpu1", "hang", "1") // the GPU always answers late
	if d := of(t, n.scan(), nvmltest.UUID(1)); d.Signals.Unanswered || !d.Signals.RemapFailed {
		t.Errorf("the late answer does not count: %+v", d.Signals)
	}
}

// GPUs that the driver is still starting have more time than GPUs that were read before.
func TestGPUThatStillStarts(t *testing.T) {
	state := nvmltest.H200(2)
	state.Set("gpu1", "hang", "1")
	n := open(t, state)
	n.within = 10 * time.Millisecond
	started := make(chan struct{})
	time.AfterFunc(200*time.Millisecond, func() {
		defer close(started)
		n.set("gpu1", "hang", "")
	})
	defer func() { <-started }()
	if inv := n.scan(); len(inv.Devices) != 2 {
		t.Errorf("%d GPUs, %d unidentified; want 2", len(inv.Devices), inv.Unidentified())
	}
}

// A sample leaves out GPUs that hang, and they delay no other GPU.
func TestSampleOfAHungGPU(t *testing.T) {
	n := open(t, nvmltest.H200(5))
	n.within = 300 * time.Millisecond
	ids := []string{}
	for _, d := range n.scan().Devices {
		ids = append(ids, d.ID)
	}
	n.set("gpu2", "hang", "1")
	n.set("gpu4", "hang", "1")
	for range 2 {
		got := n.Sample(ids)
		_, hung := got[nvmltest.UUID(2)]
		_, too := got[nvmltest.UUID(4)]
		if hung || too || len(got) != 3 {
			t.Errorf("got samples of %d GPUs, of the hung ones %v and %v; want the three others", len(got), hung, too)
		}
	}
	n.set("gpu2", "hang", "")
	n.set("gpu4", "hang", "")
	patience.Eventually(t, "the GPUs are asked again", func() bool { return len(n.Sample(ids)) == 5 })
}

func TestDriverThatGoesAndComesBack(t *testing.T) {
	n := open(t, nvmltest.H200(1))
	n.scan()
	for _, ret := range []string{"9", "18"} {
		n.set("sys", "init", ret)
		_, err := n.Scan()
		if _, ok := errors.AsType[*gpu.Unavailable](err); !ok {
			t.Errorf("%s: error %v", ret, err)
		}
		if got := n.Sample([]string{nvmltest.UUID(0)}); len(got) != 0 {
			t.Errorf("%s: samples %v of a driver that is gone", ret, got)
		}
		n.set("sys", "init", "")
		n.scan()
	}
	n.set("gpu0", "ret.nvmlDeviceGetHandleByIndex_v2", "9") // between two calls of a scan
	if _, err := n.Scan(); err == nil || !strings.Contains(err.Error(), "went away") {
		t.Errorf("error %v", err)
	}
}

// loader is a library that loads the kernel module, as NVML does by nvidia-modprobe.
type loader struct {
	nvml.Interface
	module string // the module's directory in /sys
	inits  int
}

func (l *loader) Init() nvml.Return {
	l.inits++
	if err := os.MkdirAll(l.module, 0o755); err != nil {
		return nvml.ERROR_UNKNOWN
	}
	return l.Interface.Init()
}

// When NVML itself loads the module, that does not count as a reload of the driver.
func TestModuleThatNVMLLoads(t *testing.T) {
	n := open(t, nvmltest.H200(1))
	l := &loader{Interface: n.lib, module: n.opts.Root + "/sys/module/nvidia"}
	n.lib = l
	if err := os.RemoveAll(l.module); err != nil {
		t.Fatal(err)
	}
	loads := map[string]bool{}
	for range 2 {
		loads[n.scan().DriverLoad] = true
	}
	if l.inits != 1 || len(loads) != 1 || loads[""] {
		t.Errorf("NVML is initialized %d times, loads %v; want once, and one load", l.inits, loads)
	}
}

// A library that the linker does not know is found where the driver's installer put it,
// even if it was installed after the plugin's start. It has its own name here, because the
// linker knows the name of an already loaded library.
func TestLibraryInTheDriversFolder(t *testing.T) {
	n := open(t, nvmltest.H200(1))
	n.scan()
	root, name := sysRoot(t), "libnvidia-ml-elsewhere.so.1"
	b := Open(Options{Library: name, Root: root})
	defer b.Close()
	if _, err := b.Scan(); err == nil || !strings.Contains(err.Error(), "neither where the dynamic linker looks nor in /usr/local/nvidia/lib64") {
		t.Errorf("no library: %v", err)
	}
	dir := filepath.Join(root, "usr/local/nvidia/lib64")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(n.opts.Library, filepath.Join(dir, name))); err != nil {
		t.Fatal(err)
	}
	if inv, err := b.Scan(); err != nil || len(inv.Devices) != 1 {
		t.Errorf("%d GPUs, %v", len(inv.Devices), err)
	}
}

func TestLibrariesThatAreNotNVML(t *testing.T) {
	for path, want := range map[string]string{
		"libc.so.6":    `library "libc.so.6" is not NVML, because it has no function nvmlInit_v2`,
		"libnone.so.9": "cannot be loaded: is the NVIDIA driver installed?",
	} {
		_, err := Open(Options{Library: path}).Scan()
		var u *gpu.Unavailable
		if !errors.As(err, &u) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", path, err, want)
		}
	}
}

func TestSamples(t *testing.T) {
	state := nvmltest.H200(2)
	for k, v := range map[string]string{"utilization": "80", "used_mib": "1000", "field.74": "1000", "ecc_l1": "5", "reasons": "4"} {
		state.Set("gpu0", k, v)
	}
	n := open(t, state)
	ids := []string{nvmltest.UUID(0), nvmltest.UUID(1), "GPU-unknown"}
	n.scan()
	first := n.Sample(ids)
	n.set("gpu0", "field.74", fmt.Sprint(int64(time.Hour))) // clocks were held down all the time since
	s := n.Sample(ids)[nvmltest.UUID(0)]
	if len(first) != 2 {
		t.Fatalf("%d samples, want 2", len(first))
	}
	got := fmt.Sprint(*s.PowerW, *s.PowerLimitW, *s.GPUPercent, *s.MemoryPercent, *s.TemperatureC, *s.MemoryUsedMiB, *s.MemoryTotalMiB,
		*s.BAR1TotalMiB, *s.ECC.L1, *s.SMClockMHz, *s.Throttle, *s.PowerCapPercent, *s.DRAMActivePercent)
	if want := fmt.Sprint(75.3, 700, 80, 40, 31, 1000, 143771, 262144, 5, 345, "power-cap", 100.0, 0.5); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	n.set("gpu0", "lost", "1")
	if s := n.Sample(ids)[nvmltest.UUID(0)]; s.NoSampleReason != "gpu lost" {
		t.Errorf("reason %q of a lost GPU", s.NoSampleReason)
	}
}

// Memory that the driver reserves counts as used, but belongs to no task. An old driver cannot tell
// them apart.
func TestReservedMemory(t *testing.T) {
	state := nvmltest.H200(1)
	state.Set("gpu0", "used_mib", "8")
	state.Set("gpu0", "reserved_mib", "1200")
	for version, want := range map[string]string{"v2": "1208 8", "v1": "1208 1208"} {
		n := open(t, state)
		has := n.lookup
		n.lookup = func(symbol string) error {
			if version == "v1" && symbol == "nvmlDeviceGetMemoryInfo_v2" {
				return errors.New("not in this driver")
			}
			return has(symbol)
		}
		n.scan()
		s := n.Sample([]string{nvmltest.UUID(0)})[nvmltest.UUID(0)]
		if got := fmt.Sprint(*s.MemoryUsedMiB, *s.AllocatedMiB()); got != want {
			t.Errorf("%s: used and allocated %s MiB, want %s", version, got, want)
		}
	}
}

// Islands are numbered in the order of UUIDs, because NVML's order may change at a boot.
func TestIslandsAreNumberedByUUID(t *testing.T) {
	state := nvmltest.H200(4)
	for i, toward := range []string{"27", "26", "29", "28"} { // 1a-1b, 1c-1d
		state.Set(fmt.Sprintf("gpu%d", i), "nvlink_to", toward)
		state.Set(fmt.Sprintf("gpu%d", i), "uuid", nvmltest.UUID(3-i))
	}
	inv := open(t, state).scan()
	for i := range 4 {
		if d := of(t, inv, nvmltest.UUID(i)); d.NVLink.Island != i/2 {
			t.Errorf("%s: island %d, want %d", d.ID, d.NVLink.Island, i/2)
		}
	}
}

// A reading that began before NVML was initialized again asks no GPU by its old handle.
func TestReadingOfEarlierInitialization(t *testing.T) {
	n := open(t, nvmltest.H200(1))
	n.scan()
	claimed := n.askable([]string{nvmltest.UUID(0)})[nvmltest.UUID(0)]
	n.Disconnect()
	n.scan()
	if got := n.sampleGPU(claimed); len(got) > 0 {
		t.Errorf("the reading has %d GPUs, want none", len(got))
	}
	if got := n.Sample([]string{nvmltest.UUID(0)}); len(got) != 1 {
		t.Errorf("the next reading has %d GPUs, want 1", len(got))
	}
}

// Neither configuring the plugin again nor ending a command waits for a driver that hangs, in a
// call that runs or in the shutdown.
func TestCloseWaitsForNoCall(t *testing.T) {
	for _, scope := range []string{"gpu0", "sys"} {
		t.Run(scope, func(t *testing.T) {
			n := open(t, nvmltest.H200(1))
			n.scan()
			n.set(scope, "hang", "1")
			if scope != "sys" {
				n.Sample([]string{nvmltest.UUID(0)})
			}
			closed := make(chan struct{})
			go func() { n.Close(); close(closed) }()
			select {
			case <-closed:
			case <-patience.Over(t):
				t.Error("Close waits for the driver")
			}
			n.set(scope, "hang", "")
			<-closed
			patience.Eventually(t, "NVML is shut down", func() bool { return !n.connected(n.driverLoad()) })
		})
	}
}

// If a plugin starts before the fabric is up, it learns later which GPUs are close to each other. A
// GPU that is lost, or whose links are down, stays in its island.
func TestTopologyThatComesLate(t *testing.T) {
	state := nvmltest.H200(2)
	for i := range 2 {
		state.Set(fmt.Sprintf("gpu%d", i), "nvlinks", "0")
	}
	n := open(t, state)
	if d := of(t, n.scan(), nvmltest.UUID(0)); d.NVLink.Island != -1 {
		t.Errorf("island %d without NVLinks; want -1", d.NVLink.Island)
	}
	for i := range 2 {
		n.set(fmt.Sprintf("gpu%d", i), "nvlinks", "18")
	}
	for _, then := range []func(){
		func() { n.set("gpu1", "lost", "1") },
		func() { n.set("gpu1", "lost", ""); n.set("gpu1", "nvlinks", "0") },
		func() {},
	} {
		for _, d := range n.scan().Devices {
			if d.NVLink.Island != 0 {
				t.Errorf("%s: island %d; want 0", d.ID, d.NVLink.Island)
			}
		}
		then()
	}
}

// The limit of PCIe replays depends on the link.
func TestReplays(t *testing.T) {
	for _, tc := range []struct {
		gen, lanes int
		want       float64
	}{{4, 16, 15.36}, {6, 1, 3.84}, {0, 16, math.Inf(1)}, {7, 16, math.Inf(1)}, {4, 0, math.Inf(1)}} {
		if got := replayLimit(tc.gen, tc.lanes); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("generation %d, %d lanes: %v, want %v", tc.gen, tc.lanes, got, tc.want)
		}
	}
}

// If a value is not available, NVML's call succeeds with all bits set.
func TestValuesThatAreNotAvailable(t *testing.T) {
	state := nvmltest.H200(2)
	for _, key := range []string{"limit_mw", "max_sm_mhz", "sm_mhz", "temperature", "power_mw", "utilization", "encoder", "ecc_l1", "field.230"} {
		state.Set("gpu0", key, "18446744073709551615")
	}
	n := open(t, state)
	d := of(t, n.scan(), nvmltest.UUID(0))
	if d.PowerLimitW != nil || d.CoresClockMHz != nil || d.Signals.Recovery != nil {
		t.Errorf("power limit %v, clock %v, recovery action %v; want none", d.PowerLimitW, d.CoresClockMHz, d.Signals.Recovery)
	}
	s := n.Sample([]string{d.ID})[d.ID]
	for name, missing := range map[string]bool{
		"power limit": s.PowerLimitW == nil, "power": s.PowerW == nil, "SM clock": s.SMClockMHz == nil, "temperature": s.TemperatureC == nil,
		"utilization": s.GPUPercent == nil && s.MemoryPercent == nil, "encoder": s.EncoderPercent == nil,
		"ECC errors": s.ECC.L1 == nil,
	} {
		if !missing {
			t.Errorf("%s with all bits set counts as a value", name)
		}
	}
	if other := of(t, n.scan(), nvmltest.UUID(1)); other.PowerLimitW == nil || other.Signals.Recovery == nil {
		t.Errorf("power limit %v, recovery action %v of the other GPU, want both", other.PowerLimitW, other.Signals.Recovery)
	}
}

// MIG instances replace their GPU; an instance that is removed is no longer published.
func TestMIGInstances(t *testing.T) {
	state := nvmltest.H200(3)
	state.Split(1, 2)
	n := open(t, state)
	inv := n.scan()
	d := of(t, inv, nvmltest.MIGUUID(1, 0))
	if len(inv.Devices) != 4 || d.Parent != nvmltest.UUID(1) || d.MIG.Profile != "1g.18gb" || *d.MemoryMiB != 16384 || d.MIG.GPUInstance != 7 || d.NVLink.Island != -1 {
		t.Errorf("%d devices, the instance is %+v", len(inv.Devices), d)
	}
	n.Sample([]string{d.ID})
	s := n.Sample([]string{d.ID})[d.ID]
	if !s.ParentPowerAndTemperature || *s.PowerW != 75.3 || s.GPUPercent != nil || *s.MemoryTotalMiB != 16384 {
		t.Errorf("sample %+v", s)
	}
	n.set("gpu1", "ret.nvmlDeviceGetMigMode", "999")
	if inv := n.scan(); len(inv.Devices) != 4 || len(inv.Warnings) != 1 {
		t.Errorf("%d devices, warnings %v, while MIG is unreadable; want the last known", len(inv.Devices), inv.Warnings)
	}
	n.set("gpu1", "ret.nvmlDeviceGetMigMode", "")
	delete(n.state, "mig1.0")
	n.write()
	if inv := n.scan(); len(inv.Devices) != 3 || !slices.ContainsFunc(inv.Devices, func(d gpu.Device) bool { return d.ID == nvmltest.MIGUUID(1, 1) }) {
		t.Errorf("%d devices, want two GPUs and the second instance", len(inv.Devices))
	}
	delete(n.state, "mig1.1")
	n.write()
	if inv := n.scan(); len(inv.Devices) != 3 || of(t, inv, nvmltest.UUID(1)).Unusable != gpu.MIGEmpty || of(t, inv, nvmltest.UUID(0)).Unusable != "" {
		t.Errorf("without instances: %+v", inv.Devices)
	}
	n.set("gpu1", "mig", "0")
	if inv := n.scan(); len(inv.Devices) != 3 || of(t, inv, nvmltest.UUID(1)).Unusable != "" {
		t.Errorf("MIG is off again: %+v", inv.Devices)
	}
}

// A GPU that is lost, or needs a reset, in the middle of a scan keeps all its known values,
// and so do its MIG instances. Only the fault is new.
func TestGPULostHalfWay(t *testing.T) {
	for _, call := range []string{"DisplayMode", "PciInfo_v3", "MemoryInfo", "MigMode", "MaxMigDeviceCount", "MigDeviceHandleByIndex", "Name"} {
		for code, want := range map[string]gpu.Signals{"15": {Lost: true}, "16": {ResetRequired: true}} {
			t.Run(call+" "+code, func(t *testing.T) {
				state := nvmltest.H200(2)
				state.Split(1, 3)
				n := open(t, state)
				before := n.scan()
				for gpu := range 2 {
					n.state.Set(fmt.Sprintf("gpu%d", gpu), "ret.nvmlDeviceGet"+call, code)
				}
				n.write()
				for range 2 {
					inv := n.scan()
					if len(inv.Devices) != 4 {
						t.Fatalf("%d devices, want the GPU and three instances", len(inv.Devices))
					}
					for i, d := range inv.Devices {
						asked := d.Parent != "" || !strings.Contains(call, "Mig") || call == "MigMode"
						if bad := d.Signals.Lost == want.Lost && d.Signals.ResetRequired == want.ResetRequired; bad != asked {
							t.Errorf("%s: %+v", d.ID, d.Signals)
						}
						d.Signals = before.Devices[i].Signals
						if diff := cmp.Diff(before.Devices[i], d); diff != "" {
							t.Errorf("%s has changed (-before +now)\n%s", d.ID, diff)
						}
					}
				}
			})
		}
	}
}

// A GPU that is lost during its first read stays unknown, because the values are incomplete.
func TestGPULostHalfWayAtFirst(t *testing.T) {
	state := nvmltest.H200(2)
	state.Set("gpu1", "ret.nvmlDeviceGetDisplayMode", "15")
	n := open(t, state)
	for range 2 {
		if inv := n.scan(); len(inv.Devices) != 1 || len(inv.Hidden) != 1 || inv.Unidentified() != 0 {
			t.Errorf("%d devices, %d unidentified, hidden %v; want one GPU and a hidden one", len(inv.Devices), inv.Unidentified(), inv.Hidden)
		}
	}
	n.set("gpu1", "ret.nvmlDeviceGetDisplayMode", "")
	if inv := n.scan(); len(inv.Devices) != 2 || len(inv.Warnings) != 0 {
		t.Errorf("%d devices, warnings %v; want two", len(inv.Devices), inv.Warnings)
	}
}

// emit makes the library deliver an event.
func (n *node) emit(text string) {
	delivered++
	n.set("sys", fmt.Sprintf("event.%d", delivered), text)
}

func TestEvents(t *testing.T) {
	state := nvmltest.H200(2)
	state.Split(1, 2)
	n := open(t, state)
	n.scan()
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := make(chan gpu.Event), make(chan struct{})
	go func() { n.Events(ctx, out); close(ended) }()
	for _, tc := range []struct {
		text string
		want gpu.Event
	}{
		{"0 8 79 -1", gpu.Event{GPU: nvmltest.UUID(0), Xid: 79}},
		{"0 2 0 -1", gpu.Event{GPU: nvmltest.UUID(0), Xid: 48}},
		{"0 32768 1 -1", gpu.Event{GPU: nvmltest.UUID(0)}},
		{"1 8 95 8", gpu.Event{GPU: nvmltest.MIGUUID(1, 1), Xid: 95}},
		{"1 8 95 99", gpu.Event{GPU: nvmltest.UUID(1), Xid: 95}},
	} {
		n.emit(tc.text)
		select {
		case got := <-out:
			if got != tc.want {
				t.Errorf("event %q: got %+v, want %+v", tc.text, got, tc.want)
			}
		case <-patience.Over(t):
			t.Fatalf("event %q is not delivered", tc.text)
		}
	}
	n.set("sys", "init", "15") // the wait fails: everything must be scanned
	select {
	case got := <-out:
		if got != (gpu.Event{}) {
			t.Errorf("got %+v of a wait that failed", got)
		}
	case <-patience.Over(t):
		t.Fatal("a failed wait causes no event")
	}
	cancel()
	select {
	case <-ended:
	case <-patience.Over(t):
		t.Fatal("the event source does not end")
	}
}

// setCounter is a library that counts event sets.
type setCounter struct {
	nvml.Interface
	sets int
}

func (c *setCounter) EventSetCreate() (nvml.EventSet, nvml.Return) {
	c.sets++
	return c.Interface.EventSetCreate()
}

// Event sets end with NVML's shutdown. After that, no call waits for them or frees them.
func TestEventSetEndsWithNVML(t *testing.T) {
	n := open(t, nvmltest.H200(1))
	c := &setCounter{Interface: n.lib}
	n.lib = c
	var w watch
	for want := 1; want <= 2; want++ {
		n.scan()
		n.poll(&w)
		n.poll(&w)
		if c.sets != want {
			t.Errorf("%d event sets after %d initializations", c.sets, want)
		}
		n.Disconnect() // the driver went away, and is back before anybody waits for events
	}
}

// A card without a bridge to another has no links that could be down.
func TestCardWithoutABridge(t *testing.T) {
	state := nvmltest.H200(3)
	state.Set("gpu0", "nvlink_to", "27") // 1a-1b
	state.Set("gpu1", "nvlink_to", "26")
	state.Set("gpu2", "nvlinks", "0")
	for _, d := range open(t, state).scan().Devices {
		if d.Signals.NVLinkDown {
			t.Errorf("%s: NVLinks are reported as down", d.ID)
		}
	}
}

// A GPU whose memory is a NUMA node may hold pages of the system.
func TestMemoryOfTheSystem(t *testing.T) {
	state := nvmltest.H200(2)
	state.Set("gpu1", "numa", "2")
	inv := open(t, state).scan()
	if of(t, inv, nvmltest.UUID(0)).SystemMemory || !of(t, inv, nvmltest.UUID(1)).SystemMemory {
		t.Error("want the second GPU's memory alone to be the system's")
	}
}

// In a virtual machine, the plugin distinguishes a share of a GPU from a whole one.
func TestVirtualGPUs(t *testing.T) {
	state := nvmltest.H200(3)
	state.Set("gpu1", "virtualization", "1") // passed through to the virtual machine
	state.Set("gpu2", "virtualization", "2")
	for i, d := range open(t, state).scan().Devices {
		if d.Chip.Virtual != (i == 2) {
			t.Errorf("%s: virtual %v", d.ID, d.Chip.Virtual)
		}
	}
}

// If the driver does not know a link's errors, this is not a fault.
func TestLinkErrorsThatAreNotKnown(t *testing.T) {
	n := open(t, nvmltest.H200(1))
	ask := func() (float64, bool) {
		return linkErrorCount(&reader{sym: n.symbols}, n.physical[nvmltest.UUID(0)])
	}
	n.scan()
	n.set("gpu0", "field.38", "18446744073709551615")
	n.set("gpu0", fmt.Sprint("field.", nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL), "5")
	if sum, ok := ask(); sum != 5 || !ok {
		t.Errorf("%v errors, known %v; want 5", sum, ok)
	}
	n.set("gpu0", "field.208", "7") // NVLink 5 counts each link
	if sum, ok := ask(); sum < 12 || !ok {
		t.Errorf("with those of each link: %v errors, known %v; want more", sum, ok)
	}
}

// An old driver lacks most functions. The plugin reads what it has, and calls nothing else.
func TestOldDriver(t *testing.T) {
	state := nvmltest.H200(1)
	n := open(t, state)
	has := n.lookup
	n.lookup = func(symbol string) error {
		for _, lacks := range []string{"FieldValues", "Fabric", "EventReasons", "Remapped", "Mig", "NvLink", "Gpm", "EventSet", "Architecture", "EnforcedPowerLimit"} {
			if strings.Contains(symbol, lacks) {
				return errors.New("not in this driver")
			}
		}
		return has(symbol)
	}
	d := n.scan().Devices[0]
	if *d.PowerLimitW != 700 || d.NVLink.Active != -1 || d.Chip.Architecture != "" || d.Signals.Recovery != nil {
		t.Errorf("got %+v", d)
	}
	s := n.Sample([]string{d.ID})[d.ID]
	if *s.TemperatureC != 31 || s.Throttle != nil {
		t.Errorf("sample %+v", s)
	}
	if e, ok, pause := n.poll(&watch{}); ok || pause == 0 {
		t.Errorf("a driver without events: %+v, pause %v", e, pause)
	}
}

// A GPU that is part of the processor shares the machine's memory, and some drivers report 0 bytes
// for such a GPU. The GPU may be on no bus. NVML then reports bus address 0, which belongs to the
// host bridge, so the plugin publishes no address.
func TestIntegratedGPU(t *testing.T) {
	for _, size := range []string{"", "0"} {
		state := nvmltest.H200(1)
		state.Set("gpu0", "memory_mib", size)
		state.Set("gpu0", "bus", "0")
		n := open(t, state)
		if err := os.WriteFile(n.opts.Root+"/proc/meminfo", []byte("MemTotal: 2097152 kB\nMemFree: 100 kB\nMemAvailable: 1048576 kB\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if d := n.scan().Devices[0]; d.MemoryMiB == nil || *d.MemoryMiB != 2048 {
			t.Errorf("memory %v, want the machine's 2048 MiB", d.MemoryMiB)
		} else if d.Place.BusID != "" {
			t.Errorf("it has the address %s", d.Place.BusID)
		}
		s := n.Sample([]string{nvmltest.UUID(0)})[nvmltest.UUID(0)]
		if s.MemoryUsedMiB == nil || *s.MemoryUsedMiB != 1024 || *s.MemoryTotalMiB != 2048 {
			t.Errorf("size %q: used memory %v of %v, want 1024 of the machine's 2048 MiB", size, s.MemoryUsedMiB, s.MemoryTotalMiB)
		}
		if used := s.AllocatedMiB(); used != nil {
			t.Errorf("tasks on the GPU use %d MiB, want unknown: programs without a GPU use the same memory", *used)
		}
	}
}

// NVLink errors count as long as they keep coming.
func TestLinkErrors(t *testing.T) {
	var l growth
	at := time.Unix(0, 0)
	for i, tc := range []struct {
		after time.Duration
		count float64
		noisy bool
	}{
		{0, 1e6, false},                      // what was counted before does not matter
		{100 * time.Millisecond, 2e6, false}, // too short for a rate
		{time.Minute, 1e6 + 60*90, false},    // 90 a second
		{time.Minute, 1e6 + 60*340, true},    // 250 a second
		{time.Minute, 1e6 + 60*390, true},    // 50 a second: not quiet
		{time.Minute, 1e6 + 60*392, false},   // 2 a second
		{time.Minute, 0, false},              // the counter was reset
		{time.Minute, 60 * 250, true},
		{time.Minute, 0, true},
	} {
		at = at.Add(tc.after)
		if l = l.next(at, tc.count, noiseOver, noisy); l.fast != tc.noisy {
			t.Errorf("step %d: noisy %v, want %v", i, l.fast, tc.noisy)
		}
	}
}

func TestFieldValues(t *testing.T) {
	for kind, want := range map[nvml.ValueType]float64{
		nvml.VALUE_TYPE_UNSIGNED_INT: 4294967295, nvml.VALUE_TYPE_SIGNED_INT: -1, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG: 18446744073709551615,
		nvml.VALUE_TYPE_SIGNED_LONG_LONG: -1, nvml.VALUE_TYPE_UNSIGNED_SHORT: 65535,
	} {
		fv := nvml.FieldValue{ValueType: uint32(kind), Value: [8]byte{255, 255, 255, 255, 255, 255, 255, 255}}
		if got, _ := fieldValue(fv); got != want {
			t.Errorf("type %d: %v, want %v", kind, got, want)
		}
	}
	if got, _ := fieldValue(nvml.FieldValue{ValueType: uint32(nvml.VALUE_TYPE_DOUBLE), Value: [8]byte{0, 0, 0, 0, 0, 0, 0xf8, 0x3f}}); got != 1.5 {
		t.Errorf("a double is %v, want 1.5", got)
	}
}

// The driver package may be downgraded while the plugin waits with the newer library. Then
// only a new process gets the older library. A plugin that only waits for the module to
// load does not restart again and again.
func TestLibraryThatWasReplacedWhileVersionsDiffer(t *testing.T) {
	n := open(t, nvmltest.State{"sys": {"init": fmt.Sprint(int(nvml.ERROR_LIB_RM_VERSION_MISMATCH))}})
	restart := func() bool {
		t.Helper()
		_, err := n.Scan()
		u := (*gpu.Unavailable)(nil)
		if !errors.As(err, &u) || !strings.Contains(u.What, "different versions") {
			t.Fatalf("error %v", err)
		}
		return u.Restart
	}
	if restart() {
		t.Error("a new process is requested, although it would get the same library")
	}
	data, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(library+".older", data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(library, library+".before"); err != nil {
		t.Fatal(err)
	}
	defer os.Rename(library+".before", library) // the other tests need the library
	if err := os.Rename(library+".older", library); err != nil {
		t.Fatal(err)
	}
	if !restart() {
		t.Error("no new process is requested, although this one never gets the other library")
	}
}

// loses is a library that loses all GPUs.
type loses struct {
	nvml.Interface
	lost bool
}

func (l *loses) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	if l.lost {
		return nil, nvml.ERROR_GPU_IS_LOST
	}
	return l.Interface.DeviceGetHandleByIndex(i)
}

// Handles of an earlier initialization of NVML are not used.
func TestHandlesEndWithNVML(t *testing.T) {
	n := open(t, nvmltest.H200(2))
	l := &loses{Interface: n.lib}
	n.lib = l
	n.scan()
	n.Disconnect() // the driver was reloaded
	l.lost = true
	n.scan()
	if len(n.physical) > 0 || len(n.handles) > 0 {
		t.Errorf("%d GPUs and %d handles are used that this initialization did not give", len(n.physical), len(n.handles))
	}
}
