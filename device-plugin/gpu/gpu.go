// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package gpu holds the data about GPUs that the backends (NVML, emulated inventory) report to the
// device plugin: plain values with units in their names. No NVML type leaves the NVML adapter. A
// nil pointer means that the device does not support the value.
package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Inventory is the result of one scan of a backend.
type Inventory struct {
	DriverVersion string
	// CUDAMajor and CUDAMinor are the newest CUDA version that the driver supports; 0 if unknown.
	CUDAMajor, CUDAMinor int
	// Boot identifies the machine's boot, and DriverLoad the load of the driver's kernel module. If
	// Boot or DriverLoad changes, earlier latched faults no longer count.
	Boot, DriverLoad string
	Devices          []Device // sorted by ID, ids unique
	// Hidden contains the GPUs that the driver lists by index, but whose UUID is unknown or
	// unusable. Hidden GPUs cannot be published, because a job gets its GPUs by UUID.
	Hidden []Hidden
	// Complete means that the list has all GPUs: a missing GPU was removed on purpose.
	Complete bool
	// Warnings names the values that the scan could not read, in one sentence each, sorted.
	Warnings []string
}

// Hidden is a GPU that the driver lists but the plugin cannot publish.
type Hidden struct {
	Index int    // NVML's index
	ID    string // UUID, if known
	Why   string // reason in words; a failed question in the form of [Failure]
	Code  int    // NVML's return code; 0 for none
	Lost  bool   // the driver lost the GPU
}

// Silent is the reason for hiding a GPU whose driver calls do not return.
const Silent = "it does not answer"

func (h Hidden) String() string {
	if h.ID != "" {
		return fmt.Sprintf("GPU %d (%s): %s", h.Index, h.ID, h.Why)
	}
	return fmt.Sprintf("GPU %d: %s", h.Index, h.Why)
}

// Unidentified returns the number of hidden GPUs that are not lost. A GPU that seems to be missing
// can be one of these GPUs.
func (inv *Inventory) Unidentified() int {
	n := 0
	for _, h := range inv.Hidden {
		if !h.Lost {
			n++
		}
	}
	return n
}

// Physical returns the number of GPUs that the machine is known to have.
func (inv *Inventory) Physical() int {
	ids := map[string]bool{}
	for i := range inv.Devices {
		ids[inv.Devices[i].Physical()] = true
	}
	return len(ids) + len(inv.Hidden)
}

// Reasons why a device cannot be used, even if it is healthy.
const (
	// MIGEmpty means that the GPU is in MIG mode and has no instance.
	MIGEmpty = "mig-without-instances"
	// MIGUnread means that the GPU is in MIG mode and its instances cannot be read.
	MIGUnread = "mig-instances-unread"
	// LibraryReplaced means that the driver's libraries on disk no longer match the loaded driver, for
	// example after an unattended upgrade. Running programs go on, but CUDA starts in no new one.
	LibraryReplaced = "driver-library-replaced"
	// SameUUID means that another GPU of the node has the same UUID. Jobs get their GPUs by UUID,
	// so neither GPU can be used.
	SameUUID = "duplicate-uuid"
)

// Device is one schedulable instance: a GPU or a MIG instance.
type Device struct {
	ID     string // NVML UUID: GPU-… or MIG-…
	Parent string // UUID of the physical GPU of a MIG instance, else ""
	Model  string // name of the device group; for a MIG instance, with its profile

	MIG    MIG
	Chip   Chip
	Place  Place
	NVLink NVLink
	PCI    PCI

	MemoryMiB *int64
	// SystemMemory means that the GPU's memory is a NUMA node of the machine, so the system may
	// keep pages in it.
	SystemMemory bool

	PowerLimitW     *int64 // enforced limit
	BAR1MiB         *int64
	CoresClockMHz   *int64 // maximum
	MemoryClockMHz  *int64 // maximum
	DisplayState    string // "Enabled" or "Disabled"; "" unknown
	PersistenceMode string
	ECC             *bool

	// Unusable is the reason why no job can use the device: one of the codes above, or "".
	Unusable string
	Signals  Signals
	Measured Measured
}

// MIG identifies a MIG instance; zero for a whole GPU.
type MIG struct {
	Profile string // for example "3g.20gb"
	// GPUInstance and ComputeInstance are NVML's ids.
	GPUInstance, ComputeInstance int
}

// Chip is what a GPU is made of.
type Chip struct {
	VBIOS                      string // version; "" unknown
	Architecture               string // "hopper"; "" unknown
	ComputeMajor, ComputeMinor int    // 0.0 unknown
	Virtual                    bool   // a virtual GPU: a share of a GPU, in a virtual machine
}

// Place is where a GPU is in the machine.
type Place struct {
	Index      int    // the GPU's number in nvidia-smi; may change at a boot
	Remembered bool   // not listed by the latest scan, so Index may be another GPU's now
	Minor      int    // N of /dev/nvidiaN; -1 unknown
	BusID      string // as sysfs writes it: 0000:1a:00.0
	NUMANode   int    // -1 unknown
}

// NVLink describes a GPU's links to other GPUs.
type NVLink struct {
	Island int    // number of the NVLink or NVSwitch island; -1 none
	Active int    // active links; -1 none or unknown
	Most   int    // the most links that were active at once, as far as remembered
	Clique string // "<cluster uuid>.<clique id>" on multi-node NVLink
}

// PCI describes the most that a GPU's PCIe link can do.
type PCI struct {
	BandwidthMBPerS *int64 // maximum link width × per-lane rate
	Generation      int    // the highest that GPU and slot support; 0 unknown
	Width           int    // lanes
}

