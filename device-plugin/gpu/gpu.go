// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package gpu holds what the backends (NVML, emulated inventory) tell the
// device plugin about GPUs: plain values with units in their names. No NVML
// type leaves the NVML adapter. A nil pointer means that the device does not
// support the value: it is then absent from what Nomad sees, never zero.
package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Inventory is what one scan of a backend found.
type Inventory struct {
	DriverVersion string
	// CUDAMajor and CUDAMinor are the newest CUDA version that the driver
	// supports; both 0 when unknown.
	CUDAMajor, CUDAMinor int
	// Boot identifies the boot of the machine and DriverLoad the load of the
	// driver's kernel module: faults latched before either changed are void.
	Boot, DriverLoad string
	Devices          []Device // sorted by ID, ids unique
	// Hidden are the GPUs that the driver lists and that do not say who they are, by index.
	// They cannot be published: a job is given a GPU by its UUID.
	Hidden []Hidden
	// Complete: what is not listed was taken out on purpose, and is not missed.
	Complete bool
	// Warnings say what the scan could not read, one sentence each, sorted.
	Warnings []string
}

// Hidden is a GPU that the driver lists and that cannot be published.
type Hidden struct {
	Index int    // NVML's
	ID    string // its UUID, where it says it
	Why   string // in words; a question that failed as [Failure] writes it
	Code  int    // NVML's, 0 for none
	Lost  bool   // the driver lost it
}

// Silent is why a GPU is hidden whose driver calls do not return.
const Silent = "it does not answer"

func (h Hidden) String() string {
	if h.ID != "" {
		return fmt.Sprintf("GPU %d (%s): %s", h.Index, h.ID, h.Why)
	}
	return fmt.Sprintf("GPU %d: %s", h.Index, h.Why)
}

// Unidentified is how many GPUs may be any of those that are missed. A lost one is not.
func (inv *Inventory) Unidentified() int {
	n := 0
	for _, h := range inv.Hidden {
		if !h.Lost {
			n++
		}
	}
	return n
}

// Physical is how many GPUs the machine has, as far as is known.
func (inv *Inventory) Physical() int {
	ids := map[string]bool{}
	for i := range inv.Devices {
		ids[inv.Devices[i].Physical()] = true
	}
	return len(ids) + len(inv.Hidden)
}

// Why a device that is there cannot be used, whatever its health.
const (
	// MIGEmpty: the GPU is in MIG mode and has no instance.
	MIGEmpty = "mig-without-instances"
	// MIGUnread: the GPU is in MIG mode, and its instances cannot be read.
	MIGUnread = "mig-instances-unread"
	// SameUUID: another GPU of the node has the same UUID. Jobs are given GPUs
	// by UUID, so neither can be used.
	SameUUID = "duplicate-uuid"
)

// Device is one schedulable instance: a GPU or a MIG instance.
type Device struct {
	ID         string // NVML UUID: GPU-… or MIG-…
	Parent     string // UUID of the physical GPU of a MIG instance, else ""
	Model      string // the device group's name; a MIG instance's includes its profile
	MIGProfile string // for example "3g.20gb"; "" for a whole GPU

	// GPUInstance and ComputeInstance are NVML's numbers of a MIG instance.
	GPUInstance, ComputeInstance int

	VBIOS                      string // version; "" unknown
	Architecture               string // "hopper"; "" unknown
	ComputeMajor, ComputeMinor int    // 0.0 unknown
	SMCount                    int    // 0 unknown
	Virtual                    bool   // a share of a GPU, in a virtual machine

	Index      int    // the GPU's number in nvidia-smi, which a boot may change
	Minor      int    // N of /dev/nvidiaN; -1 unknown
	BusID      string // as sysfs spells it: 0000:1a:00.0
	NUMANode   int    // -1 unknown
	PCIeSwitch int    // number of the PCIe switch above it; -1 none or unknown
	Island     int    // number of the NVLink or NVSwitch island; -1 none
	Links      int    // active NVLinks; -1 none or unknown
	MostLinks  int    // that were active at a time, as far as is remembered
	P2P        string // "nvswitch", "nvlink", "pcie", "none"; "" unknown
	Clique     string // "<cluster uuid>.<clique id>" on multi-node NVLink

	MemoryMiB *int64
	// SystemMemory: the memory is a NUMA node of the machine, where the system has pages.
	SystemMemory bool

	PowerLimitW        *int64 // enforced limit
	BAR1MiB            *int64
	CoresClockMHz      *int64 // maximum
	MemoryClockMHz     *int64 // maximum
	PCIBandwidthMBPerS *int64 // maximum link width × per-lane rate
	PCIGeneration      int    // the most that GPU and slot can; 0 unknown
	PCIWidth           int    // lanes
	DisplayState       string // "Enabled" or "Disabled"; "" unknown
	PersistenceMode    string
	ECC                *bool

	// Unusable is why no job can use the device, one of the codes above; "" if one can.
	Unusable string

	Signals Signals

	// Key and Times are measured times per fixed work unit that came with the
	// inventory (see attr.Measurement); empty if the backend has none.
	Key   string
	Times map[pal.AppClass]float64
	// Rates are the measured rates of work (see attr.RateUnit).
	Rates map[pal.AppClass]float64
}

// Sort puts devices in the order of an inventory.
func Sort(ds []Device) {
	slices.SortFunc(ds, func(a, b Device) int { return strings.Compare(a.ID, b.ID) })
}

