// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// mocked returns a backend with go-nvml's mock of a DGX A100. The mock panics in functions
// that it does not model; for the backend they are missing symbols.
func mocked(t *testing.T) (*Backend, *server.Server) {
	t.Helper()
	return over(t, dgxa100.New())
}

// over returns a backend with one of go-nvml's mock machines.
func over(t *testing.T, s *server.Server) (*Backend, *server.Server) {
	t.Helper()
	set := map[string]bool{}
	for _, v := range []any{&s.Interface, &s.Devices[0].(*server.Device).Device} {
		fields := reflect.ValueOf(v).Elem()
		for i := range fields.NumField() {
			name := fields.Type().Field(i).Name
			if f := fields.Field(i); strings.HasSuffix(name, "Func") && f.Kind() == reflect.Func && !f.IsNil() {
				set[strings.TrimSuffix(name, "Func")] = true
			}
		}
	}
	if !set["GetUUID"] || !set["SystemGetDriverVersion"] {
		t.Fatalf("the mock sets %v: it has changed", set)
	}
	lookup := func(symbol string) error {
		name := strings.TrimPrefix(symbol, "nvml")
		for _, suffix := range []string{"_v2", "_v3"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if set[name] || set[strings.TrimPrefix(name, "Device")] {
			return nil
		}
		return errors.New("not modelled")
	}
	return newBackend(Options{Root: sysRoot(t)}, s, lookup), s
}

// sysRoot returns a root with a /sys in which the GPU at 0000:07:00.0 is on NUMA node 3.
func sysRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"sys/bus/pci/devices/0000:07:00.0/numa_node": "3\n",
		"sys/bus/pci/devices/0000:0f:00.0/numa_node": "-1\n",
		"proc/sys/kernel/random/boot_id":             "boot-1\n",
		"sys/module/nvidia/version":                  "550\n",
	} {
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

// A GPU that the driver stops listing fell off the bus, whatever indexes the others have
// now. It is listed as lost until it is back.
func TestGPUThatIsNotListedAnyMore(t *testing.T) {
	b, s := mocked(t)
	before, err := b.Scan()
	if err != nil {
		t.Fatal(err)
	}
	gone := s.Devices[3].(*server.Device).UUID
	all := s.Devices
	s.DeviceGetCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i >= 3 {
			i++
		}
		return all[i], nvml.SUCCESS
	}
	for range 2 {
		after, err := b.Scan()
		if err != nil || len(after.Devices) != 8 {
			t.Fatalf("got %d GPUs, %v; want all eight", len(after.Devices), err)
		}
		for i, d := range after.Devices {
			if d.ID != before.Devices[i].ID || d.Signals.Lost != (d.ID == gone) {
				t.Errorf("%s lost %v, want only %s lost", d.ID, d.Signals.Lost, gone)
			}
		}
	}
	s.DeviceGetCountFunc = func() (int, nvml.Return) { return 8, nvml.SUCCESS }
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) { return all[i], nvml.SUCCESS }
	after, err := b.Scan()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range after.Devices {
		if d.Signals.Lost {
			t.Errorf("%s is still lost", d.ID)
		}
	}
}

// withEvents returns a backend, after a scan, with this wait function for event sets, and
// counters of the sets that were made and freed.
func withEvents(t *testing.T, wait func(ms uint32) nvml.Return) (b *Backend, made, freed *int) {
	t.Helper()
	s := dgxa100.New()
	made, freed = new(int), new(int)
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		*made++
		return &mock.EventSet{
			FreeFunc: func() nvml.Return { *freed++; return nvml.SUCCESS },
			WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) { return nvml.EventData{}, wait(ms) },
		}, nvml.SUCCESS
	}
	for _, d := range s.Devices {
		d := d.(*server.Device)
		d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return nvml.EventTypeXidCriticalError, nvml.SUCCESS }
		d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	}
	b, _ = over(t, s)
	known := b.lookup
	b.lookup = func(symbol string) error {
		if symbol == "nvmlEventSetWait_v2" { // a function of the set, whose name the mock does not know
			return nil
		}
		return known(symbol)
	}
	if _, err := b.Scan(); err != nil {
		t.Fatal(err)
	}
	return b, made, freed
}

// While a GPU is lost, every wait for events may fail. Each event set holds open files, and
// a process may open only a limited number.
func TestWaitsThatFailLeaveNoEventSets(t *testing.T) {
	b, made, freed := withEvents(t, func(uint32) nvml.Return { return nvml.ERROR_GPU_IS_LOST })
	var w watch
	for range 100 {
		if _, ok, pause := b.poll(&w); !ok || pause == 0 {
			t.Fatalf("a look that fails: scan %v, pause %s", ok, pause)
		}
	}
	b.free(&w)
	if *made != 100 || *freed != *made {
		t.Errorf("%d event sets made, %d freed; want 100 and 100", *made, *freed)
	}
}

