// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package statedir_test

import (
	"os"
	"path/filepath"
	"slices"
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

// A write that cannot be finished leaves the old file, and nothing beside it.
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
	if ids := statedir.Clear.Take(none); ids != nil {
		t.Errorf("orders %v", ids)
	}
}

func TestOrders(t *testing.T) {
	d := statedir.Dir(t.TempDir())
	for _, id := range []string{"GPU-b", "GPU-a"} {
		if err := statedir.Clear.Give(d, id); err != nil {
			t.Fatal(err)
		}
	}
	if statedir.Measure.Given(d, "GPU-a") || !statedir.Clear.Given(d, "GPU-a") {
		t.Error("orders of one kind are taken for the other")
	}
	if got := statedir.Clear.Take(d); !slices.Equal(got, []string{"GPU-a", "GPU-b"}) {
		t.Errorf("orders %v", got)
	}
	if got := statedir.Clear.Take(d); got != nil {
		t.Errorf("taken twice: %v", got)
	}
	for _, id := range []string{"", "../x", "a/b"} {
		if err := statedir.Measure.Give(d, id); err == nil {
			t.Errorf("an order about %q was given", id)
		}
	}
}
