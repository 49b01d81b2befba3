// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"fmt"
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

// notAvailable is the text that nomad-device-nvidia publishes for an unknown value.
const notAvailable = "N/A"

// view is the data from which the plugin builds its messages to Nomad.
type view struct {
	inv      gpu.Inventory
	verdicts map[string]verdict
	rating   rating
	accounts map[string]attr.Account // state of measuring each GPU; nil if nothing is measured
	forms    map[string]form         // forms of the devices that are published in parts
	unkept   map[string]error        // why something cannot be stored, by the consequence
}

// instance is what Nomad allocates: a device, or a part of one.
type instance struct {
	id string
	gpu.Device
}

// instances returns the instances of a device.
func (v *view) instances(d gpu.Device) []instance {
	var out []instance
	for _, id := range v.forms[d.ID].instances(d.ID) {
		out = append(out, instance{id, d})
	}
	return out
}

// groups builds the fingerprint: one group per model and form. Groups and instances are sorted,
// because Nomad compares them in order.
func (v *view) groups() []*device.DeviceGroup {
	type key struct{ name, kind string }
	all := map[key][]gpu.Device{}
	for _, d := range v.inv.Devices {
		kind, name := v.forms[d.ID].group(modelOf(d))
		all[key{name, kind}] = append(all[key{name, kind}], d)
	}
	out := make([]*device.DeviceGroup, 0, len(all))
	for k, devices := range all {
		out = append(out, v.group(k.kind, k.name, devices))
	}
	slices.SortFunc(out, func(a, b *device.DeviceGroup) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
	})
	return out
}

func modelOf(d gpu.Device) string { return cmp.Or(d.Model, notAvailable) }

func (v *view) group(kind, name string, devices []gpu.Device) *device.DeviceGroup {
	g := &device.DeviceGroup{Vendor: attr.Vendor, Type: kind, Name: name}
	var all []instance
	for _, d := range devices {
		all = append(all, v.instances(d)...)
	}
	for _, in := range all {
		verdict := v.verdicts[in.ID]
		g.Devices = append(g.Devices, &device.Device{
			ID: in.id, Healthy: verdict.healthy, HealthDesc: verdict.description(),
			HwLocality: &device.DeviceLocality{PciBusID: in.Place.BusID},
		})
	}
	set := attributes{}
	set.hardware(v.inv, devices)
	set.platform(v.inv, devices)
	set.sharing(v.forms[devices[0].ID], devices)
	v.membership(set, all)
	set.indexes(devices)
	v.topology(set, all)
	v.variability(set, all, devices)
	g.Attributes = set
	return g
}

// attributes are the attributes of one group, without unknown values.
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

// list sets two attributes: name to the ids, and countName to the count.
func (a attributes) list(name string, ids []string, countName string, count int) {
	a[name] = structs.NewStringAttribute(attr.JoinIDs(ids))
	a.number(countName, count)
}

// hardware sets the nine attributes of nomad-device-nvidia, with the same names and units. Each
// value comes from the first device that has the value, because a lost GPU has none.
func (a attributes) hardware(inv gpu.Inventory, ds []gpu.Device) {
	a.integer("memory", first(ds, func(d *gpu.Device) *int64 { return d.MemoryMiB }), structs.UnitMiB)
	a.integer("power", first(ds, func(d *gpu.Device) *int64 { return d.PowerLimitW }), structs.UnitW)
	a.integer("bar1", first(ds, func(d *gpu.Device) *int64 { return d.BAR1MiB }), structs.UnitMiB)
	a.integer("cores_clock", first(ds, func(d *gpu.Device) *int64 { return d.CoresClockMHz }), structs.UnitMHz)
	a.integer("memory_clock", first(ds, func(d *gpu.Device) *int64 { return d.MemoryClockMHz }), structs.UnitMHz)
	a.integer("pci_bandwidth", first(ds, pciBandwidth), structs.UnitMBPerS)
	a.text("driver_version", inv.DriverVersion)
	a.text("display_state", first(ds, func(d *gpu.Device) string { return d.DisplayState }))
	a.text("persistence_mode", first(ds, func(d *gpu.Device) string { return d.PersistenceMode }))
}

// pciBandwidth returns the published PCIe bandwidth of a device; nil if unknown. For generations 3
// and 4, nomad-device-nvidia rounds up. Existing jobs may require its value, so pciBandwidth
// returns at least this value.
func pciBandwidth(d *gpu.Device) *int64 {
	perLane := map[int]int64{3: 1024, 4: 2048}
	theirs := int64(d.PCI.Width) * perLane[d.PCI.Generation]
	if d.PCI.BandwidthMBPerS != nil && theirs > *d.PCI.BandwidthMBPerS {
		return &theirs
	}
	return d.PCI.BandwidthMBPerS
}

// platform sets the other attributes that are the same for all GPUs of a model.
func (a attributes) platform(inv gpu.Inventory, ds []gpu.Device) {
	a.text(attr.Architecture, first(ds, func(d *gpu.Device) string { return d.Chip.Architecture }))
	c := first(ds, func(d *gpu.Device) [2]int { return [2]int{d.Chip.ComputeMajor, d.Chip.ComputeMinor} })
	if c[0] > 0 {
		a.number(attr.ComputeMajor, c[0])
		a.number(attr.ComputeMinor, c[1])
	}
	if inv.CUDAMajor > 0 {
		a.number(attr.CUDADriverMajor, inv.CUDAMajor)
		a.number(attr.CUDADriverMinor, inv.CUDAMinor)
	}
	a.text(attr.MIGProfile, first(ds, func(d *gpu.Device) string { return d.MIG.Profile }))
	a.text(attr.FabricClique, first(ds, func(d *gpu.Device) string { return d.NVLink.Clique }))
}

