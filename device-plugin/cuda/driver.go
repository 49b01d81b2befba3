// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package cuda runs kernels through the CUDA driver library, which it opens at run time. It builds
// without any part of CUDA. On a machine without the driver, [Open] returns an error.
//
// It offers only what measuring needs: devices, one context, modules from PTX, memory, launches,
// events. A [Context] belongs to the OS thread that made it (runtime.LockOSThread). After an error
// for which [Sticky] returns true, the context is lost and the process should end.
package cuda

import (
	"cmp"
	"fmt"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// Library is the usual name of the driver library.
const Library = "libcuda.so.1"

// Driver is an open driver library.
type Driver struct {
	init          func(flags uint32) int32
	driverVersion func(v *int32) int32
	errorName     func(code int32, name **byte) int32

	deviceCount     func(n *int32) int32
	deviceGet       func(dev *int32, ordinal int32) int32
	deviceName      func(name *byte, size, dev int32) int32
	deviceUUID      func(uuid *[16]byte, dev int32) int32
	deviceAttribute func(v *int32, attr, dev int32) int32
	deviceMemory    func(bytes *uint64, dev int32) int32

	contextRetain  func(ctx *uintptr, dev int32) int32
	contextRelease func(dev int32) int32
	contextSet     func(ctx uintptr) int32

	moduleLoad     func(mod *uintptr, image *byte, n uint32, options *int32, values *uintptr) int32
	moduleFunction func(fn *uintptr, mod uintptr, name *byte) int32

	memAlloc func(ptr *uint64, size uint64) int32
	memFree  func(ptr uint64) int32
	memset32 func(ptr uint64, v uint32, n uint64) int32
	copyDtoH func(dst *byte, src, size uint64) int32

	launch       func(fn uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr, params, extra *pointer) int32
	eventCreate  func(ev *uintptr, flags uint32) int32
	eventRecord  func(ev, stream uintptr) int32
	eventSync    func(ev uintptr) int32
	eventElapsed func(ms *float32, from, to uintptr) int32
}

// Open opens the driver library ("" for [Library]) and starts it. If the dynamic linker does not
// know the name, Open looks where drivers put their libraries. The error names what is missing: the
// library, a function in it, or a working driver.
func Open(path string) (*Driver, error) {
	path = gpu.FindLibrary("/", cmp.Or(path, Library))
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("opening CUDA driver library %q (is the NVIDIA driver installed?): %w", path, err)
	}
	d := &Driver{}
	for _, f := range d.functions() {
		// RegisterLibFunc panics if the library lacks the function.
		if _, err := purego.Dlsym(lib, f.name); err != nil {
			return nil, fmt.Errorf("CUDA driver library %q has no %s: the driver is too old", path, f.name)
		}
		purego.RegisterLibFunc(f.to, lib, f.name)
	}
	return d, d.check("starting the CUDA driver", d.init(0))
}

type function struct {
	name string
	to   any
}

func (d *Driver) functions() []function {
	return []function{
		{"cuInit", &d.init}, {"cuDriverGetVersion", &d.driverVersion}, {"cuGetErrorName", &d.errorName},
		{"cuDeviceGetCount", &d.deviceCount}, {"cuDeviceGet", &d.deviceGet}, {"cuDeviceGetName", &d.deviceName},
		{"cuDeviceGetUuid_v2", &d.deviceUUID}, {"cuDeviceGetAttribute", &d.deviceAttribute}, {"cuDeviceTotalMem_v2", &d.deviceMemory},
		{"cuDevicePrimaryCtxRetain", &d.contextRetain}, {"cuDevicePrimaryCtxRelease_v2", &d.contextRelease},
		{"cuCtxSetCurrent", &d.contextSet},
		{"cuModuleLoadDataEx", &d.moduleLoad}, {"cuModuleGetFunction", &d.moduleFunction},
		{"cuMemAlloc_v2", &d.memAlloc}, {"cuMemFree_v2", &d.memFree}, {"cuMemsetD32_v2", &d.memset32},
		{"cuMemcpyDtoH_v2", &d.copyDtoH},
		{"cuLaunchKernel", &d.launch}, {"cuEventCreate", &d.eventCreate},
		{"cuEventRecord", &d.eventRecord}, {"cuEventSynchronize", &d.eventSync}, {"cuEventElapsedTime", &d.eventElapsed},
	}
}

// Version returns the newest CUDA version that the driver supports.
func (d *Driver) Version() (major, minor int, err error) {
	var v int32
	err = d.check("reading the driver's CUDA version", d.driverVersion(&v))
	return int(v) / 1000, int(v) % 1000 / 10, err
}

// Device is one GPU that the driver shows to this process.
type Device struct {
	UUID         string // in NVML's form: GPU-…
	Name         string
	Major, Minor int // compute capability
	SMs          int
	ClockMHz     int // largest SM clock
	MemClockMHz  int
	BusBits      int // memory bus width
	MemoryBytes  uint64
	Integrated   bool // shares the processor's memory; then MemClockMHz and BusBits say nothing

	handle int32
}

// Attribute numbers of cuDeviceGetAttribute.
const (
	attrClockKHz    = 13
	attrSMs         = 16
	attrIntegrated  = 18
	attrMemClockKHz = 36
	attrBusBits     = 37
	attrMajor       = 75
	attrMinor       = 76
)

// Devices lists the GPUs, in the driver's order.
func (d *Driver) Devices() ([]Device, error) {
	var n int32
	if err := d.check("counting GPUs", d.deviceCount(&n)); err != nil {
		return nil, err
	}
	var out []Device
	for i := range n {
		dev, err := d.device(i)
		if err != nil {
			return nil, err
		}
		out = append(out, dev)
	}
	return out, nil
}

func (d *Driver) device(ordinal int32) (Device, error) {
	op := fmt.Sprintf("reading GPU %d", ordinal)
	var dev Device
	if err := d.check(op, d.deviceGet(&dev.handle, ordinal)); err != nil {
		return dev, err
	}
	name := make([]byte, 256)
	if err := d.check(op, d.deviceName(&name[0], int32(len(name)), dev.handle)); err != nil {
		return dev, err
	}
	var uuid [16]byte
	if err := d.check(op, d.deviceUUID(&uuid, dev.handle)); err != nil {
		return dev, err
	}
	if err := d.check(op, d.deviceMemory(&dev.MemoryBytes, dev.handle)); err != nil {
		return dev, err
	}
	dev.Name = unix.ByteSliceToString(name)
	dev.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:])
	var clockKHz, memClockKHz, integrated int
	for _, a := range []struct {
		attr int32
		to   *int
	}{{attrClockKHz, &clockKHz}, {attrSMs, &dev.SMs}, {attrMemClockKHz, &memClockKHz}, {attrBusBits, &dev.BusBits},
		{attrMajor, &dev.Major}, {attrMinor, &dev.Minor}, {attrIntegrated, &integrated}} {
		var v int32
		if err := d.check(op, d.deviceAttribute(&v, a.attr, dev.handle)); err != nil {
			return dev, err
		}
		*a.to = int(v)
	}
	dev.ClockMHz, dev.MemClockMHz = clockKHz/1000, memClockKHz/1000
	dev.Integrated = integrated != 0
	return dev, nil
}
