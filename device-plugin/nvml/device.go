// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// readGPU reads the physical GPU at an index, with its MIG instances.
func (b *Backend) readGPU(index int) found {
	r := &reader{sym: b.symbols}
	dev, ret := answer(r, "nvmlDeviceGetHandleByIndex_v2|nvmlDeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) {
		return b.lib.DeviceGetHandleByIndex(index)
	})
	if ret != nvml.SUCCESS {
		return found{err: r.unreadable(index, "nvmlDeviceGetHandleByIndex", ret)}
	}
	uuid, ret := answer(r, "nvmlDeviceGetUUID", dev.GetUUID)
	if ret != nvml.SUCCESS {
		return found{err: r.unreadable(index, "nvmlDeviceGetUUID", ret)}
	}
	if !isID(uuid) {
		h := gpu.Hidden{Index: index, Why: fmt.Sprintf("%q is not a UUID", uuid)}
		return found{err: &unreadable{h, gpu.Signals{Unanswered: true}}}
	}
	f := found{uuid: uuid, dev: dev, handles: map[string]handle{}}
	d, ret := b.physicalGPU(r, dev, uuid)
	if ret != nvml.SUCCESS {
		return found{err: r.unreadable(index, "nvmlDeviceGetName", ret)}
	}
	d.Place.Index = index
	f.links = readLinks(r, dev)
	d.NVLink.Active = -1
	if f.links.known {
		d.NVLink.Active = f.links.active
	}
	d.Signals = b.signals(r, dev, uuid)
	what := fmt.Sprintf("GPU %d (%s)", index, uuid)
	b.divide(r, &f, d, what)
	if len(r.denied) > 0 {
		f.warnings = append(f.warnings, fmt.Sprintf("%s: %s: permission is missing, which is not a fault of the GPU; %s", what, failuresText(r.denied), gpu.RemedyDenied))
	}
	f.signals = d.Signals
	f.signals.Lost = r.lost
	f.signals.ResetRequired = r.reset
	f.signals.Failed = r.failed
	f.fatal = r.fatal
	if r.lost || r.reset {
		f.warnings = append(f.warnings, fmt.Sprintf("%s: %s", what, r.fatal))
	}
	return f.withSignals(f.signals)
}

// divide sets the devices of a read: the GPU itself, or its MIG instances.
func (b *Backend) divide(r *reader, f *found, d gpu.Device, what string) {
	f.division = b.migInstances(r, f.dev, d)
	for _, w := range f.division.warnings {
		f.warnings = append(f.warnings, what+": "+w)
	}
	for _, m := range f.division.instances {
		f.devices = append(f.devices, m.device)
		f.handles[m.device.ID] = m.handle
	}
	if len(f.devices) > 0 {
		return
	}
	switch {
	case f.division.on && f.division.unknown:
		d.Unusable = gpu.MIGUnread
	case f.division.on:
		d.Unusable = gpu.MIGEmpty
	}
	f.devices = []gpu.Device{d}
	f.handles[d.ID] = handle{dev: f.dev, physical: d.ID}
}

// failuresText formats failures on one line.
func failuresText(fs []gpu.Failure) string {
	words := make([]string, len(fs))
	for i, f := range fs {
		words[i] = f.String()
	}
	return strings.Join(words, ", ")
}

// unreadable returns the error for a GPU whose identity is unknown because a call failed.
func (r *reader) unreadable(index int, function string, ret nvml.Return) error {
	why := gpu.Failure{Function: function, Code: int(ret)}
	h := gpu.Hidden{Index: index, Why: why.String(), Code: int(ret), Lost: r.lost}
	if gone(ret) {
		return fmt.Errorf("%w: %s", errDriverGone, h)
	}
	s := gpu.Signals{Lost: r.lost, ResetRequired: r.reset}
	if !r.lost && !r.reset {
		// A GPU without a known identity cannot be used, whatever the code is.
		s.Unanswered, s.Failed = true, withFailure(r.failed, why)
	}
	return &unreadable{h, s}
}