// The plugin never lets NVML wait: during a wait the library may wake this process at any
// rate, and the driver cannot be closed.
func TestEventsAreLookedForOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, longest := 0, uint32(0)
		b, _, _ := withEvents(t, func(ms uint32) nvml.Return {
			looks, longest = looks+1, max(longest, ms)
			return nvml.ERROR_TIMEOUT
		})
		time.Sleep(300 * time.Millisecond) // the plugin starts at any time
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b.Events(ctx, make(chan gpu.Event))
		if looks < 60 || looks > 62 || longest > 0 {
			t.Errorf("%d looks in a minute, which wait for up to %d ms; want one a second and no wait", looks, longest)
		}
	})
}

// After the driver was reloaded, NVML must be initialized again.
func TestReloadedDriverIsInitializedAgain(t *testing.T) {
	b, s := mocked(t)
	inits, shutdowns := 0, 0
	s.InitFunc = func() nvml.Return { inits++; return nvml.SUCCESS }
	s.ShutdownFunc = func() nvml.Return { shutdowns++; return nvml.SUCCESS }
	first, err := b.Scan()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Scan(); err != nil || inits != 1 {
		t.Fatalf("%d initializations in two scans, %v; want 1", inits, err)
	}
	// The kernel gives the directory a new time after it has dropped the directory from its cache.
	module := filepath.Join(b.opts.Root, "sys/module/nvidia")
	if err := os.Chtimes(module, time.Unix(1, 0), time.Unix(2, 0)); err != nil {
		t.Fatal(err)
	}
	if same, err := b.Scan(); err != nil || inits != 1 || same.DriverLoad != first.DriverLoad {
		t.Errorf("%d initializations, %v, load %q then %q: a directory that was read again counts as a reload of the driver",
			inits, err, first.DriverLoad, same.DriverLoad)
	}
	if err := errors.Join(os.Rename(module, module+".old"), os.Mkdir(module, 0o755)); err != nil {
		t.Fatal(err)
	}
	second, err := b.Scan()
	if err != nil || inits != 2 || shutdowns != 1 {
		t.Errorf("%d initializations, %d shutdowns, %v; want 2 and 1", inits, shutdowns, err)
	}
	if first.DriverLoad == second.DriverLoad {
		t.Error("the loads of the driver have the same identifier: latched faults would stay")
	}
}

// Errors explain what stops NVML, and a replaced library requires a new process.
func TestUnavailableDriver(t *testing.T) {
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND:       "does not exist",
		nvml.ERROR_DRIVER_NOT_LOADED:       "not loaded",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "different versions",
		nvml.ERROR_NO_PERMISSION:           "no permission",
		nvml.ERROR_UNKNOWN:                 "cannot be initialized",
	} {
		b, s := mocked(t)
		s.InitFunc = func() nvml.Return { return ret }
		_, err := b.Scan()
		var u *gpu.Unavailable
		if !errors.As(err, &u) || !strings.Contains(err.Error(), want) || u.Restart {
			t.Errorf("%d: error %v, want one with %q and no restart", ret, err, want)
		}
	}
	b, s := mocked(t)
	if _, err := b.Scan(); err != nil {
		t.Fatal(err)
	}
	s.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_LIB_RM_VERSION_MISMATCH }
	_, err := b.Scan()
	var u *gpu.Unavailable
	if !errors.As(err, &u) || !u.Restart {
		t.Errorf("error %v, want one that asks for a new process", err)
	}
}

// Field ids from 251 on have other meanings in other driver branches.
func TestNoUnstableFieldIDs(t *testing.T) {
	known := map[string]int{
		"DEV_GET_GPU_RECOVERY_ACTION": nvml.FI_DEV_GET_GPU_RECOVERY_ACTION,
		"DEV_PERF_POLICY_POWER":       nvml.FI_DEV_PERF_POLICY_POWER, "DEV_PERF_POLICY_THERMAL": nvml.FI_DEV_PERF_POLICY_THERMAL,
		"DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
		"DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
		"DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL":   nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
		"DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
		"DEV_NVLINK_COUNT_RCV_ERRORS":           nvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS,
		"DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS": nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	uses := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`nvml\.FI_([A-Z_0-9]+)`).FindAllStringSubmatch(string(src), -1) {
			uses++
			if id, ok := known[m[1]]; !ok || id > 250 || id == 199 || id == 200 {
				t.Errorf("%s uses the field FI_%s, which this test does not know to be stable (%d)", f, m[1], id)
			}
		}
	}
	if uses == 0 {
		t.Error("no field is used: the test looks in the wrong place")
	}
}
