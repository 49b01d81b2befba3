// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

// An upgrade of the driver's package replaces the library while the plugin runs. The next scan sees
// it: new programs cannot use the GPUs until the new driver is loaded. A new file of the loaded
// driver's version changes nothing.
func TestLibraryIsReplaced(t *testing.T) {
	if library == "" {
		t.Skip("gcc is not installed: no library to play the driver")
	}
	root, dir := sysRoot(t), t.TempDir()
	path := filepath.Join(dir, "libnvidia-ml.so.1")
	install := func(version string) {
		t.Helper()
		data, err := os.ReadFile(library)
		if err != nil {
			t.Fatal(err)
		}
		real := filepath.Join(dir, "libnvidia-ml.so."+version)
		_ = os.Remove(path)
		_ = os.Remove(real) // as a package manager does, so that the file is a new one
		if err := os.WriteFile(real, data, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(real, path); err != nil {
			t.Fatal(err)
		}
	}
	module := filepath.Join(root, "sys/module/nvidia")
	if err := os.MkdirAll(module, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(module, "version"), []byte("580.159.04\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	install("580.159.04")
	state := filepath.Join(dir, "state")
	if err := nvmltest.H200(2).Write(state); err != nil {
		t.Fatal(err)
	}
	t.Setenv(nvmltest.EnvState, state)
	b := Open(Options{Library: path, Root: root})
	t.Cleanup(b.Close)
	expect := func(when, want string) {
		t.Helper()
		inv, err := b.Scan()
		if err != nil || len(inv.Devices) != 2 {
			t.Fatalf("%s: %d GPUs, %v", when, len(inv.Devices), err)
		}
		for _, d := range inv.Devices {
			if d.Unusable != want {
				t.Errorf("%s: %s is unusable for the reason %q, want %q", when, d.ID, d.Unusable, want)
			}
		}
	}
	expect("at first", "")
	install("580.159.04")
	expect("after the same package was installed again", "")
	install("590.44.01")
	expect("after an upgrade", gpu.LibraryReplaced)
	install("580.159.04")
	expect("after the upgrade was taken back", "")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("without a library", gpu.LibraryReplaced)
}
