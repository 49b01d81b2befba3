// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package statedir_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

func TestWriteAndRead(t *testing.T) {
	d := statedir.Dir(filepath.Join(t.TempDir(), "made"))
	var got map[string]int
	if found, err := d.Read("a.json", &got); found || err != nil {
		t.Fatalf("before the first write: found %t, %v", found, err)
	}
	for _, n := range []int{1, 2} {
		if err := d.Write("a.json", map[string]int{"n": n}); err != nil {
			t.Fatal(err)
		}
		if found, err := d.Read("a.json", &got); !found || err != nil || got["n"] != n {
			t.Fatalf("found %t, %v, %v", found, got, err)
		}
	}
	entries, err := os.ReadDir(string(d))
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
}

// A write that fails leaves the old file, and no other file beside it.
func TestFailedWriteLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := statedir.Dir(dir).Replace("taken", []byte("x")); err == nil {
		t.Error("a directory was replaced by a file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || !entries[0].IsDir() {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
}

func TestBadFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.json"), []byte(`{"n": `), 0o644); err != nil {
		t.Fatal(err)
	}
	var got map[string]int
	if _, err := statedir.Dir(dir).Read("a.json", &got); err == nil {
		t.Error("half a file was read")
	}
}

func TestNoDirectory(t *testing.T) {
	none := statedir.Dir("")
	if err := none.Write("a.json", 1); err != nil {
		t.Error(err)
	}
	var got int
	if found, err := none.Read("a.json", &got); found || err != nil {
		t.Errorf("found %t, %v", found, err)
	}
	if ids := none.TakeCleared(); ids != nil {
		t.Errorf("orders %v", ids)
	}
}

func TestOrders(t *testing.T) {
	d := statedir.Dir(t.TempDir())
	for _, id := range []string{"GPU-b", "GPU-a"} {
		if err := d.OrderClear(id); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.TakeCleared(); !slices.Equal(got, []string{"GPU-a", "GPU-b"}) {
		t.Errorf("orders %v", got)
	}
	if got := d.TakeCleared(); got != nil {
		t.Errorf("taken twice: %v", got)
	}
	for _, id := range []string{"", "../x", "a/b"} {
		if err := d.OrderClear(id); err == nil {
			t.Errorf("an order about %q was given", id)
		}
	}
}

// The plugin runs as root: no other user can read its state.
func TestModes(t *testing.T) {
	d := statedir.Dir(filepath.Join(t.TempDir(), "made"))
	if err := d.Write("a.json", 1); err != nil {
		t.Fatal(err)
	}
	if err := d.OrderClear("GPU-a"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{"": 0o700, "a.json": 0o600, "clear-GPU-a": 0o600} {
		st, err := os.Stat(filepath.Join(string(d), path))
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%q: mode %v, %v, want %v", path, st.Mode().Perm(), err, want)
		}
	}
}

// A root process does not trust a directory that others can write to.
func TestOpenDirectoryIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"prepared": statedir.Dir(dir).Prepare(), "written": statedir.Dir(dir).Write("a.json", 1)} {
		if err == nil || !strings.Contains(err.Error(), "other users can write to it (mode 0777)") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
