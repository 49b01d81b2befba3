// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// roster stores the GPUs that this node had when the plugin last ran. A GPU that the driver does
// not list at the start has fallen off the bus. The plugin publishes this GPU as lost until the
// driver lists it, another card is in its slot, or the operator clears the fault. Missing NVLinks
// are handled likewise.
type roster struct {
	stored    []gpu.Device    // stored GPUs that no scan has listed yet
	known     map[string]bool // all stored GPUs, by id; nil before the first scan
	home      bool            // a scan has listed a stored GPU, so the stored GPUs belong to this host
	forgotten map[string]bool // cleared by the operator and not listed since, by id
	linked    map[string]int  // the most NVLinks that each GPU has had, by id
}

// complete adds the missing GPUs to a scan. replaced lists missing GPUs that count as removed. A
// GPU counts as removed if another GPU is in its slot, or if all GPUs are different, for example
// because the disk moved to another host.
func (r *roster) complete(inv gpu.Inventory) (_ gpu.Inventory, replaced []string) {
	inv.Devices = slices.DeleteFunc(slices.Clone(inv.Devices), func(d gpu.Device) bool {
		gone := r.forgotten[d.ID] || r.forgotten[d.Physical()]
		if !d.Signals.Unlisted { // the GPU is back
			delete(r.forgotten, d.ID)
			delete(r.forgotten, d.Physical())
		}
		return gone && d.Signals.Unlisted
	})
	present, slots := map[string]bool{}, map[string]string{}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		present[d.Physical()] = true
		slots[d.Place.BusID] = d.Physical()
	}
	if r.known == nil {
		r.known, r.linked = map[string]bool{}, map[string]int{}
		for i := range r.stored {
			r.known[r.stored[i].Physical()] = true
			r.linked[r.stored[i].ID] = r.stored[i].NVLink.Most
		}
	}
	if !inv.Complete {
		r.missLinks(inv.Devices)
	}
	for id := range present {
		r.home = r.home || r.known[id]
	}
	stranger := len(present) > 0 && !r.home
	missing := map[string]bool{}
	r.stored = slices.DeleteFunc(r.stored, func(d gpu.Device) bool {
		id := d.Physical()
		other, taken := slots[d.Place.BusID]
		switch {
		case present[id], inv.Complete:
			return true // the GPU is there, perhaps divided differently
		case stranger, taken && d.Place.BusID != "" && !r.known[other]:
			replaced = append(replaced, id)
			return true
		}
		missing[id] = true
		return false
	})
	// A listed GPU without an identity may be the missing GPU.
	signals := gpu.Signals{Lost: true, Unlisted: true}
	if inv.Unidentified() >= len(missing) {
		signals = gpu.Signals{Unanswered: true}
	}
	replaced = slices.Compact(replaced) // MIG instances of one GPU
	for _, d := range r.stored {
		d.Signals = signals
		inv.Devices = append(inv.Devices, d)
	}
	gpu.Sort(inv.Devices)
	return inv, replaced
}

// missLinks marks the GPUs that had more NVLinks before.
func (r *roster) missLinks(ds []gpu.Device) {
	for i := range ds {
		d := &ds[i]
		r.linked[d.ID] = max(r.linked[d.ID], d.NVLink.Active)
		d.NVLink.Most = r.linked[d.ID]
		if d.Parent == "" && d.NVLink.Active >= 0 && d.NVLink.Active < d.NVLink.Most {
			d.Signals.NVLinkDown = true
		}
	}
}

// forget drops a GPU or MIG instance, with its NVLinks, until the driver lists it again.
func (r *roster) forget(id string) {
	delete(r.linked, id)
	r.stored = slices.DeleteFunc(r.stored, func(d gpu.Device) bool { return d.Is(id) })
	r.forgotten[id] = true
}
