// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package emulated

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal"
)

// fileNamed writes an inventory file.
func fileNamed(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestInventory(t *testing.T) {
	const hclText = `
driver_version = "570.1.2"
cuda_version   = "12.8"
defaults {
  model      = "NVIDIA H100 80GB HBM3"
  memory_mib = 81559
}
gpu "GPU-b" {
  bus_id = "0000:1B:00.0"
  numa   = 1
  island = 0
  times  = { A = 1.5, d = 2 }
}
gpu "GPU-a" {
  healthy       = false
  health_reason = "xid:79"
  memory_mib    = 40000
}
`
	const jsonText = `{
  "driver_version": "570.1.2", "cuda_version": "12.8",
  "defaults": {"model": "NVIDIA H100 80GB HBM3", "memory_mib": 81559},
  "gpu": {
    "GPU-b": {"bus_id": "0000:1B:00.0", "numa": 1, "island": 0, "times": {"A": 1.5, "d": 2}},
    "GPU-a": {"healthy": false, "health_reason": "xid:79", "memory_mib": 40000}
  }
}`
	var scans []gpu.Inventory
	for name, text := range map[string]string{"gpus.hcl": hclText, "gpus.json": jsonText} {
		b := Open(fileNamed(t, name, text))
		inv, err := b.Scan()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range inv.Devices {
			inv.Devices[i].Place.Minor = 0 // Minor is the order in the file
			inv.Devices[i].Place.BusID = strings.TrimPrefix(inv.Devices[i].Place.BusID, "0000:")
		}
		scans = append(scans, inv)
	}
	got := scans[0]
	if got.DriverVersion != "570.1.2" || got.CUDAMajor != 12 || got.CUDAMinor != 8 || len(got.Devices) != 2 {
		t.Fatalf("got %+v", got)
	}
	a, b := got.Devices[0], got.Devices[1]
	if a.ID != "GPU-a" || *a.MemoryMiB != 40000 || a.Signals.Reported != "xid:79" || a.Place.NUMANode != -1 {
		t.Errorf("GPU-a: %+v", a)
	}
	if b.Place.BusID != "1b:00.0" || *b.MemoryMiB != 81559 || b.Model != "NVIDIA H100 80GB HBM3" || b.Signals.Reported != "" {
		t.Errorf("GPU-b: %+v", b)
	}
	if diff := cmp.Diff(map[pal.AppClass]float64{"A": 1.5, "D": 2}, b.Measured.Times); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(scans[1].Devices[1], b); diff != "" {
		t.Errorf("HCL and JSON differ:\n%s", diff)
	}
}

// A key of one GPU changes neither the defaults of the GPUs after it, nor the statistics of the GPUs
// before it.
func TestKeysOfOneGPU(t *testing.T) {
	b := Open(fileNamed(t, "gpus.hcl", `
defaults { memory_mib = 80000 }
gpu "GPU-a" {}
gpu "GPU-b" { memory_mib = 4000 }
gpu "GPU-c" {}
`))
	inv, err := b.Scan()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{80000, 4000, 80000} {
		d := inv.Devices[i]
		if s := b.Sample([]string{d.ID})[d.ID]; *d.MemoryMiB != want || *s.MemoryTotalMiB != want {
			t.Errorf("%s has %d MiB, and statistics of %d MiB, want %d", d.ID, *d.MemoryMiB, *s.MemoryTotalMiB, want)
		}
	}
}

func TestBadInventoryNamesFileAndLine(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"syntax":       {"gpu \"a\" {\n  model = \n}\n", "gpus.hcl:2,11"},
		"unknown key":  {"gpu \"a\" {\n  modell = \"x\"\n}\n", "gpus.hcl:2,3"},
		"unknown":      {"\nfleet {}\n", "gpus.hcl:2,1"},
		"twice":        {"gpu \"a\" {}\ngpu \"a\" {}\n", `gpus.hcl:2,1-8: gpu; GPU "a" is listed twice`},
		"no label":     {"gpu {}\n", "gpus.hcl:1"},
		"class":        {"gpu \"a\" {\n  times = { Z = 1 }\n}\n", `gpus.hcl:1,1-8: gpu a; times: application class "Z" is unknown`},
		"time":         {"gpu \"a\" {\n  times = { A = -1 }\n}\n", "times: A = -1 is not a positive number"},
		"rate":         {"gpu \"a\" {\n  rates = { C = 0 }\n}\n", "rates: C = 0 is not a positive number"},
		"part":         {"gpu \"a::1\" {}\n", `the id contains "::", which numbers the parts of a shared GPU`},
		"number":       {"gpu \"a\" {\n  memory_mib = \"lots\"\n}\n", "gpus.hcl:2"},
		"fault":        {"gpu \"a\" {\n  fault = \"fire\"\n}\n", `fault "fire" is unknown`},
		"key":          {"gpu \"a\" {\n  key = \"a b\"\n}\n", `key "a b" holds a space`},
		"model":        {"gpu \"a\" {\n  model = \"\"\n}\n", "the model is empty"},
		"id":           {"gpu \"a,b\" {}\n", "the id contains"},
		"cuda version": {"cuda_version = \"new\"\n", `"new" is not a version`},
	} {
		_, err := read(fileNamed(t, "gpus.hcl", tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
}

func TestBadFileLeavesThePreviousInForce(t *testing.T) {
	path := fileNamed(t, "gpus.hcl", "gpu \"a\" {}\n")
	b := Open(path)
	if _, err := b.Scan(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("gpu \"a\" {}\ngpu \"b\" {"), 0o644); err != nil {
		t.Fatal(err)
	}
	inv, err := b.Scan()
	if err != nil || len(inv.Devices) != 1 || len(inv.Warnings) != 1 || !strings.Contains(inv.Warnings[0], "gpus.hcl:2") {
		t.Errorf("got %+v, %v; want the previous inventory and a warning with the line", inv, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if inv, err = b.Scan(); err != nil || len(inv.Devices) != 1 {
		t.Errorf("got %+v, %v; want the previous inventory", inv, err)
	}
}

func TestMissingFileIsAMissingDriver(t *testing.T) {
	b := Open(filepath.Join(t.TempDir(), "none.hcl"))
	if _, err := b.Scan(); err == nil || !strings.Contains(err.Error(), "none.hcl") {
		t.Errorf("error %v, want one that names the file", err)
	}
}

// A change of the file is an event, and so is a new Xid in it.
func TestEvents(t *testing.T) {
	path := fileNamed(t, "gpus.hcl", "gpu \"a\" {}\n")
	synctest.Test(t, func(t *testing.T) {
		b := Open(path)
		out := make(chan gpu.Event)
		go b.Events(t.Context(), out)
		synctest.Wait()
		if err := os.WriteFile(path, []byte("gpu \"a\" {\n  xid = 79\n}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, want := <-out, (gpu.Event{GPU: "a", Xid: 79}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got, want := <-out, (gpu.Event{}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// No text makes the reader panic, and every inventory that it accepts is complete.
func FuzzInventory(f *testing.F) {
	for _, seed := range []string{
		"gpu \"a\" {}\n", "defaults {\n  numa = 1\n}\ngpu \"a\" {\n  times = { A = 1e3 }\n  fault = \"lost\"\n}\n",
		"gpu \"a\" {\n  times = { A = null }\n}", "gpu \"${x}\" {}", "cuda_version = \"1.\"", "driver_unavailable = \"why\"",
	} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "gpus.hcl")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		inv, err := read(path)
		if err != nil {
			return
		}
		for _, d := range inv.devices.Devices {
			if d.ID == "" || d.Model == "" || d.MemoryMiB == nil {
				t.Errorf("%q gives %+v", text, d)
			}
		}
	})
}