// physicalGPU reads the published values of a GPU.
func (b *Backend) physicalGPU(r *reader, dev nvml.Device, uuid string) (gpu.Device, nvml.Return) {
	name, ret := answer(r, "nvmlDeviceGetName", dev.GetName)
	if ret != nvml.SUCCESS {
		return gpu.Device{}, ret
	}
	d := gpu.Device{
		ID: uuid, Model: gpu.Printable(name),
		Place: gpu.Place{Minor: -1, NUMANode: -1}, NVLink: gpu.NVLink{Island: -1},
		DisplayState:    state(r, "nvmlDeviceGetDisplayMode", dev.GetDisplayMode),
		PersistenceMode: state(r, "nvmlDeviceGetPersistenceMode", dev.GetPersistenceMode),
	}
	if m, ok := value(r, "nvmlDeviceGetMinorNumber", dev.GetMinorNumber); ok {
		d.Place.Minor = m
	}
	b.platform(r, dev, &d)
	b.sizes(r, dev, &d)
	return d, nvml.SUCCESS
}

// platform reads the architecture and the location.
func (b *Backend) platform(r *reader, dev nvml.Device, d *gpu.Device) {
	if a, ok := value(r, "nvmlDeviceGetArchitecture", dev.GetArchitecture); ok {
		d.Chip.Architecture = architecture(a)
	}
	vbios, _ := value(r, "nvmlDeviceGetVbiosVersion", dev.GetVbiosVersion)
	d.Chip.VBIOS = gpu.Printable(vbios)
	type capability struct{ major, minor int }
	if c, ok := value(r, "nvmlDeviceGetCudaComputeCapability", func() (capability, nvml.Return) {
		major, minor, ret := dev.GetCudaComputeCapability()
		return capability{major, minor}, ret
	}); ok {
		d.Chip.ComputeMajor, d.Chip.ComputeMinor = c.major, c.minor
	}
	if pci, ok := value(r, "nvmlDeviceGetPciInfo_v3|nvmlDeviceGetPciInfo_v2|nvmlDeviceGetPciInfo", dev.GetPciInfo); ok {
		d.Place.BusID = busID(pci)
		if d.Place.BusID == hostBridge { // the GPU is on no bus
			d.Place.BusID = ""
		}
		d.Place.NUMANode = b.numaNode(d.Place.BusID)
	}
	if f, ok := readFabric(r, dev); ok && f.state == nvml.GPU_FABRIC_STATE_COMPLETED {
		d.NVLink.Clique = f.clique
	}
	if mode, ok := value(r, "nvmlDeviceGetVirtualizationMode", dev.GetVirtualizationMode); ok {
		d.Chip.Virtual = mode == nvml.GPU_VIRTUALIZATION_MODE_VGPU
	}
	if current, ok := value(r, "nvmlDeviceGetEccMode", first(dev.GetEccMode)); ok {
		d.ECC = new(current == nvml.FEATURE_ENABLED)
	}
}

// sizes reads the values with a unit, such as memory and power.
func (b *Backend) sizes(r *reader, dev nvml.Device, d *gpu.Device) {
	m, ret := answer(r, "nvmlDeviceGetMemoryInfo", dev.GetMemoryInfo)
	if sharesMemory(m, ret) {
		d.MemoryMiB, _ = b.systemMemoryMiB()
	} else if ret == nvml.SUCCESS {
		d.MemoryMiB = mebibytes(m.Total)
	}
	_, d.SystemMemory = value(r, "nvmlDeviceGetNumaNodeId", dev.GetNumaNodeId) // GH200
	d.PowerLimitW = number(r, "nvmlDeviceGetEnforcedPowerLimit", 1000, dev.GetEnforcedPowerLimit)
	if d.PowerLimitW == nil {
		d.PowerLimitW = number(r, "nvmlDeviceGetPowerManagementLimit", 1000, dev.GetPowerManagementLimit)
	}
	if m, ok := value(r, "nvmlDeviceGetBAR1MemoryInfo", dev.GetBAR1MemoryInfo); ok {
		d.BAR1MiB = mebibytes(m.Bar1Total)
	}
	d.CoresClockMHz = number(r, "nvmlDeviceGetMaxClockInfo", 1, func() (uint32, nvml.Return) { return dev.GetMaxClockInfo(nvml.CLOCK_GRAPHICS) })
	d.MemoryClockMHz = number(r, "nvmlDeviceGetMaxClockInfo", 1, func() (uint32, nvml.Return) { return dev.GetMaxClockInfo(nvml.CLOCK_MEM) })
	width, okWidth := value(r, "nvmlDeviceGetMaxPcieLinkWidth", dev.GetMaxPcieLinkWidth)
	gen, okGen := value(r, "nvmlDeviceGetMaxPcieLinkGeneration", dev.GetMaxPcieLinkGeneration)
	d.PCI.Generation, d.PCI.Width = gen, width
	lane := laneMBPerS(gen)
	if okWidth && okGen && lane > 0 {
		d.PCI.BandwidthMBPerS = new(int64(width) * lane)
	}
}

