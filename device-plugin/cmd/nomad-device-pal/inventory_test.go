// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/cli"

	"github.com/nomad-pal/nomad-pal/device-plugin/emulated"
	"github.com/nomad-pal/nomad-pal/pal"
)

// The emulated backend can read what the command writes.
func TestWrittenInventoryIsServed(t *testing.T) {
	dir := t.TempDir()
	ui := cli.NewMockUi()
	if code := writeInventory(ui, []string{"-nodes=2", "-gpus=4", "-seed=7", "-outliers=1", "-island=2", "-data=", "-out=" + dir}); code != 0 {
		t.Fatalf("exit code %d: %s", code, ui.ErrorWriter)
	}
	paths := strings.Fields(ui.OutputWriter.String())
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
	dir := t.TempDir()
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-colour"}, 2, "-colour"},
		{[]string{"x"}, 2, `unexpected argument "x"`},
		{[]string{"-data=", "-nodes=2"}, 1, "2 nodes need -out=DIR"},
		{[]string{"-data=", "-outliers=some"}, 1, `-outliers "some": must be none, measured or a number`},
		{[]string{"-data=", "-cluster=x"}, 1, `cluster "x" is unknown`},
		{[]string{"-data=" + dir}, 1, "var_longhorn_resnet.csv"},
	} {
		ui := cli.NewMockUi()
		if code := writeInventory(ui, tc.args); code != tc.code || !strings.Contains(ui.ErrorWriter.String(), tc.want) {
			t.Errorf("%v: exit code %d, %q; want %d, %q", tc.args, code, ui.ErrorWriter, tc.code, tc.want)
		}
	}
}

// The tables and the original measurements give similar clusters.
func TestOriginalMeasurements(t *testing.T) {
	if os.Getenv("PAL_DATA") == "" {
		t.Skip("PAL_DATA is not set: no original measurements to draw from")
	}
	own, original := cli.NewMockUi(), cli.NewMockUi()
	if writeInventory(own, []string{"-data=", "-seed=3"}) != 0 || writeInventory(original, []string{"-seed=3"}) != 0 {
		t.Fatal(own.ErrorWriter, original.ErrorWriter)
	}
	tables, measured := own.OutputWriter.String(), original.OutputWriter.String()
	if tables == measured || strings.Count(tables, "gpu ") != strings.Count(measured, "gpu ") {
		t.Errorf("from the tables:\n%s\nfrom the originals:\n%s", tables, measured)
	}
}
