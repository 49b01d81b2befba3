// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// store keeps latched faults in state_dir, so that a restart of the plugin does
// not make a broken GPU healthy. Without a directory it keeps nothing.
type store struct {
	dir       string
	inventory string // as saved last
}

// stored is the form of the state file.
type stored struct {
	Version int                `json:"version"`
	Latches map[string][]latch `json:"latches"` // by device id
}

const (
	storeVersion = 1
	storeFile    = "state.json"
	clearDir     = "clear"
	// inventoryFile holds the GPUs of the last scan: should the driver hang when
	// the plugin starts, they are published as unhealthy rather than not at all.
	inventoryFile = "inventory.json"
)

func openStore(dir string) *store { return &store{dir: dir} }

// load returns the stored latches; nil when there are none.
func (s *store) load() (map[string][]latch, error) {
	if s.dir == "" {
		return nil, nil
	}
	path := filepath.Join(s.dir, storeFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading state: %w", err)
	}
	var st stored
	if err := json.Unmarshal(data, &st); err != nil {
		return nil, fmt.Errorf("reading state %q: %w", path, err)
	}
	if st.Version != storeVersion {
		return nil, fmt.Errorf("reading state %q: version %d is not %d", path, st.Version, storeVersion)
	}
	return st.Latches, nil
}

// save replaces the file in one step.
func (s *store) save(latches map[string][]latch) error {
	if s.dir == "" {
		return nil
	}
	data, err := json.MarshalIndent(stored{storeVersion, latches}, "", "  ")
	if err != nil {
		return fmt.Errorf("writing state: %w", err)
	}
	return s.replace(storeFile, append(data, '\n'))
}

// replace writes a file of the directory in one step.
func (s *store) replace(name string, data []byte) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("writing state: %w", err)
	}
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return fmt.Errorf("writing state: %w", err)
	}
	return os.Rename(path+".new", path)
}

// saveInventory keeps what GPUs there are, without their condition, if that is
// news.
func (s *store) saveInventory(inv gpu.Inventory) error {
	if s.dir == "" {
		return nil
	}
	inv.Warnings, inv.Boot, inv.DriverLoad = nil, "", ""
	inv.Devices = slices.Clone(inv.Devices)
	for i := range inv.Devices {
		d := &inv.Devices[i]
		d.Signals, d.Key, d.Times = gpu.Signals{}, "", nil
	}
	data, err := json.MarshalIndent(inv, "", "  ")
	if err != nil {
		return fmt.Errorf("writing state: %w", err)
	}
	if string(data) == s.inventory {
		return nil
	}
	s.inventory = string(data)
	return s.replace(inventoryFile, data)
}

// loadInventory returns the GPUs that were there last, all as not answering.
func (s *store) loadInventory() (gpu.Inventory, error) {
	var inv gpu.Inventory
	if s.dir == "" {
		return inv, nil
	}
	path := filepath.Join(s.dir, inventoryFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return inv, nil
	}
	if err != nil {
		return inv, fmt.Errorf("reading state: %w", err)
	}
	if err := json.Unmarshal(data, &inv); err != nil {
		return gpu.Inventory{}, fmt.Errorf("reading state %q: %w", path, err)
	}
	for i := range inv.Devices {
		inv.Devices[i].Signals = gpu.Signals{Unanswered: true}
	}
	return inv, nil
}

// cleared returns the ids that the operator asked to clear, sorted, and takes
// the orders away.
func (s *store) cleared() []string {
	if s == nil || s.dir == "" {
		return nil
	}
	dir := filepath.Join(s.dir, clearDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var ids []string
	for _, e := range entries {
		if os.Remove(filepath.Join(dir, e.Name())) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

// OrderClear tells the plugin that uses dir as its state_dir to forget the
// latched faults of a device.
func OrderClear(dir, id string) error {
	if id == "" || filepath.Base(id) != id {
		return fmt.Errorf("device id %q is not a UUID", id)
	}
	orders := filepath.Join(dir, clearDir)
	if err := os.MkdirAll(orders, 0o755); err != nil {
		return fmt.Errorf("ordering to clear %q: %w", id, err)
	}
	return os.WriteFile(filepath.Join(orders, id), nil, 0o644)
}

// restore puts stored latches back.
func (h *health) restore(kept map[string][]latch) {
	for id, latches := range kept {
		h.record(id).latches = latches
	}
}

// latches are all latched faults by device.
func (h *health) latches() map[string][]latch {
	out := map[string][]latch{}
	for id, r := range h.records {
		if len(r.latches) > 0 {
			out[id] = r.latches
		}
	}
	return out
}

// event applies an Xid to the device it names, or to all MIG instances of the
// GPU it names. Callers hold mu.
func (p *Plugin) event(now time.Time, e gpu.Event) {
	hit := []string{}
	for i := range p.view.inv.Devices {
		d := &p.view.inv.Devices[i]
		if d.ID == e.GPU || d.Parent == e.GPU {
			hit = append(hit, d.ID)
		}
	}
	if len(hit) == 0 {
		hit = []string{e.GPU} // not scanned yet
	}
	sort.Strings(hit)
	for _, id := range hit {
		p.log.Warn("GPU reported an error", "gpu", id, "xid", e.Xid)
		p.health.event(now, id, e.Xid, p.cfg.Health)
	}
	p.judge()
}
