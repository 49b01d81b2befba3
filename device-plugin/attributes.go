// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// notAvailable is nomad-device-nvidia's word for what it does not know.
const notAvailable = "N/A"

// view is all that the messages to Nomad are made of.
type view struct {
	inv      gpu.Inventory
	verdicts map[string]verdict
	rating   rating
	cfg      VariabilityConfig
	compat   Compat
	accounts map[string]attr.Account // of measuring, by GPU; nil where nothing is measured
}

// groups builds the fingerprint: one group per model, groups and instances
// sorted, because Nomad compares them in order.
func (v *view) groups() []*device.DeviceGroup {
	byModel := map[string][]gpu.Device{}
	for _, d := range v.inv.Devices {
		byModel[modelOf(d)] = append(byModel[modelOf(d)], d)
	}
	out := make([]*device.DeviceGroup, 0, len(byModel))
	for _, m := range slices.Sorted(maps.Keys(byModel)) {
		out = append(out, v.group(m, byModel[m]))
	}
	return out
}

func modelOf(d gpu.Device) string { return cmp.Or(d.Model, notAvailable) }

func (v *view) group(model string, devices []gpu.Device) *device.DeviceGroup {
	g := &device.DeviceGroup{Vendor: attr.Vendor, Type: attr.Type, Name: model}
	for _, d := range devices {
		verdict := v.verdicts[d.ID]
		g.Devices = append(g.Devices, &device.Device{
			ID: d.ID, Healthy: verdict.healthy, HealthDesc: verdict.description(),
			HwLocality: &device.DeviceLocality{PciBusID: d.BusID},
		})
	}
	set := attributes{}
	set.hardware(v.inv, devices, v.compat)
	set.platform(v.inv, devices)
	v.membership(set, devices)
	v.topology(set, devices)
	v.variability(set, devices)
	g.Attributes = set
	return g
}

// attributes collects a group's attributes; absent values are left out.
type attributes map[string]*structs.Attribute

func (a attributes) integer(name string, v *int64, unit string) {
	if v != nil {
		a[name] = structs.NewIntAttribute(*v, unit)
	}
}

func (a attributes) number(name string, v int) { a[name] = structs.NewIntAttribute(int64(v), "") }

func (a attributes) text(name, v string) {
	if v != "" {
		a[name] = structs.NewStringAttribute(v)
	}
}

// list publishes ids and how many of them count.
func (a attributes) list(name string, ids []string, countName string, count int) {
	a[name] = structs.NewStringAttribute(attr.JoinIDs(ids))
	a.number(countName, count)
}

// hardware sets nomad-device-nvidia's nine, with its names and units. Attributes are
// shared by the group: the first device that knows a value speaks for it, as a lost GPU
// knows none.
func (a attributes) hardware(inv gpu.Inventory, ds []gpu.Device, compat Compat) {
	a.integer("memory", first(ds, func(d *gpu.Device) *int64 { return d.MemoryMiB }), structs.UnitMiB)
	a.integer("power", first(ds, func(d *gpu.Device) *int64 { return d.PowerLimitW }), structs.UnitW)
	a.integer("bar1", first(ds, func(d *gpu.Device) *int64 { return d.BAR1MiB }), structs.UnitMiB)
	a.integer("cores_clock", first(ds, func(d *gpu.Device) *int64 { return d.CoresClockMHz }), structs.UnitMHz)
	a.integer("memory_clock", first(ds, func(d *gpu.Device) *int64 { return d.MemoryClockMHz }), structs.UnitMHz)
	a.integer("pci_bandwidth", first(ds, compat.pciBandwidth), structs.UnitMBPerS)
	a.text("driver_version", inv.DriverVersion)
	a.text("display_state", compat.state(first(ds, func(d *gpu.Device) string { return d.DisplayState })))
	a.text("persistence_mode", compat.state(first(ds, func(d *gpu.Device) string { return d.PersistenceMode })))
}

// platform sets what else is constant for a model.
func (a attributes) platform(inv gpu.Inventory, ds []gpu.Device) {
	a.text(attr.Architecture, first(ds, func(d *gpu.Device) string { return d.Architecture }))
	if c := first(ds, func(d *gpu.Device) [2]int { return [2]int{d.ComputeMajor, d.ComputeMinor} }); c[0] > 0 {
		a.number(attr.ComputeMajor, c[0])
		a.number(attr.ComputeMinor, c[1])
	}
	a.integer(attr.SMCount, first(ds, func(d *gpu.Device) *int64 { return positive(d.SMCount) }), "")
	if inv.CUDAMajor > 0 {
		a.number(attr.CUDADriverMajor, inv.CUDAMajor)
		a.number(attr.CUDADriverMinor, inv.CUDAMinor)
	}
	a.text(attr.MIGProfile, first(ds, func(d *gpu.Device) string { return d.MIGProfile }))
	a.text(attr.P2P, first(ds, func(d *gpu.Device) string { return d.P2P }))
	a.text(attr.FabricClique, first(ds, func(d *gpu.Device) string { return d.Clique }))
	a.integer(attr.NVLinkLinks, first(ds, func(d *gpu.Device) *int64 { return positive(d.Links) }), "")
	if ecc := first(ds, func(d *gpu.Device) *bool { return d.ECC }); ecc != nil {
		a[attr.ECC] = structs.NewBoolAttribute(*ecc)
	}
}

