// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

// nvmlLibrary is a library without a driver. All tests share one, because a process binds
// NVML's functions only once.
var nvmlLibrary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "nvml")
	if err != nil {
		return "", err
	}
	return nvmltest.Build(dir)
})

func fakeNVML(t *testing.T) string {
	t.Helper()
	lib, err := nvmlLibrary()
	if errors.Is(err, nvmltest.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// TestOddNodes plays testdata/odd: what doctor and fingerprint print for GPUs that are
// broken, hidden or odd.
func TestOddNodes(t *testing.T) {
	lib := fakeNVML(t)
	stories := 0
	datadriven.Walk(t, "testdata/odd", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			stories++
			return oddNode(t, lib, d)
		})
	})
	if stories == 0 {
		t.Fatal("no stories in testdata/odd")
	}
}

// oddNode is a node of idle H200s, changed by the lines of the story: "gpu0 key value", or
// "gpu0 key" for a value that the GPU does not support.
func oddNode(t *testing.T, lib string, d *datadriven.TestData) string {
	t.Helper()
	n, machine := 2, "driver"
	d.MaybeScanArgs(t, "gpus", &n)
	d.MaybeScanArgs(t, "machine", &machine)
	state := nvmltest.H200(n)
	for line := range strings.Lines(d.Input) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if f[1] == "split" {
			instances, err := strconv.Atoi(f[2])
			if err != nil {
				t.Fatal(err)
			}
			state.Split(int(f[0][3]-'0'), instances)
			continue
		}
		state.Set(f[0], f[1], strings.Join(f[2:], " "))
	}
	if err := state.Write(lib + ".state"); err != nil {
		t.Fatal(err)
	}
	diag := diagnosis{source: source{library: lib}, stateless: true, patience: gpu.DriverWithin, root: oddMachine(t, machine)}
	diag.driver()
	diag.permissions()
	diag.devices()
	var b strings.Builder
	for _, f := range diag.findings {
		fmt.Fprintf(&b, "%s %s: %s\n", f.Status, f.Check, f.Message)
		if f.Fix != "" {
			fmt.Fprintf(&b, "  → %s\n", f.Fix)
		}
	}
	var groups []*device.DeviceGroup
	if diag.inv != nil && len(diag.inv.Devices) > 0 {
		var err error
		if groups, err = firstFingerprint(diag.plugin()); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range groups {
		for _, dev := range g.Devices {
			fmt.Fprintf(&b, "%s %s: %v %s\n", g.Name, dev.ID, dev.Healthy, dev.HealthDesc)
		}
		if hidden := g.Attributes["unique.hidden"]; hidden != nil {
			fmt.Fprintf(&b, "hidden: %s\n", *hidden.String)
		}
	}
	return strings.ReplaceAll(b.String(), lib, "LIBRARY")
}

// oddMachine returns a root directory with the files of a kind of machine.
func oddMachine(t *testing.T, kind string) string {
	t.Helper()
	files := map[string]map[string]string{
		"driver":        {"/proc/driver/nvidia/version": "NVRM version: fake", "/dev/nvidiactl": "", "/dev/nvidia-uvm": ""},
		"wsl":           {"/dev/dxg": "", "/usr/lib/wsl/lib/libnvidia-ml.so.1": ""},
		"wsl-no-driver": {"/dev/dxg": ""},
		"none":          {},
	}
	of, ok := files[kind]
	if !ok {
		t.Fatalf("no machine %q", kind)
	}
	root := t.TempDir()
	for path, text := range of {
		full := filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Operators run doctor when a driver hangs, so doctor must not hang, too.
func TestDoctorOfAHungDriver(t *testing.T) {
	lib := fakeNVML(t)
	if err := (nvmltest.State{"sys": {"hang": "1"}}).Write(lib + ".state"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := (nvmltest.State{}).Write(lib + ".state"); err != nil { // end the hang
			t.Error(err)
		}
	})
	d := diagnosis{source: source{library: lib, stateDir: t.TempDir()}, nomadConfig: "testdata", cudaLibrary: "libnone.so.1", patience: 50 * time.Millisecond}
	d.run()
	var said []string
	for _, f := range d.findings {
		said = append(said, f.Status+" "+f.Check+" "+f.Message)
	}
	for _, want := range []string{"fail gpus listing the GPUs: the driver does not answer within 50ms", "fail cuda "} {
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("findings lack %q:\n%s", want, strings.Join(said, "\n"))
		}
	}
}

// Doctor says where the profile comes from.
func TestDoctorSaysWhereTheProfileComesFrom(t *testing.T) {
	for config, want := range map[string]string{
		"":                              "no profile is set, so measured GPUs are compared only with GPUs of the same model",
		"profile_from_nomad {}":         "comes from Nomad's variables",
		"measure {\n mode = \"off\"\n}": "no profile is set, so measured GPUs are compared only with GPUs of the same model",
	} {
		path := filepath.Join(t.TempDir(), "nomad.hcl")
		if err := os.WriteFile(path, []byte("plugin \"nomad-device-pal\" {\n config {\n"+config+"\n}\n}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		d := diagnosis{self: "/plugins/nomad-device-pal"}
		var err error
		if d.agent, err = readNomadConfig(path); err != nil {
			t.Fatal(err)
		}
		d.configured()
		d.calibration()
		if got := d.findings[0]; got.Status != statusOK || !strings.Contains(got.Message, want) {
			t.Errorf("%q: %+v, want %q", config, got, want)
		}
	}
}

// In a directory, doctor reads the same files as Nomad.
func TestNomadConfigDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.hcl": "plugin_dir = \"/plugins\"\n", "b.json": `{"data_dir": "/data"}`, "notes.txt": "plugin_dir = \"/elsewhere\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := readNomadConfig(dir); err != nil || c.pluginDir != "/plugins" || c.dataDir != "/data" {
		t.Errorf("%+v, %v", c, err)
	}
}

// stateFindings returns what doctor finds about a state directory.
func stateFindings(t *testing.T, dir string) (found string) {
	t.Helper()
	inventory := filepath.Join(t.TempDir(), "gpus.hcl")
	if err := os.WriteFile(inventory, []byte("gpu \"GPU-0\" {\n  model = \"NVIDIA H200\"\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := diagnosis{source: source{inventory: inventory, stateDir: dir}, nomadConfig: "testdata", patience: time.Second}
	d.run()
	for _, f := range d.findings {
		if f.Check == "state" || f.Check == "released" {
			found += fmt.Sprintf("%s %s: %s → %s\n", f.Status, f.Check, f.Message, f.Fix)
		}
	}
	return found
}

// On a full disk, files can be made, but not written.
func TestDoctorOfAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if found := stateFindings(t, dir); !strings.Contains(found, "fail state: state_dir cannot be written: ") || !strings.Contains(found, "make room on the disk") {
		t.Error(found)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if found := stateFindings(t, dir); !strings.HasPrefix(found, "ok state: ") {
		t.Errorf("with room: %s", found)
	}
}

// A state directory that cannot be used holds no order to release the driver, so resume is no
// remedy.
func TestDoctorOfABadStateDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if found := stateFindings(t, path); !strings.HasPrefix(found, "fail state: ") || strings.Contains(found, "released") {
		t.Error(found)
	}
}
