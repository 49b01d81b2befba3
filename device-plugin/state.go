// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

// store stores latched faults in state_dir, so that a broken GPU stays unhealthy after a restart of
// the plugin. Without a directory it stores nothing.
type store struct {
	statedir.Dir
	inventory string // the list of GPUs as last saved
}

// stored is the format of the state file.
type stored struct {
	Version int                `json:"version"`
	Latches map[string][]latch `json:"latches"` // by device id
}

const (
	storeVersion = 1
	storeFile    = "state.json"
	// inventoryFile holds the GPUs of the latest scan. If the driver hangs at the plugin's start,
	// these GPUs are published as unhealthy.
	inventoryFile = "inventory.json"
)

func openStore(dir string) *store { return &store{Dir: statedir.Dir(dir)} }

// load returns the stored faults; nothing if there is no file.
func (s *store) load() (stored, error) {
	var st stored
	if found, err := s.Read(storeFile, &st); !found || err != nil {
		return stored{}, err
	}
	if st.Version != storeVersion {
		return stored{}, fmt.Errorf("reading state %q: the file has version %d, but this plugin needs version %d", storeFile, st.Version, storeVersion)
	}
	return st, nil
}

// saveInventory stores the list of GPUs, without their condition, if it has changed.
func (s *store) saveInventory(inv gpu.Inventory) error {
	if s.Dir == "" {
		return nil
	}
	inv.Warnings = nil
	inv.Boot = ""
	inv.DriverLoad = ""
	inv.Hidden, inv.Complete = nil, false
	inv.Devices = slices.Clone(inv.Devices)
	for i := range inv.Devices {
		d := &inv.Devices[i]
		d.Place.Remembered = d.Place.Remembered || d.Signals.Unlisted
		d.Signals = gpu.Signals{}
		d.Unusable = ""
		d.Measured.Key = ""
		d.Measured.Times = nil
		d.Measured.Rates = nil
	}
	data, err := json.MarshalIndent(inv, "", "  ")
	if err != nil {
		return fmt.Errorf("writing state %q: %w", inventoryFile, err)
	}
	if string(data) == s.inventory {
		return nil
	}
	if err := s.Replace(inventoryFile, data); err != nil {
		return err
	}
	s.inventory = string(data)
	return nil
}

// loadInventory returns the stored GPUs of the latest scan, all marked as not answering.
func (s *store) loadInventory() (gpu.Inventory, error) {
	var inv gpu.Inventory
	if _, err := s.Read(inventoryFile, &inv); err != nil {
		return gpu.Inventory{}, err
	}
	for i := range inv.Devices {
		inv.Devices[i].Signals, inv.Devices[i].Place.Remembered = gpu.Signals{Unanswered: true}, true
	}
	return inv, nil
}

// restore takes the stored latches.
func (h *health) restore(kept stored) {
	for id, latches := range kept.Latches {
		h.record(id).latches = latches
	}
}

// kept returns the data to store: the latched faults.
func (h *health) kept() stored {
	st := stored{Version: storeVersion, Latches: map[string][]latch{}}
	for id, r := range h.records {
		if len(r.latches) > 0 {
			st.Latches[id] = r.latches
		}
	}
	return st
}

// clear removes the latched faults of a device, or of all MIG instances of a GPU, and their missing
// NVLinks. clear also removes a device that the driver no longer lists. Callers hold mu.
func (p *Plugin) clear(id string) {
	known := p.health.clear(id)
	for _, d := range p.named(id) {
		known = true
		p.health.clear(d)
	}
	if !known {
		p.log.Warn("cannot clear the faults of a GPU: the GPU in the order is unknown", "gpu", id)
		return
	}
	p.roster.forget(id)
	p.log.Info("the operator cleared the faults that the plugin remembered", "gpu", id)
}

// named returns the devices that an id names, sorted: the device itself, or the MIG
// instances of a GPU. Callers hold mu.
func (p *Plugin) named(id string) (found []string) {
	for _, d := range p.view.inv.Devices {
		if d.Is(id) {
			found = append(found, d.ID)
		}
	}
	return found
}

// wholeGPU returns all devices of the GPU that has a device. Callers hold mu.
func (p *Plugin) wholeGPU(id string) []string {
	for _, d := range p.view.inv.Devices {
		if d.ID == id {
			return p.named(d.Physical())
		}
	}
	return p.named(id)
}

// StoredDevices returns the GPUs and MIG instances that the plugin with this state directory last
// published. StoredDevices returns an error if no plugin has used the directory.
func StoredDevices(dir string) ([]gpu.Device, error) {
	var inv gpu.Inventory
	found, err := statedir.Dir(dir).Read(inventoryFile, &inv)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("reading state: no plugin has stored its GPUs in %q: is this the plugin's state_dir?", dir)
	}
	return inv.Devices, nil
}

// MissingGPUs returns the sorted ids of GPUs in the stored list that a scan did not find.
func MissingGPUs(dir string, inv gpu.Inventory) ([]string, error) {
	before, err := openStore(dir).loadInventory()
	if err != nil {
		return nil, err
	}
	r := roster{stored: before.Devices, forgotten: map[string]bool{}}
	r.complete(inv)
	return ids(r.stored), nil
}

// LatchedFaults returns the stored health reasons by GPU id, from a state directory. LatchedFaults
// leaves out reasons from before the last boot of the machine or the last load of the driver.
func LatchedFaults(dir string, inv gpu.Inventory) (map[string]string, error) {
	kept, err := openStore(dir).load()
	h := newHealth()
	h.restore(kept)
	h.boot, h.load = inv.Boot, inv.DriverLoad
	out := map[string]string{}
	for id, r := range h.records {
		r.latches = slices.DeleteFunc(r.latches, func(l latch) bool { return h.void(l) })
		reason := r.fault(gpu.Signals{}, HealthConfig{})
		if reason != "" {
			out[id] = reason
		}
	}
	return out, err
}

// event applies an Xid to the device that the event names. If the event names a GPU with MIG
// instances, the Xid applies to all of them. Callers hold mu.
func (p *Plugin) event(now time.Time, e gpu.Event) {
	hit := p.named(e.GPU)
	if len(hit) == 0 {
		hit = []string{e.GPU} // no scan has listed the device yet
	}
	for _, id := range hit {
		p.health.event(now, id, e.Xid, p.cfg.Health)
		p.said.xid(now, id, e.Xid, p.health.record(id).xidCount)
	}
	if judgeXid(e.Xid, p.cfg.Health) == xidContained {
		for _, id := range p.wholeGPU(e.GPU) {
			p.health.contain(now, id)
		}
	}
	p.judge()
}
