// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// unavailable explains a failed initialisation to people. After an upgrade of
// the library this process still holds the old one, and always will: the
// dynamic linker never unloads it. Only a new process gets the new library.
func (b *Backend) unavailable(ret nvml.Return) error {
	u := &gpu.Unavailable{Err: code(ret)}
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		u.What = fmt.Sprintf("NVML library %q is not there: is the NVIDIA driver installed? (config key nvml_library)", b.opts.Library)
	case nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_UNINITIALIZED:
		u.What = "the NVIDIA driver is not loaded (modprobe nvidia)"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		u.What = "NVML library and loaded driver are of different versions: reload the driver or reboot"
		u.Restart = b.wasUp || replaced("/proc/self/maps", b.opts.Library)
	case nvml.ERROR_NO_PERMISSION:
		u.What = "no permission to use the NVIDIA driver (run Nomad's client as root)"
	default:
		u.What = "NVML cannot be initialised"
	}
	return u
}

// gone tells whether a return code means that the driver is not there any more.
func gone(ret nvml.Return) bool {
	switch ret {
	case nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH, nvml.ERROR_LIBRARY_NOT_FOUND:
		return true
	}
	return false
}

// code makes an error of a return code without asking the library for words.
func code(ret nvml.Return) error {
	name := strings.TrimPrefix(fmt.Sprint(nvmlName(ret)), "ERROR_")
	return fmt.Errorf("NVML error %d (%s)", int(ret), strings.ToLower(strings.ReplaceAll(name, "_", " ")))
}

// nvmlName names the return codes that people meet.
func nvmlName(ret nvml.Return) string {
	names := map[nvml.Return]string{
		nvml.ERROR_UNINITIALIZED: "UNINITIALIZED", nvml.ERROR_NOT_SUPPORTED: "NOT_SUPPORTED",
		nvml.ERROR_NO_PERMISSION: "NO_PERMISSION", nvml.ERROR_DRIVER_NOT_LOADED: "DRIVER_NOT_LOADED",
		nvml.ERROR_TIMEOUT: "TIMEOUT", nvml.ERROR_LIBRARY_NOT_FOUND: "LIBRARY_NOT_FOUND",
		nvml.ERROR_FUNCTION_NOT_FOUND: "FUNCTION_NOT_FOUND", nvml.ERROR_GPU_IS_LOST: "GPU_IS_LOST",
		nvml.ERROR_RESET_REQUIRED: "RESET_REQUIRED", nvml.ERROR_LIB_RM_VERSION_MISMATCH: "LIB_RM_VERSION_MISMATCH",
		nvml.ERROR_UNKNOWN: "UNKNOWN", nvml.ERROR_INVALID_ARGUMENT: "INVALID_ARGUMENT", nvml.ERROR_NOT_FOUND: "NOT_FOUND",
		nvml.ERROR_INSUFFICIENT_POWER: "INSUFFICIENT_POWER: is its power cable in?", nvml.ERROR_IRQ_ISSUE: "IRQ_ISSUE",
		nvml.ERROR_CORRUPTED_INFOROM: "CORRUPTED_INFOROM", nvml.ERROR_OPERATING_SYSTEM: "OPERATING_SYSTEM",
		nvml.ERROR_IN_USE: "IN_USE", nvml.ERROR_MEMORY: "MEMORY", nvml.ERROR_NO_DATA: "NO_DATA",
		nvml.ERROR_INSUFFICIENT_RESOURCES: "INSUFFICIENT_RESOURCES", nvml.ERROR_NOT_READY: "NOT_READY",
	}
	if n, ok := names[ret]; ok {
		return n
	}
	return "see nvmlReturn_t"
}

// errUnexpected wraps a return code with what was asked.
func errUnexpected(what string, ret nvml.Return) error { return fmt.Errorf("%s: %w", what, code(ret)) }

// errDriverGone marks that a scan met a driver that went away.
var errDriverGone = errors.New("the driver went away")