// laneMBPerS returns the rate of one PCIe lane after line coding; 0 for an unknown generation.
func laneMBPerS(generation int) int64 {
	rates := [...]int64{0, 250, 500, 985, 1969, 3938, 7563}
	if generation < 0 || generation >= len(rates) {
		return 0
	}
	return rates[generation]
}

func architecture(a nvml.DeviceArchitecture) string {
	names := map[nvml.DeviceArchitecture]string{
		nvml.DEVICE_ARCH_KEPLER: "kepler", nvml.DEVICE_ARCH_MAXWELL: "maxwell", nvml.DEVICE_ARCH_PASCAL: "pascal",
		nvml.DEVICE_ARCH_VOLTA: "volta", nvml.DEVICE_ARCH_TURING: "turing", nvml.DEVICE_ARCH_AMPERE: "ampere",
		nvml.DEVICE_ARCH_ADA: "ada", nvml.DEVICE_ARCH_HOPPER: "hopper", nvml.DEVICE_ARCH_BLACKWELL: "blackwell",
		nvml.DEVICE_ARCH_RUBIN: "rubin",
	}
	return names[a]
}

func state(r *reader, symbol string, ask func() (nvml.EnableState, nvml.Return)) string {
	switch v, ok := value(r, symbol, ask); {
	case !ok:
		return ""
	case v == nvml.FEATURE_ENABLED:
		return "Enabled"
	default:
		return "Disabled"
	}
}

// hostBridge is the PCI address of the host bridge. No GPU has it.
const hostBridge = "0000:00:00.0"

// busID returns the PCI address in the form of sysfs, because Nomad's NUMA matching compares
// addresses with sysfs.
func busID(p nvml.PciInfo) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device)
}

// numaNode reads the NUMA node from sysfs. NVML knows the node only if the GPU is a NUMA node
// itself. The result -1 means unknown.
func (b *Backend) numaNode(bus string) int {
	data, _ := os.ReadFile(filepath.Join(b.opts.root(), "sys/bus/pci/devices", bus, "numa_node")) // without the file, there is no number
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return -1
	}
	return n
}

// sharesMemory reports whether the GPU has no memory of its own, and uses the machine's memory
// (GB10, Jetson). For such a GPU, NVML does not support the question or answers 0 bytes, depending
// on the driver.
func sharesMemory(m nvml.Memory, ret nvml.Return) bool {
	return ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.SUCCESS && m.Total == 0
}

// systemMemoryMiB returns the size of the machine's memory, and how much of it is in use. Both are
// nil if /proc/meminfo cannot be read.
func (b *Backend) systemMemoryMiB() (total, used *int64) {
	data, _ := os.ReadFile(filepath.Join(b.opts.root(), "proc/meminfo"))
	kib := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		var name string
		var n int64
		if _, err := fmt.Sscanf(line, "%s %d kB", &name, &n); err == nil {
			kib[name] = n
		}
	}
	all, ok := kib["MemTotal:"]
	if !ok {
		return nil, nil
	}
	if free, ok := kib["MemAvailable:"]; ok {
		used = new((all - free) >> 10)
	}
	return new(all >> 10), used
}
