// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// migInstance is one MIG instance and how to ask it.
type migInstance struct {
	device gpu.Device
	handle handle
}

// migInstances lists the MIG instances of a GPU; nil when MIG is off. With MIG
// on the GPU itself is not schedulable, so an empty list is not nil. An error
// means that nobody can tell: the GPU counts as whole.
func (b *Backend) migInstances(r *reader, dev nvml.Device, parent gpu.Device) ([]migInstance, error) {
	current, ret := answer(r, "nvmlDeviceGetMigMode", first(dev.GetMigMode))
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
		return nil, nil
	default:
		return nil, errUnexpected("reading the MIG mode", ret)
	}
	if current != nvml.DEVICE_MIG_ENABLE {
		return nil, nil
	}
	most, ret := answer(r, "nvmlDeviceGetMaxMigDeviceCount", dev.GetMaxMigDeviceCount)
	if ret != nvml.SUCCESS {
		return nil, errUnexpected("reading the number of MIG instances", ret)
	}
	out := []migInstance{}
	for i := range min(most, mostInstances) {
		child, ok := value(r, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
			return dev.GetMigDeviceHandleByIndex(i)
		})
		if !ok {
			continue // no instance at this index
		}
		if m, ok := readMIG(r, child, dev, parent); ok {
			out = append(out, m)
		}
	}
	return out, nil
}

// readMIG reads one MIG instance: memory and size are its own, power, clocks
// and place are its GPU's.
func readMIG(r *reader, child, dev nvml.Device, parent gpu.Device) (migInstance, bool) {
	uuid, ok := value(r, "nvmlDeviceGetUUID", child.GetUUID)
	if !ok || !isID(uuid) {
		return migInstance{}, false
	}
	d := parent
	d.ID, d.Parent = uuid, parent.ID
	if name, ok := value(r, "nvmlDeviceGetName", child.GetName); ok {
		d.Model = gpu.Printable(name)
	}
	if _, profile, ok := strings.Cut(d.Model, " MIG "); ok {
		d.MIGProfile = profile
	}
	d.MemoryMiB = nil
	if m, ok := value(r, "nvmlDeviceGetMemoryInfo", child.GetMemoryInfo); ok {
		d.MemoryMiB = mebibytes(m.Total)
	}
	if a, ok := value(r, "nvmlDeviceGetAttributes_v2|nvmlDeviceGetAttributes", child.GetAttributes); ok {
		d.SMCount = int(a.MultiprocessorCount)
	}
	d.GPUInstance, d.ComputeInstance = -1, -1
	if gi, ok := value(r, "nvmlDeviceGetGpuInstanceId", child.GetGpuInstanceId); ok {
		d.GPUInstance = gi
	}
	if ci, ok := value(r, "nvmlDeviceGetComputeInstanceId", child.GetComputeInstanceId); ok {
		d.ComputeInstance = ci
	}
	h := handle{dev: child, parent: dev, physical: parent.ID, gi: d.GPUInstance, ci: d.ComputeInstance}
	return migInstance{device: d, handle: h}, true
}
