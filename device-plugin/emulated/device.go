// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package emulated

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Faults that do more than set a signal of the GPU.
const (
	faultLost       = "lost"        // the driver lost the GPU
	faultHang       = "hang"        // calls for this GPU do not return
	faultHangDriver = "hang-driver" // no driver call returns, for any GPU
	faultThermal    = "thermal"     // hardware thermal slowdown
	faultBrake      = "power-brake"
)

// faults are all values of the fault key, with the signal that each sets.
var faults = []struct {
	name string
	set  func(*gpu.Signals)
}{
	{faultLost, func(s *gpu.Signals) { s.Lost = true }},
	{"reset", func(s *gpu.Signals) { s.ResetRequired = true }},
	{faultHang, func(s *gpu.Signals) { s.Unanswered = true }},
	{faultHangDriver, func(*gpu.Signals) {}},
	{"remap", func(s *gpu.Signals) { s.RemapFailed = true }},
	{"fabric", func(s *gpu.Signals) { s.CUDARefused = true }},
	{"nvlink", func(s *gpu.Signals) { s.NVLinkDown = true }},
	{faultThermal, func(s *gpu.Signals) { s.ThermalSlowdown = true }},
	{faultBrake, func(s *gpu.Signals) { s.PowerBrake = true }},
	{"pcie", func(s *gpu.Signals) { s.PCIeDegraded = true }},
}

// device builds one GPU from its fields. why describes the first mistake in the fields, or is "".
func device(id string, f fields, index int) (d gpu.Device, why string) {
	d = gpu.Device{
		ID: id, Parent: or(f.Parent, ""), Model: or(f.Model, "NVIDIA H200"), MIG: gpu.MIG{Profile: or(f.MIGProfile, "")},
		Chip: gpu.Chip{
			Architecture: or(f.Architecture, "hopper"), ComputeMajor: or(f.ComputeMajor, 9), ComputeMinor: or(f.ComputeMinor, 0),
		},
		Place: gpu.Place{
			Index: index, Minor: index, BusID: strings.ToLower(or(f.BusID, fmt.Sprintf("0000:%02x:00.0", 0x10+index))), NUMANode: or(f.NUMA, -1),
		},
		NVLink:         gpu.NVLink{Island: or(f.Island, -1), Clique: or(f.Clique, "")},
		MemoryMiB:      new(or(f.MemoryMiB, 143771)),
		PowerLimitW:    new(or(f.PowerLimitW, 700)),
		BAR1MiB:        new(or(f.BAR1MiB, 262144)),
		CoresClockMHz:  new(or(f.CoresClockMHz, 1980)),
		MemoryClockMHz: new(or(f.MemoryClockMHz, 3201)),
		PCI:            gpu.PCI{BandwidthMBPerS: new(or(f.PCIMBPerS, 63008))},
		DisplayState:   "Disabled", PersistenceMode: "Enabled",
		Measured: gpu.Measured{Key: or(f.Key, "")},
	}
	if d.MIG.Profile != "" && !strings.Contains(d.Model, " MIG ") {
		d.Model += " MIG " + d.MIG.Profile // as NVML names MIG instances
	}
	d.Measured.Times, why = byClass("times", f.Times)
	if why != "" {
		return d, why
	}
	d.Measured.Rates, why = byClass("rates", f.Rates)
	if why != "" {
		return d, why
	}
	if d.Model == "" {
		return d, "the model is empty"
	}
	if strings.ContainsAny(d.Measured.Key, " ;=") {
		return d, fmt.Sprintf("key %q holds a space, ';' or '='", d.Measured.Key)
	}
	if strings.ContainsAny(id, " ;,=") {
		return d, "the id contains a space, ';', ',' or '='"
	}
	if attr.GPUOf(id) != id {
		return d, "the id contains \"::\", which numbers the parts of a shared GPU"
	}
	if d.Measured.Key == "" && len(d.Measured.Times) > 0 {
		d.Measured.Key = fmt.Sprintf("emulated/%dW", *d.PowerLimitW)
	}
	d.Signals.Recovery = f.Recovery
	if !or(f.Healthy, true) {
		d.Signals.Reported = cmp.Or(or(f.HealthReason, ""), "reported-unhealthy")
	}
	return d, inject(&d.Signals, or(f.Fault, ""))
}

// inject sets the signal that a fault causes. why is the error text for an unknown fault.
func inject(s *gpu.Signals, fault string) (why string) {
	if fault == "" {
		return ""
	}
	var names []string
	for _, f := range faults {
		if f.name == fault {
			f.set(s)
			return ""
		}
		names = append(names, f.name)
	}
	return fmt.Sprintf("fault %q is unknown; it must be one of %s", fault, strings.Join(names, ", "))
}