// membership sets how many instances there are, and which are unwell.
func (v *view) membership(a attributes, ds []gpu.Device) {
	var degraded, remap []string
	for _, d := range ds {
		if len(v.verdicts[d.ID].degraded) > 0 {
			degraded = append(degraded, d.ID)
		}
		if d.Signals.RemapPending {
			remap = append(remap, d.ID)
		}
	}
	a.number(attr.Count, len(ds))
	a.number(attr.HealthyCount, v.healthy(ids(ds)))
	a.list(attr.Degraded, degraded, attr.DegradedCount, len(degraded))
	a.list(attr.RemapPending, remap, attr.RemapPendingCount, len(remap))
	if n := len(v.inv.Hidden); n > 0 {
		var all []string
		for _, h := range v.inv.Hidden {
			all = append(all, h.String())
		}
		a.text(attr.Hidden, strings.Join(all, "; "))
		a.number(attr.HiddenCount, n)
	}
}

// topology lists who is near whom.
func (v *view) topology(a attributes, ds []gpu.Device) {
	a.lists(ds, func(d *gpu.Device) int { return d.NUMANode }, attr.NUMA, attr.NUMACount)
	a.lists(ds, func(d *gpu.Device) int { return d.Island }, attr.Island, attr.IslandCount)
	a.lists(ds, func(d *gpu.Device) int { return d.PCIeSwitch }, attr.PCIeSwitch, attr.PCIeSwitchCount)
}

// lists publishes one list per number that a device can have; -1 is none.
func (a attributes) lists(ds []gpu.Device, number func(*gpu.Device) int, name, count func(int) string) {
	members := map[int][]string{}
	for i := range ds {
		if n := number(&ds[i]); n >= 0 {
			members[n] = append(members[n], ds[i].ID)
		}
	}
	for n, ids := range members {
		a.list(name(n), ids, count(n), len(ids))
	}
}

// variability publishes classes, scores and raw times. Every list is there even
// when empty: Nomad's scheduler cannot take an absent one.
func (v *view) variability(a attributes, ds []gpu.Device) {
	for k := 1; k <= profile.MaxClass; k++ {
		for _, c := range v.cfg.AppClasses {
			members := v.members(ds, c, k)
			a.list(attr.List(c, k), members, attr.ListCount(c, k), v.healthy(members))
		}
		members := v.members(ds, v.cfg.Default, k)
		a.list(attr.DefaultList(k), members, attr.DefaultListCount(k), v.healthy(members))
	}
	group := ids(ds)
	var measured []attr.Measurement
	for _, m := range v.rating.measured {
		if slices.Contains(group, m.GPU) {
			measured = append(measured, m)
		}
	}
	a.text(attr.Raw, attr.FormatMeasurements(measured))
	a.text(attr.Scores, attr.FormatMeasurements(v.rating.scores(group)))
	accounts := map[string]attr.Account{}
	for _, id := range group {
		if account, ok := v.accounts[id]; ok {
			accounts[id] = account
		}
	}
	a.text(attr.Measuring, attr.FormatAccounts(accounts))
	a.text(attr.Reference, v.rating.reference)
	if v.rating.version > 0 {
		a.number(attr.ProfileVersion, v.rating.version)
	}
}

// members are the devices of class at most k.
func (v *view) members(ds []gpu.Device, c pal.AppClass, k int) []string {
	var out []string
	for _, d := range ds {
		if v.rating.class(d.ID, c, len(v.verdicts[d.ID].degraded) > 0) <= k {
			out = append(out, d.ID)
		}
	}
	return out
}

// healthy counts the healthy devices among ids.
func (v *view) healthy(ids []string) int {
	n := 0
	for _, id := range ids {
		if v.verdicts[id].healthy {
			n++
		}
	}
	return n
}

func ids(ds []gpu.Device) []string {
	out := make([]string, len(ds))
	for i := range ds {
		out[i] = ds[i].ID
	}
	return out
}

// first is the first value that is known of one of the devices.
func first[T comparable](ds []gpu.Device, get func(*gpu.Device) T) T {
	var unknown T
	for i := range ds {
		if v := get(&ds[i]); v != unknown {
			return v
		}
	}
	return unknown
}

func positive(n int) *int64 {
	if n <= 0 {
		return nil
	}
	return new(int64(n))
}
