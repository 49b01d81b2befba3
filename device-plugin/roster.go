// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// roster remembers the GPUs that this node had when the plugin last ran. One
// that the driver does not list when the plugin starts fell off the bus: it is
// published as lost rather than not at all, until it is back, another card is in
// its slot, or the operator clears it.
type roster struct {
	stored    []gpu.Device    // those of them that no scan has listed
	known     map[string]bool // all of them, by id; nil before the first scan
	home      bool            // a scan has listed one of them: this is their host
	forgotten map[string]bool // cleared while they were not listed, by id
}

// complete adds the GPUs that a scan lacks. replaced are those that are not missed
// any more: another GPU is in their slot, or all GPUs are others, as after a move
// of the disk or the virtual machine to another host.
func (r *roster) complete(inv gpu.Inventory) (_ gpu.Inventory, replaced []string) {
	inv.Devices = slices.DeleteFunc(slices.Clone(inv.Devices), func(d gpu.Device) bool {
		gone := r.forgotten[d.ID] || r.forgotten[d.Physical()]
		if !d.Signals.Unlisted { // it is back
			delete(r.forgotten, d.ID)
			delete(r.forgotten, d.Physical())
		}
		return gone && d.Signals.Unlisted
	})
	present, slots := map[string]bool{}, map[string]string{}
	for _, id := range inv.Undivided {
		present[id] = true
	}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		present[d.Physical()] = true
		slots[d.BusID] = d.Physical()
	}
	if r.known == nil {
		r.known = map[string]bool{}
		for i := range r.stored {
			r.known[r.stored[i].Physical()] = true
		}
	}
	for id := range present {
		r.home = r.home || r.known[id]
	}
	stranger := len(present) > 0 && !r.home
	missing := map[string]bool{}
	r.stored = slices.DeleteFunc(r.stored, func(d gpu.Device) bool {
		id := d.Physical()
		other, taken := slots[d.BusID]
		switch {
		case present[id], inv.Complete:
			return true // it is there, perhaps divided in another way
		case stranger, taken && d.BusID != "" && !r.known[other]:
			replaced = append(replaced, id)
			return true
		}
		missing[id] = true
		return false
	})
	// A GPU that is listed and does not say who it is may be the one that is missed.
	signals := gpu.Signals{Lost: true, Unlisted: true}
	if inv.Unidentified >= len(missing) {
		signals = gpu.Signals{Unanswered: true}
	}
	replaced = slices.Compact(replaced) // instances of one GPU
	for _, d := range r.stored {
		d.Signals = signals
		inv.Devices = append(inv.Devices, d)
	}
	gpu.Sort(inv.Devices)
	return inv, replaced
}

// forget drops a GPU, or a MIG instance, for as long as the driver does not list it.
func (r *roster) forget(id string) {
	r.stored = slices.DeleteFunc(r.stored, func(d gpu.Device) bool { return d.ID == id || d.Parent == id })
	r.forgotten[id] = true
}
