// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/hcl/v2"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/conformance"
	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

// configured decodes the plugin's block in Nomad's configuration, and sets the options that no flag
// has set. Without a valid block, the defaults apply.
func (d *diagnosis) configured() {
	d.cfg = deviceplugin.DefaultConfig()
	for _, b := range d.agent.blocks {
		if b.Name != d.blockName() {
			continue
		}
		d.hasBlock = true
		cfg, err := decode(b.Config)
		d.blockErr = err
		if err == nil {
			d.cfg = cfg
		}
	}
	if d.cfg.Backend == "emulated" && d.library == "" {
		d.inventory = cmp.Or(d.inventory, d.cfg.Inventory)
	}
	d.stateless = d.stateDir == "" && d.cfg.StateDir == ""
	d.stateDir = cmp.Or(d.stateDir, d.cfg.StateDir, deviceplugin.DefaultStateDir)
	d.ignored = d.cfg.IgnoredGPUIDs
	d.library, d.cudaLibrary = cmp.Or(d.library, d.cfg.NVMLLibrary), cmp.Or(d.cudaLibrary, d.cfg.Measure.CUDALibrary)
}

// decode decodes the config block of the plugin as Nomad's agent and the plugin do.
func decode(block map[string]any) (deviceplugin.Config, error) {
	if block == nil {
		block = map[string]any{} // the block has no config
	}
	text, err := json.Marshal(block)
	if err != nil {
		return deviceplugin.Config{}, err
	}
	data, err := conformance.EncodeJSON(deviceplugin.ConfigSchema(), text)
	diags := (hcl.Diagnostics)(nil)
	if errors.As(err, &diags) {
		err = errors.New(diags[0].Detail) // the diagnostic's line numbers are not line numbers of the file
	}
	if err != nil {
		return deviceplugin.Config{}, err
	}
	return deviceplugin.DecodeConfig(data)
}

// block reports whether Nomad's agent starts with this plugin's block.
func (d *diagnosis) block() {
	switch {
	case !d.hasBlock:
		return
	case d.blockErr != nil:
		d.add(statusFail, "config", d.blockErr.Error(), "fix the plugin block, because Nomad's agent does not start with an invalid block")
		return
	}
	d.add(statusOK, "config", "the plugin accepts its configuration block", "")
	if d.inv == nil {
		return
	}
	for _, problem := range deviceplugin.SharingProblems(d.cfg.Sharing, *d.inv) {
		d.add(statusFail, "sharing", problem, "fix the sharing block, then restart Nomad's client")
	}
}

// cuda checks that the CUDA driver starts. The plugin measures with this driver.
func (d *diagnosis) cuda() {
	what, err := gpu.Within(d.patience, "starting CUDA", func() (string, error) { return askCUDA(d.cudaLibrary) })
	switch {
	case errors.Is(err, gpu.ErrNoAnswer):
		d.add(statusFail, "cuda", fmt.Sprintf("the CUDA driver %q does not start within %s", d.cudaLibrary, d.patience),
			"look for hung processes on the GPUs (nvidia-smi, dmesg)")
	case err != nil:
		d.add(statusFail, "cuda", err.Error(),
			"GPUs cannot be measured: install the driver's compute libraries, or set measure { mode = \"off\" }")
	default:
		d.add(statusOK, "cuda", what, "")
	}
}

func askCUDA(library string) (string, error) {
	driver, err := cuda.Open(library)
	if err != nil {
		return "", err
	}
	major, minor, err := driver.Version()
	if err != nil {
		return "", err
	}
	devices, err := driver.Devices()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: CUDA %d.%d, %d GPUs", library, major, minor, len(devices)), nil
}

// books asks Nomad which GPUs are allocated, as the plugin does before it measures a GPU.
func (d *diagnosis) books() {
	var whole []string
	if d.inv != nil {
		for _, g := range d.inv.Devices {
			if g.MIG.Profile == "" && measure.Supported(g) == nil {
				whole = append(whole, g.ID)
			}
		}
	}
	if len(whole) == 0 {
		return
	}
	if _, err := d.cfg.Nomad.Allocated(context.Background(), whole); err != nil {
		d.add(statusWarn, "measure", "the plugin cannot see which GPUs tasks use, so it measures no GPU: "+err.Error(), measure.UnprovenNext)
		return
	}
	d.add(statusOK, "measure", "Nomad reports which GPUs are allocated; the plugin measures the other GPUs while they are idle", "")
}