// Measured is how fast a GPU is. Its fields are empty if the backend has no times.
type Measured struct {
	// Times are per fixed work unit, and Key is their comparability key (see attr.Measurement).
	Key   string
	Times map[pal.AppClass]float64
	Rates map[pal.AppClass]float64 // work rates (see attr.RateUnit)
}

// Sort sorts devices in the order of an inventory.
func Sort(ds []Device) {
	slices.SortFunc(ds, func(a, b Device) int { return strings.Compare(a.ID, b.ID) })
}

// Physical returns the UUID of the device's physical GPU.
func (d *Device) Physical() string { return cmp.Or(d.Parent, d.ID) }

// Slot returns the device's place in the machine. The index of a GPU that the driver does not list
// now is unknown, because the driver can give its number to another GPU.
func (d *Device) Slot() attr.Slot {
	s := attr.Slot{BusID: d.Place.BusID}
	if !d.Place.Remembered && !d.Signals.Unlisted {
		s.Index = &d.Place.Index
	}
	return s
}

// Is reports whether the id names the device or its physical GPU.
func (d *Device) Is(id string) bool { return id == d.ID || id == d.Physical() }

// Signals are the readings that decide a device's health.
type Signals struct {
	Lost          bool // fallen off the bus, or the driver lost it
	Unlisted      bool // lost, and the driver does not even list it
	ResetRequired bool
	Unanswered    bool // a driver call for the device did not return in time
	// Failed lists the unanswered questions that affect health, in the order of [Questions].
	Failed []Failure
	// Recovery is the action that the driver requests: 0 none, 1 reset, 2 reboot, 3 drain
	// P2P, 4 drain and reset, 5 recover IMEX. nil before R570.
	Recovery    *int
	RemapFailed bool // a row remap failed: the card must be replaced
	// RetiredPages counts retired memory pages (before Ampere); nil if the GPU retires no pages.
	RetiredPages *int64
	// RetirementPending means that pages are retired at the next reset (before Ampere).
	RetirementPending bool
	SRAMFault         bool // more uncorrectable SRAM errors than the driver's threshold
	// NVLinkDown means that an NVLink is down although it was up before, or although other GPUs of
	// the model have more links up.
	NVLinkDown bool
	// NVLinkErrors means that packets are often damaged or sent again.
	NVLinkErrors bool
	// FabricLimits are codes for the problems of the GPU's NVSwitch fabric that NVML reports,
	// sorted. A job that uses only this GPU may still run well.
	FabricLimits []string
	// CUDARefused means that CUDA does not start on the node because the system is not
	// ready (error 802).
	CUDARefused  bool
	PCIeDegraded bool // narrower than half its width, or more replays than the threshold
	// Slow means that the measured rate is far below the rate of any healthy GPU of the model.
	Slow bool
	// Wrong means that the GPU's result differs from its earlier result.
	Wrong bool
	// ThermalSlowdown and PowerBrake mean that heat or a power brake lowers the clocks at this
	// moment.
	ThermalSlowdown, PowerBrake bool
	// Reported is a fault that the backend found: a short stable code, or "".
	Reported string
}

// Codes in FabricLimits for a fabric that the driver did not set up.
const (
	FabricNotReady = "not-ready" // the fabric is being set up, or was never set up
	FabricFailed   = "failed"    // setting up the fabric failed
)

// Event is a report of the driver between two scans.
type Event struct {
	// GPU is the UUID of the physical GPU or of one MIG instance; "" means that the
	// inventory should be scanned again.
	GPU string
	// Xid is NVIDIA's error number, or 0.
	Xid int
}

// Reasons for lowered clocks that indicate a limit or a fault of the GPU.
const (
	ThrottlePower      = "power-cap"
	ThrottleSWThermal  = "sw-thermal"
	ThrottleHWThermal  = "hw-thermal"
	ThrottleHWSlowdown = "hw-slowdown"
	ThrottleBrake      = "power-brake"
	ThrottleOther      = "other" // the driver has a name for the reason, but this plugin has none
)

// Sample is one reading of a device's statistics.
type Sample struct {
	PowerW                                 *float64
	PowerLimitW                            *int64
	GPUPercent, MemoryPercent              *int64
	EncoderPercent, DecoderPercent         *int64
	TemperatureC                           *int64
	MemoryUsedMiB, MemoryTotalMiB          *int64
	MemoryAllocatedMiB                     *int64 // used memory, without what the driver reserves for itself
	SharesMemory                           bool   // the GPU uses the machine's memory
	BAR1UsedMiB, BAR1TotalMiB              *int64
	ECC                                    ECCErrors
	SMClockMHz                             *int64
	Throttle                               *string // comma-separated reasons, or "none"
	PowerCapPercent, ThermalCapPercent     *float64
	TensorActivePercent, DRAMActivePercent *float64
	XidLast, XidCount                      *int64
	// ParentPowerAndTemperature means that power and temperature of a MIG instance are those of its
	// GPU.
	ParentPowerAndTemperature bool
	NoSampleReason            string // why the reading failed; "" if it succeeded
}

// ECCErrors are corrected errors since the driver was loaded.
type ECCErrors struct{ L1, L2, Memory *int64 }

// AllocatedMiB returns the GPU memory that tasks use, according to the driver; nil if unknown.
func (s Sample) AllocatedMiB() *int64 {
	if s.SharesMemory {
		return nil
	}
	return cmp.Or(s.MemoryAllocatedMiB, s.MemoryUsedMiB)
}

// Unavailable is the error of a scan that found no usable driver. The plugin stays alive
// without devices and tries again.
type Unavailable struct {
	What string // what is missing, as text for people
	Err  error
	// Restart means that only a new process can find the driver again.
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

// Printable replaces invalid text and terminal control characters in strings from outside.
func Printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c == unicode.ReplacementChar || !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, s)
}
