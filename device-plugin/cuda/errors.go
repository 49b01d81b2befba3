// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Error codes of the driver that callers distinguish.
const (
	OutOfMemory       = 2
	NoDevice          = 100
	DeviceUnavailable = 46
	NoBinaryForGPU    = 209
	ECCUncorrectable  = 214
	UnsupportedPTX    = 222
	SystemNotReady    = 802

	stubLibrary        = 34
	insufficientDriver = 35
	noJITCompiler      = 221
	driverMismatch     = 803
	noCompat           = 804
	unknown            = 999
)

// Error describes a failed driver call.
type Error struct {
	Op   string // the operation that failed
	Code int
	Name string // CUDA_ERROR_…
	Log  string // log of the JIT compiler, if there is one
}

func (e *Error) Error() string {
	msg := fmt.Sprintf("%s: %s (%d)%s", e.Op, e.Name, e.Code, hints[e.Code])
	if e.Log != "" {
		msg += ": " + e.Log
	}
	return msg
}

// hints maps error codes to an explanation and advice.
var hints = map[int]string{
	OutOfMemory:        ", the GPU's memory is in use or too small",
	NoDevice:           ", the driver shows no GPU to this process",
	DeviceUnavailable:  ", the GPU is in exclusive mode and in use, prohibits computing (nvidia-smi -c), or must be reset",
	SystemNotReady:     ", the NVSwitch fabric is not ready (is the fabric manager running?), or the GPUs of a confidential VM are not (nvidia-smi conf-compute -srs 1)",
	noJITCompiler:      ", libnvidia-ptxjitcompiler.so.1 is not found: install it with the driver's compute libraries, beside libcuda.so.1, or set LD_LIBRARY_PATH of Nomad's client to its folder",
	driverMismatch:     ", the CUDA library and the loaded kernel driver are of different versions: reload the driver or reboot; if another driver's library was found first, set measure { cuda_library } to the path of the right one",
	noCompat:           ", a CUDA compatibility package (cuda-compat) is found before the driver's library, and this GPU does not support it: take its folder out of LD_LIBRARY_PATH and ld.so.conf, or set measure { cuda_library } to the driver's library",
	stubLibrary:        ", this library is the toolkit's stub, not the driver: take its folder out of LD_LIBRARY_PATH",
	insufficientDriver: ", the kernel driver is older than the CUDA library: update the driver",
	unknown:            ", often because the module nvidia_uvm is not loaded: nvidia-modprobe -u -c=0 loads it; after a suspend, load it again",
	NoBinaryForGPU:     ", the GPU or the driver is too old for this kernel",
	UnsupportedPTX:     ", the GPU or the driver is too old for this kernel",
}

// CodeOf returns the driver's code in err; 0 if there is none.
func CodeOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return 0
}

// Sticky reports whether err means that the context is lost, for example after an uncorrectable
// memory error.
func Sticky(err error) bool {
	c := CodeOf(err)
	return c == ECCUncorrectable || c == DeviceUnavailable || c >= 700
}

// pointer is the address of a kernel argument.
type pointer = unsafe.Pointer

// check returns an error unless the driver's code is 0.
func (d *Driver) check(op string, code int32) error {
	if code == 0 {
		return nil
	}
	e := &Error{Op: op, Code: int(code), Name: "CUDA error"}
	var name *byte
	if d.errorName(code, &name) == 0 && name != nil {
		e.Name = unix.BytePtrToString(name)
	}
	return e
}