// state checks the state directory, and compares the list of GPUs in it with the GPUs that the scan
// found.
func (d *diagnosis) state() {
	if d.stateless {
		d.add(statusWarn, "state", "no state_dir is set, so the plugin loses faults, measurements and the list of GPUs at each restart", "set state_dir to a directory that only the plugin uses")
		return
	}
	err := statedir.Dir(d.stateDir).Check()
	if errors.Is(err, fs.ErrNotExist) {
		d.add(statusWarn, "state", "state_dir "+d.stateDir+" does not exist yet", "no action is needed if the plugin runs as root, because the plugin then makes the directory")
		return
	}
	if err != nil {
		d.add(statusFail, "state", err.Error(), "chmod 700 the directory and chown it to the user that Nomad's client runs as; until then the plugin stores no state in this directory")
		return
	}
	err = probe(d.stateDir)
	switch {
	case errors.Is(err, syscall.ENOSPC):
		d.add(statusFail, "state", "state_dir cannot be written: "+err.Error(), "make room on the disk of state_dir; until then, the plugin cannot store changes and loses them when it restarts")
	case err != nil:
		d.add(statusFail, "state", "state_dir cannot be written: "+err.Error(), "run doctor as root, like Nomad's client; if this check still fails, fix the owner and mode of the directory")
	}
	d.missing(err == nil)
	d.latched()
	d.measured()
}

// probe checks that a file can be written to a directory. An empty file fits on a full disk, so
// probe writes as much as a large node's state.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, 64<<10))
	return errors.Join(err, f.Close())
}

// leftAlone reports whether the operator has ordered the plugin to release the driver. Until the
// release ends, doctor must not open the driver.
func (d *diagnosis) leftAlone() bool {
	if d.stateless || statedir.Dir(d.stateDir).Check() != nil { // no order can exist, and the check state reports the cause
		return false
	}
	until, _, err := deviceplugin.ReleasedUntil(d.stateDir, time.Now())
	switch {
	case err != nil:
		d.add(statusWarn, "released", err.Error(), deviceplugin.Order(d.stateDir, "resume"))
	case !until.IsZero():
		d.add(statusWarn, "released", "the driver is released until "+until.Local().Format(moment)+", so the plugin's GPUs are unhealthy in Nomad, and doctor did not check GPUs and CUDA",
			"to end the release: "+deviceplugin.Order(d.stateDir, "resume"))
	}
	return !until.IsZero() && d.inventory == ""
}

// latched reports the faults that the running plugin has latched. A scan does not show latched
// faults.
func (d *diagnosis) latched() {
	if d.inv == nil {
		return
	}
	faults, err := deviceplugin.LatchedFaults(d.stateDir, *d.inv)
	if err != nil {
		d.add(statusWarn, "state", err.Error(), "the plugin starts without this file and writes a new one")
	}
	for _, id := range slices.Sorted(maps.Keys(faults)) {
		d.add(statusFail, "health", id+" is unhealthy: "+faults[id]+", as the plugin remembers", deviceplugin.Remedy(faults[id], id, d.stateDir)+
			"; when this is done: "+deviceplugin.Order(d.stateDir, "clear", id))
	}
}

// measured reports GPUs that the running plugin could not measure or rate.
func (d *diagnosis) measured() {
	troubles, err := measure.Troubles(statedir.Dir(d.stateDir))
	if err != nil {
		d.add(statusWarn, "state", err.Error(), "the plugin starts without this file and measures again")
	}
	for _, id := range slices.Sorted(maps.Keys(troubles)) {
		d.add(statusWarn, "measure", id+" "+troubles[id], "once the cause is fixed: nomad job run jobspecs/measure.nomad.hcl")
	}
}

// missing reports GPUs of the plugin's stored list that the scan did not find.
func (d *diagnosis) missing(writable bool) {
	if d.inv == nil {
		return
	}
	ids, err := deviceplugin.MissingGPUs(d.stateDir, *d.inv)
	if err != nil {
		d.add(statusWarn, "state", err.Error(), "the plugin writes a new list with its next scan")
		return
	}
	for _, id := range ids {
		d.add(statusFail, "state", id+" was present when the plugin last ran, but is missing now", deviceplugin.Remedy("gpu-lost", id, d.stateDir)+
			"; if the GPU was removed on purpose: "+deviceplugin.Order(d.stateDir, "clear", id))
	}
	if len(ids) == 0 && writable {
		d.add(statusOK, "state", "state_dir "+d.stateDir+" is writable, and all GPUs in the stored list are present", "")
	}
}
