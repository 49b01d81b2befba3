// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/device-plugin/emulated"
	"github.com/nomad-pal/nomad-pal/pal"
)

// The emulated backend can read what the command writes.
func TestWrittenInventoryIsServed(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	if err := run(&out, []string{"-nodes=2", "-gpus=4", "-seed=7", "-outliers=1", "-island=2", "-out=" + dir}); err != nil {
		t.Fatal(err)
	}
	paths := strings.Fields(out.String())
	if len(paths) != 2 || paths[1] != filepath.Join(dir, "node-01.hcl") {
		t.Fatalf("files %q", paths)
	}
	slow := 0
	for _, path := range paths {
		b := emulated.Open(path)
		defer b.Close()
		inv, err := b.Scan()
		if err != nil || len(inv.Devices) != 4 {
			t.Fatalf("%s: %d devices, %v", path, len(inv.Devices), err)
		}
		for _, d := range inv.Devices {
			if d.Model != "Tesla V100-SXM2-16GB" || d.Key != "longhorn/emulated" || len(d.Times) != pal.NumClasses {
				t.Errorf("%s: %+v", path, d)
			}
			if d.Times[pal.ClassA] > 1.5*117.81 {
				slow++
			}
		}
	}
	if slow != 1 {
		t.Errorf("%d outliers, want 1", slow)
	}
}

func TestInventoryErrors(t *testing.T) {
	for arg, want := range map[string]string{
		"-nodes=2":       "2 nodes need -out=DIR",
		"-outliers=some": `-outliers "some": must be none, measured or a number`,
		"-cluster=x":     `cluster "x" is unknown`,
	} {
		if err := run(io.Discard, []string{arg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}
