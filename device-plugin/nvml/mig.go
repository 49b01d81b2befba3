// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// migInstance is one MIG instance, with its NVML handle.
type migInstance struct {
	device gpu.Device
	handle handle
	failed []gpu.Failure // questions that failed for this instance
}

// division is the division of a GPU into MIG instances.
type division struct {
	on        bool // MIG mode is on, so the GPU itself cannot be used
	unknown   bool // the mode, or some instances, could not be read
	instances []migInstance
	warnings  []string
}

// warn adds a warning about a value that could not be read.
func (d *division) warn(format string, args ...any) {
	d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
}

// migInstances reads the MIG instances of a GPU.
func (b *Backend) migInstances(r *reader, dev nvml.Device, parent gpu.Device) (d division) {
	type modes struct{ current, pending int }
	mode, ret := answer(r, "nvmlDeviceGetMigMode", func() (m modes, ret nvml.Return) {
		m.current, m.pending, ret = dev.GetMigMode()
		return m, ret
	})
	switch gpu.KindOf(int(ret)) {
	case gpu.Answered:
	case gpu.Unsupported:
		return d
	default:
		d.unknown = true
		d.warn("reading the MIG mode: %v; the plugin keeps the last known mode or, without one, treats the GPU as whole", code(ret))
		return d
	}
	if mode.current != mode.pending {
		d.warn("MIG mode is %s now, and will be %s after the next reset (nvidia-smi --gpu-reset -i %s)", onOff(mode.current), onOff(mode.pending), parent.ID)
	}
	d.on = mode.current == nvml.DEVICE_MIG_ENABLE
	if !d.on {
		return d
	}
	most, ret := answer(r, "nvmlDeviceGetMaxMigDeviceCount", dev.GetMaxMigDeviceCount)
	if ret != nvml.SUCCESS {
		d.unknown = true
		d.warn("reading the number of MIG instances: %v; the plugin keeps the last known instances", code(ret))
		return d
	}
	for i := range min(most, mostInstances) {
		d.read(r, i, dev, parent)
	}
	return d
}

// read reads the MIG instance at one index. A failed question for one instance does not affect the
// other instances.
func (d *division) read(r *reader, i int, dev nvml.Device, parent gpu.Device) {
	own := &reader{sym: r.sym, lost: r.lost}
	child, ret := answer(own, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
		return dev.GetMigDeviceHandleByIndex(i)
	})
	m, why := migInstance{}, gpu.Failure{Function: "nvmlDeviceGetMigDeviceHandleByIndex", Code: int(ret)}
	if ret == nvml.SUCCESS {
		m, why = readMIG(own, child, dev, parent)
	}
	r.join(own)
	switch {
	case ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT || r.lost: // no instance at this index
	case why != gpu.Failure{}:
		d.unknown = true
		next := ""
		if gpu.KindOf(why.Code) == gpu.Denied {
			next = "; " + gpu.RemedyDenied
		}
		d.warn("MIG instance %d is hidden: %s; the plugin keeps the last known instances%s", i, why, next)
	default:
		m.failed = own.failed
		d.instances = append(d.instances, m)
	}
}

func onOff(mode int) string {
	if mode == nvml.DEVICE_MIG_ENABLE {
		return "on"
	}
	return "off"
}

// readMIG reads one MIG instance. Memory and size belong to the instance; power, clocks and
// location belong to its GPU. If the instance cannot be identified, readMIG returns the question
// that failed.
func readMIG(r *reader, child, dev nvml.Device, parent gpu.Device) (migInstance, gpu.Failure) {
	uuid, ret := answer(r, "nvmlDeviceGetUUID", child.GetUUID)
	if ret != nvml.SUCCESS || !isID(uuid) {
		return migInstance{}, gpu.Failure{Function: "nvmlDeviceGetUUID", Code: int(ret)}
	}
	d := parent
	d.ID, d.Parent = uuid, parent.ID
	name, ret := answer(r, "nvmlDeviceGetName", child.GetName)
	if ret != nvml.SUCCESS { // with its GPU's name, the instance would be in the group of whole GPUs
		return migInstance{}, gpu.Failure{Function: "nvmlDeviceGetName", Code: int(ret)}
	}
	d.Model = gpu.Printable(name)
	_, profile, ok := strings.Cut(d.Model, " MIG ")
	if ok {
		d.MIG.Profile = profile
	}
	d.MemoryMiB = nil
	if m, ok := value(r, "nvmlDeviceGetMemoryInfo", child.GetMemoryInfo); ok {
		d.MemoryMiB = mebibytes(m.Total)
	}
	d.MIG.GPUInstance, d.MIG.ComputeInstance = -1, -1
	if gi, ok := value(r, "nvmlDeviceGetGpuInstanceId", child.GetGpuInstanceId); ok {
		d.MIG.GPUInstance = gi
	}
	if ci, ok := value(r, "nvmlDeviceGetComputeInstanceId", child.GetComputeInstanceId); ok {
		d.MIG.ComputeInstance = ci
	}
	h := handle{dev: child, parent: dev, physical: parent.ID, gi: d.MIG.GPUInstance, ci: d.MIG.ComputeInstance}
	return migInstance{device: d, handle: h}, gpu.Failure{}
}
