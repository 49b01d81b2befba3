// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
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
	if code := writeInventory(ui, []string{"-nodes=2", "-gpus=4", "-seed=7", "-outliers=1", "-island=2", "-out=" + dir}); code != 0 {
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
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-colour"}, 2, "-colour"},
		{[]string{"x"}, 2, `unexpected argument "x"`},
		{[]string{"-nodes=2"}, 1, "2 nodes need -out=DIR"},
		{[]string{"-outliers=some"}, 1, `-outliers "some": must be none, measured or a number`},
		{[]string{"-cluster=x"}, 1, `cluster "x" is unknown`},
	} {
		ui := cli.NewMockUi()
		if code := writeInventory(ui, tc.args); code != tc.code || !strings.Contains(ui.ErrorWriter.String(), tc.want) {
			t.Errorf("%v: exit code %d, %q; want %d, %q", tc.args, code, ui.ErrorWriter, tc.code, tc.want)
		}
	}
}
