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

// Values of a gpu block's fault key.
const (
	FaultLost       = "lost"        // the driver lost the GPU
	FaultReset      = "reset"       // the GPU needs a reset
	FaultHang       = "hang"        // calls for this GPU do not return
	FaultHangDriver = "hang-driver" // no driver call returns, for any GPU
	FaultRemap      = "remap"       // a row remap failed
	FaultRemapWait  = "remap-pending"
	FaultFabric     = "fabric"  // fabric not ready
	FaultNVLink     = "nvlink"  // a link is down
	FaultThermal    = "thermal" // hardware thermal slowdown
	FaultBrake      = "power-brake"
	FaultPCIe       = "pcie"
)

// device builds one GPU from its fields; why is the first mistake in them, "" for none.
func device(id string, f fields, index int) (d gpu.Device, why string) {
	d = gpu.Device{
		ID: id, Parent: or(f.Parent, ""), Model: or(f.Model, "NVIDIA H200"), MIGProfile: or(f.MIGProfile, ""),
		Architecture: or(f.Architecture, "hopper"), ComputeMajor: or(f.ComputeMajor, 9), ComputeMinor: or(f.ComputeMinor, 0),
		SMCount: or(f.SMCount, 132), Index: index, Minor: index,
		BusID:    strings.ToLower(or(f.BusID, fmt.Sprintf("0000:%02x:00.0", 0x10+index))),
		NUMANode: or(f.NUMA, -1), PCIeSwitch: or(f.PCIeSwitch, -1), Island: or(f.Island, -1), P2P: "pcie",
		Clique:             or(f.Clique, ""),
		MemoryMiB:          new(or(f.MemoryMiB, 143771)),
		PowerLimitW:        new(or(f.PowerLimitW, 700)),
		BAR1MiB:            new(or(f.BAR1MiB, 262144)),
		CoresClockMHz:      new(or(f.CoresClockMHz, 1980)),
		MemoryClockMHz:     new(or(f.MemoryClockMHz, 3201)),
		PCIBandwidthMBPerS: new(or(f.PCIMBPerS, 63008)),
		DisplayState:       "Disabled", PersistenceMode: "Enabled", ECC: new(true),
		Key: or(f.Key, ""),
	}
	if d.MIGProfile != "" && !strings.Contains(d.Model, " MIG ") {
		d.Model += " MIG " + d.MIGProfile // as NVML names MIG instances
	}
	if d.Island >= 0 {
		d.P2P, d.Links = "nvswitch", 18
	}
	if d.Times, why = byClass("times", f.Times); why != "" {
		return d, why
	}
	if d.Rates, why = byClass("rates", f.Rates); why != "" {
		return d, why
	}
	if d.Model == "" {
		return d, "the model is empty"
	}
	if strings.ContainsAny(d.Key, " ;=") {
		return d, fmt.Sprintf("key %q holds a space, ';' or '='", d.Key)
	}
	if strings.ContainsAny(id, " ;,=") {
		return d, "the id holds a space, ';', ',' or '='"
	}
	if attr.GPUOf(id) != id {
		return d, "the id holds \"::\", which numbers the parts of a shared GPU"
	}
	if d.Key == "" && len(d.Times) > 0 {
		d.Key = fmt.Sprintf("emulated/%dW", *d.PowerLimitW)
	}
	d.Signals.Recovery = f.Recovery
	if !or(f.Healthy, true) {
		d.Signals.Reported = cmp.Or(or(f.HealthReason, ""), "reported-unhealthy")
	}
	return d, inject(&d.Signals, or(f.Fault, ""))
}

// inject sets the readings that a fault causes. why is the error text for an unknown fault.
func inject(s *gpu.Signals, fault string) (why string) {
	switch fault {
	case "", FaultHangDriver:
	case FaultLost:
		s.Lost = true
	case FaultReset:
		s.ResetRequired = true
	case FaultHang:
		s.Unanswered = true
	case FaultRemap:
		s.RemapFailed = true
	case FaultRemapWait:
		s.RemapPending = true
	case FaultFabric:
		s.CUDARefused = true
	case FaultNVLink:
		s.NVLinkDown = true
	case FaultThermal:
		s.ThermalSlowdown = true
	case FaultBrake:
		s.PowerBrake = true
	case FaultPCIe:
		s.PCIeDegraded = true
	default:
		return fmt.Sprintf("fault %q is unknown (one of lost, reset, hang, hang-driver, remap, remap-pending, fabric, nvlink, thermal, power-brake, pcie)", fault)
	}
	return ""
}
