// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/cli"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
)

// While the operator has released the driver, no command opens it. Otherwise the operator could
// not reset a GPU, and would look for the cause in the tasks.
func TestNothingOpensAReleasedDriver(t *testing.T) {
	dir := t.TempDir()
	if err := deviceplugin.Release(dir, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	library := "-nvml=" + filepath.Join(dir, "libnothing.so")
	ui := cli.NewMockUi()
	code := fingerprintCommand(ui).Run([]string{library, "-state-dir=" + dir})
	if said := ui.ErrorWriter.String(); code != 1 || !strings.Contains(said, "nomad-device-pal resume") || strings.Contains(said, "libnothing") {
		t.Errorf("fingerprint: exit code %d: %s", code, said)
	}
	var said strings.Builder
	opened := false
	code = measure.Command{Released: released, Stderr: &said, Stdout: &said, Open: func(string) measure.Backend { opened = true; return nil }}.Run([]string{"-state-dir=" + dir})
	if code != 1 || opened || !strings.Contains(said.String(), "nomad-device-pal resume") {
		t.Errorf("measure: exit code %d, opened %v: %s", code, opened, said.String())
	}
	d := diagnosis{source: source{library: filepath.Join(dir, "libnothing.so"), stateDir: dir}, nomadConfig: "testdata", patience: time.Second}
	d.run()
	checks := map[string]string{}
	for _, f := range d.findings {
		checks[f.Check] = f.Status
	}
	if checks["released"] != statusWarn || checks["gpus"] != "" || checks["cuda"] != "" {
		t.Errorf("doctor: %v", d.findings)
	}
}

// A command with an inventory file needs no driver, and an expired order stops no command.
func TestNothingElseIsHeldUp(t *testing.T) {
	dir := t.TempDir()
	if err := deviceplugin.Release(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := released(dir); err != nil {
		t.Errorf("a release that is over: %v", err)
	}
	if err := deviceplugin.Release(dir, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	inventory := filepath.Join(dir, "gpus.hcl")
	if err := os.WriteFile(inventory, []byte("gpu \"GPU-0\" {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ui := cli.NewMockUi()
	if code := fingerprintCommand(ui).Run([]string{"-inventory=" + inventory, "-state-dir=" + dir}); code != 0 {
		t.Errorf("an inventory: %d, %s", code, ui.ErrorWriter)
	}
}