// Physical is the UUID of the GPU that holds the device.
func (d *Device) Physical() string {
	if d.Parent != "" {
		return d.Parent
	}
	return d.ID
}

// Signals are the readings that decide a device's health.
type Signals struct {
	Lost          bool // fallen off the bus, or the driver lost it
	Unlisted      bool // lost, and the driver does not even list it
	ResetRequired bool
	Unanswered    bool // a driver call for it did not return in time
	// Failed are the questions that count and that were not answered, in the order of
	// [Questions].
	Failed []Failure
	// Recovery is the action the driver asks for: 0 none, 1 reset, 2 reboot, 3
	// drain P2P, 4 drain and reset, 5 recover IMEX. nil before R570.
	Recovery     *int
	RemapFailed  bool // a row remap failed: the card is for return
	RemapPending bool // remapped at the next reset; no harm until then
	RetiredPages int  // before Ampere
	// RetirementPending: pages are retired at the next reset (before Ampere).
	RetirementPending bool
	// ECCUncorrected counts memory errors since the driver was loaded; nil: not counted.
	ECCUncorrected *int64
	SRAMFault      bool // uncorrectable SRAM errors past the driver's threshold
	// NVLinkDown: a link is down that the GPU had up, or GPUs of the same model have.
	NVLinkDown bool
	// NVLinkErrors: packets arrive damaged or are sent again all the time.
	NVLinkErrors bool
	// FabricLimits say in what way an NVSwitch system's fabric serves the GPU badly, by
	// what NVML says of it: sorted short codes. Alone the GPU may compute well.
	FabricLimits []string
	// CUDARefused: CUDA does not start on the node, as the system is not ready (error 802).
	CUDARefused  bool
	PCIeDegraded bool // narrower than half its width, or replays past the threshold
	// Slow: measured far below what any sound GPU of the model reaches.
	Slow bool
	// Wrong: when it was measured, it computed something else than before, or than most
	// GPUs like it.
	Wrong bool
	// ThermalSlowdown and PowerBrake hold at this moment.
	ThermalSlowdown, PowerBrake bool
	// Reported is a fault that the backend itself decided on: a short stable
	// code, "" for none.
	Reported string
}

// Limits of a fabric that does not serve the GPU, as NVML says: some machines report them, and
// their GPUs work.
const (
	FabricNotReady = "not-ready" // it is being set up, or never was
	FabricFailed   = "failed"    // setting it up failed
)

// Event is something the driver reported between two scans.
type Event struct {
	// GPU is the UUID of the physical GPU or of one MIG instance; "" means that
	// the inventory should be read again.
	GPU string
	// Xid is NVIDIA's error number; 0 when the event carries none.
	Xid int
}

// Reasons why the clocks are held down that say something about the GPU.
const (
	ThrottlePower      = "power-cap"
	ThrottleSWThermal  = "sw-thermal"
	ThrottleHWThermal  = "hw-thermal"
	ThrottleHWSlowdown = "hw-slowdown"
	ThrottleBrake      = "power-brake"
)

// Sample is one reading of a device's statistics.
type Sample struct {
	PowerW                                 *float64
	PowerLimitW                            *int64
	GPUPercent, MemoryPercent              *int64
	EncoderPercent, DecoderPercent         *int64
	TemperatureC, MemoryTemperatureC       *int64
	MemoryUsedMiB, MemoryTotalMiB          *int64
	MemoryAllocatedMiB                     *int64 // used, without what the driver keeps for itself
	BAR1UsedMiB, BAR1TotalMiB              *int64
	ECCL1, ECCL2, ECCMemory                *int64 // corrected, since the driver was loaded
	ECCUncorrected                         *int64 // since the driver was loaded
	SMClockMHz, MemoryClockMHz             *int64
	Throttle                               *string // comma-joined reasons, "none"
	PowerCapPercent, ThermalCapPercent     *float64
	EnergyJ                                *float64
	PCIeRxMBPerS, PCIeTxMBPerS             *float64
	NVLinkRxMBPerS, NVLinkTxMBPerS         *float64
	PCIeReplays                            *int64
	RemapCorrectable, RemapUncorrectable   *int64
	RemapPending, RemapFailed              *bool
	SMActivePercent, SMOccupancyPercent    *float64
	TensorActivePercent, DRAMActivePercent *float64
	XidLast, XidCount                      *int64
	// ParentPowerAndTemperature: a MIG instance shows its GPU's.
	ParentPowerAndTemperature bool
	NoSampleReason            string // why nothing could be read; "" when it could
}

// AllocatedMiB is the memory that tasks use, as far as the driver tells; nil unknown.
func (s Sample) AllocatedMiB() *int64 { return cmp.Or(s.MemoryAllocatedMiB, s.MemoryUsedMiB) }

// Unavailable is the error of a scan that found no usable driver: the plugin
// stays alive without devices and tries again.
type Unavailable struct {
	What string // what is missing, for people
	Err  error
	// Restart: only a new process can find the driver again.
	Restart bool
}

func (u *Unavailable) Error() string {
	if u.Err == nil {
		return u.What
	}
	return fmt.Sprintf("%s: %v", u.What, u.Err)
}

// Unwrap returns the cause.
func (u *Unavailable) Unwrap() error { return u.Err }