// sharing sets the attributes of a group of GPU parts. A part's memory is its share of the GPU's
// memory, but time slicing does not enforce this limit.
func (a attributes) sharing(f form, ds []gpu.Device) {
	if !f.shared() {
		return
	}
	a.text(attr.Sharing, string(f.Mode))
	a.number(attr.Replicas, f.Replicas)
	total := first(ds, func(d *gpu.Device) *int64 { return d.MemoryMiB })
	if total != nil {
		a.integer("memory", new(*total/int64(f.Replicas)), structs.UnitMiB)
		a.integer(attr.MemoryTotal, total, structs.UnitMiB)
	}
}

// membership publishes how many instances there are, how many of them are healthy, and which are
// degraded. membership also publishes the hidden GPUs, and which data the plugin cannot store.
func (v *view) membership(a attributes, all []instance) {
	var degraded []string
	for _, in := range all {
		if len(v.verdicts[in.ID].degraded) > 0 {
			degraded = append(degraded, in.id)
		}
	}
	a.number(attr.Count, len(all))
	a.number(attr.HealthyCount, v.healthy(all))
	a.list(attr.Degraded, degraded, attr.DegradedCount, len(degraded))
	var hidden []string
	for _, h := range v.inv.Hidden {
		hidden = append(hidden, h.String())
	}
	a.text(attr.Hidden, strings.Join(hidden, "; "))
	var unkept []string
	for _, what := range slices.Sorted(maps.Keys(v.unkept)) {
		unkept = append(unkept, fmt.Sprintf("%s: %v", what, v.unkept[what]))
	}
	a.text(attr.Unkept, strings.Join(unkept, "; "))
}

// indexes publishes nvidia-smi's numbers of the devices, as far as they are known.
func (a attributes) indexes(ds []gpu.Device) {
	numbers := map[string]int{}
	for _, d := range ds {
		if d.Slot().Index != nil {
			numbers[d.ID] = d.Place.Index
		}
	}
	a.text(attr.Indexes, attr.FormatIndexes(numbers))
}

// topology publishes which instances are close to each other.
func (v *view) topology(a attributes, all []instance) {
	a.lists(all, func(d *gpu.Device) int { return d.Place.NUMANode }, attr.NUMA, attr.NUMACount)
	a.lists(all, func(d *gpu.Device) int { return d.NVLink.Island }, attr.Island, attr.IslandCount)
}

// lists calls number for the device of each instance, and publishes one list of instances per
// result. Devices with the result -1 are in no list.
func (a attributes) lists(all []instance, number func(*gpu.Device) int, name, count func(int) string) {
	members := map[int][]string{}
	for i := range all {
		n := number(&all[i].Device)
		if n >= 0 {
			members[n] = append(members[n], all[i].id)
		}
	}
	for n, ids := range members {
		a.list(name(n), ids, count(n), len(ids))
	}
}

// variability publishes classes, scores and raw times. A class is published as a list of instances,
// for constraints. Scores and times are per GPU. Empty lists are published too, because Nomad's
// scheduler needs the attribute.
func (v *view) variability(a attributes, all []instance, gpus []gpu.Device) {
	list := func(name string, c pal.AppClass, k int, count string) {
		members := v.members(all, c, k)
		a.list(name, instanceIDs(members), count, v.healthy(members))
	}
	for k := 1; k <= profile.MaxClass; k++ {
		for _, c := range pal.AppClasses() {
			list(attr.List(c, k), c, k, attr.ListCount(c, k))
		}
	}
	var measured, rates []attr.Measurement
	accounts := map[string]attr.Account{}
	for _, d := range gpus {
		if len(d.Measured.Times) > 0 {
			measured = append(measured, measurementOf(d))
		}
		if len(d.Measured.Rates) > 0 {
			rates = append(rates, attr.Measurement{GPU: d.ID, Times: d.Measured.Rates})
		}
		if account, ok := v.accounts[d.ID]; ok {
			accounts[d.ID] = account
		}
	}
	a.text(attr.Raw, attr.FormatMeasurements(measured))
	a.text(attr.Rates, attr.FormatMeasurements(rates))
	a.text(attr.Scores, attr.FormatMeasurements(v.rating.scores(ids(gpus))))
	a.text(attr.Measuring, attr.FormatAccounts(accounts))
	a.text(attr.Reference, v.rating.reference)
	if v.rating.version > 0 {
		a.number(attr.ProfileVersion, v.rating.version)
	}
}

// members returns the instances whose class is k or better.
func (v *view) members(all []instance, c pal.AppClass, k int) []instance {
	var out []instance
	for _, in := range all {
		if v.rating.class(in.ID, c, len(v.verdicts[in.ID].degraded) > 0) <= k {
			out = append(out, in)
		}
	}
	return out
}

// healthy returns the number of healthy instances.
func (v *view) healthy(all []instance) int {
	n := 0
	for _, in := range all {
		if v.verdicts[in.ID].healthy {
			n++
		}
	}
	return n
}

func instanceIDs(all []instance) []string {
	out := make([]string, len(all))
	for i := range all {
		out[i] = all[i].id
	}
	return out
}

func ids(ds []gpu.Device) []string {
	out := make([]string, len(ds))
	for i := range ds {
		out[i] = ds[i].ID
	}
	return out
}

// first returns the first known value among the devices, or the zero value.
func first[T comparable](ds []gpu.Device, get func(*gpu.Device) T) T {
	var unknown T
	for i := range ds {
		v := get(&ds[i])
		if v != unknown {
			return v
		}
	}
	return unknown
}
