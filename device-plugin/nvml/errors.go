// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// unavailable returns the error for a failed initialization. After an upgrade of the library, only
// a new process gets the new library, because the dynamic linker never unloads the old one.
func (b *Backend) unavailable(ret nvml.Return) error {
	u := &gpu.Unavailable{Err: code(ret)}
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		u.What = fmt.Sprintf("NVML library %q does not exist: is the NVIDIA driver installed? (config key nvml_library)", b.opts.Library)
	case nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_UNINITIALIZED:
		u.What = "the NVIDIA driver is not loaded (modprobe nvidia)"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		u.What = "NVML library and loaded driver are of different versions: reload the driver or reboot"
		u.Restart = onDisk(b.path) != b.file
	case nvml.ERROR_NO_PERMISSION:
		u.What = "no permission to use the NVIDIA driver (run Nomad's client as root)"
	default:
		u.What = "NVML cannot be initialized: dmesg | grep NVRM shows why; if this container has lost the device files /dev/nvidia*, start the container again"
	}
	return u
}

// gone reports whether a return code means that the driver is no longer loaded.
func gone(ret nvml.Return) bool { return gpu.KindOf(int(ret)) == gpu.DriverGone }

// code makes an error from a return code without asking the library for the text.
func code(ret nvml.Return) error {
	return fmt.Errorf("NVML error %d (%s)", int(ret), gpu.CodeName(int(ret)))
}

// errDriverGone means that the driver was unloaded during a scan.
var errDriverGone = errors.New("the driver went away")
